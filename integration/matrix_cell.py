"""What a cell of the matrix is: real jobs with an installed kstream, on the Python and the pyspark of an environment.

    python matrix_cell.py FOLDER BOOTSTRAP [CHECK …]

Prints a line `CHECK ok SECONDS` or `CHECK failed REASON` for each check. FOLDER is empty, and its name is that of the topics.
The program uses nothing but what is installed: it is run by its path, where no checkout is on the path.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

SECONDS = 300
KEYS = 4
CONF = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.streaming.kafka.maxRatePerPartition": "25",
}


def spark_conf() -> Any:
    from pyspark import SparkConf

    conf = SparkConf().setAppName("matrix")
    for key, value in CONF.items():
        conf.set(key, value)
    return conf


# -- the job with state, run as `python matrix_cell.py --job FOLDER BOOTSTRAP`


def run_job(folder: str, bootstrap: str) -> None:
    """Counts the records of a topic by key in three ways, and notes each batch: by state, in a window of everything, and as DataFrames."""
    from kstream_kafka import KafkaUtils

    from kstream import StateSpec, StreamingContext

    out = Path(folder)

    def note(what: str, batch: int, value: Any) -> None:
        path = out / what / f"{batch}.json"
        path.parent.mkdir(exist_ok=True)
        path.with_suffix(".tmp").write_text(json.dumps(value))
        path.with_suffix(".tmp").replace(path)

    def setup() -> Any:
        ssc = StreamingContext(spark_conf(), 1)
        ssc.sparkContext.setLogLevel("ERROR")
        kafka = {"bootstrap.servers": bootstrap}
        records = KafkaUtils.createDirectStream(ssc, [out.name], kafka, fromOffsets="earliest", untilOffsets="latest")
        ones = records.map(lambda record: (record[0], int(record[1])))
        counted = ones.mapWithState(StateSpec.function(add_up)).stateSnapshots()
        counted.foreachRDD(lambda at, rdd: note("state", at.milliseconds, sorted(rdd.collect())))
        window = ones.reduceByKeyAndWindow(lambda a, b: a + b, lambda a, b: a - b, 3600, 1, 2)
        window.foreachRDD(lambda at, rdd: note("window", at.milliseconds, sorted(rdd.collect())))
        records.foreachBatch(
            lambda frame, batch: note("frames", batch, [int(r.v) for r in frame.selectExpr("CAST(value AS STRING) v").collect()])
        )
        return ssc

    ssc = StreamingContext.getOrCreate(os.path.join(folder, "checkpoint"), setup)
    ssc.start()
    ssc.awaitTermination()
    ssc.stop()


def add_up(key: str, value: Any, state: Any) -> int:
    total = (state.get() if state.exists() else 0) + (value or 0)
    state.update(total)
    return total


# -- the checks


def a_job_is_exact(folder: Path, bootstrap: str, numbers: int) -> None:
    """Its driver is killed in the second batch; the next one ends it. State, window and DataFrames have each record once."""
    command = [sys.executable, __file__, "--job", str(folder), bootstrap]
    for life, crash in enumerate(("running:5", "")):
        with open(folder / f"log-{life}", "wb") as log:
            environment = {**os.environ, "KSTREAM_CRASH_AT": crash}
            done = subprocess.run(command, env=environment, stdout=log, stderr=subprocess.STDOUT, timeout=SECONDS, check=False)
        expected = -signal.SIGKILL if crash else 0
        assert done.returncode == expected, f"life {life} ended with {done.returncode}: {(folder / f'log-{life}').read_text()[-1500:]}"
    totals = [[f"k{key}", sum(range(key, numbers, KEYS))] for key in range(KEYS)]
    for what in ("state", "window"):
        newest = max((folder / what).glob("*.json"), key=lambda path: int(path.stem))
        found = json.loads(newest.read_text())
        assert found == totals, f"{what}: {found} is not {totals}"
    frames = sorted(n for path in (folder / "frames").glob("*.json") for n in json.loads(path.read_text()))
    assert frames == list(range(numbers)), f"the DataFrames have {len(frames)} of {numbers} records"


def frames_of_ranges(spark: Any, folder: Path, bootstrap: str, numbers: int) -> None:
    from kstream_kafka import KafkaUtils, OffsetRange

    ranges = [OffsetRange(folder.name, p, 0, numbers // 2) for p in range(2)]
    kafka = {"bootstrap.servers": bootstrap}
    frame = KafkaUtils.createDataFrame(spark, kafka, ranges).selectExpr("sum(CAST(CAST(value AS STRING) AS BIGINT)) AS s", "count(*) AS n")
    assert tuple(frame.collect()[0]) == (sum(range(numbers)), numbers)
    assert KafkaUtils.createRDD(spark.sparkContext, kafka, ranges).map(lambda r: int(r[1])).sum() == sum(range(numbers))


def available_now(frame: Any, write: Any) -> None:
    query = write(frame).trigger(availableNow=True).start()
    assert query.awaitTermination(SECONDS), "the query does not end"


def a_query_reads(spark: Any, folder: Path, bootstrap: str, numbers: int) -> None:
    """A batch and a stream; the stream in two lives of one checkpoint."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": folder.name, "startingOffsets": "earliest"}
    assert spark.read.format("kstream").options(**options).load().count() == numbers
    seen: list[int] = []
    stream = spark.readStream.format("kstream").options(**options).load().selectExpr("CAST(CAST(value AS STRING) AS BIGINT) AS n")

    def keep(frame: Any, _batch: int) -> None:
        seen.extend(row.n for row in frame.collect())

    for _life in range(2):
        available_now(stream, lambda f: f.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / "query")))
    assert sorted(seen) == list(range(numbers)), f"the stream has {len(seen)} of {numbers} records"


def a_query_writes(spark: Any, folder: Path, bootstrap: str, numbers: int) -> None:
    """Exactly once, in two lives of one checkpoint."""
    read = {"kafka.bootstrap.servers": bootstrap, "subscribe": folder.name, "startingOffsets": "earliest"}
    write = {
        "kafka.bootstrap.servers": bootstrap,
        "topic": f"{folder.name}-copies",
        "checkpointLocation": str(folder / "sink"),
        "prefix": folder.name,
    }
    stream = spark.readStream.format("kstream").options(**read).load().select("key", "value")
    for _life in range(2):
        available_now(stream, lambda f: f.writeStream.format("kstream").options(**write))
    copies = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": f"{folder.name}-copies",
        "startingOffsets": "earliest",
        "kafka.isolation.level": "read_committed",
    }
    found = spark.read.format("kstream").options(**copies).load().selectExpr("CAST(value AS STRING) v").collect()
    assert sorted(int(row.v) for row in found) == list(range(numbers)), f"{len(found)} of {numbers} records were written"


def produce(topic: str, bootstrap: str, numbers: int) -> None:
    from confluent_kafka import Producer
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 2), NewTopic(f"{topic}-copies", 1)]).values():
        future.result(30)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(numbers):
        producer.produce(topic, str(number), f"k{number % KEYS}", partition=number % 2)
    assert producer.flush(60) == 0


def check(name: str, run: Callable[[], None]) -> None:
    began = time.monotonic()
    try:
        run()
    except Exception as e:
        traceback.print_exc()
        print(name, "failed", " ".join(f"{type(e).__name__}: {e}".split())[-300:], flush=True)
    else:
        print(name, f"ok {time.monotonic() - began:.0f}", flush=True)


CHECKS = ("job", "frames", "source", "sink")


def check_all(folder: Path, bootstrap: str, names: Sequence[str] = CHECKS, numbers: int = 200) -> None:
    """Does the checks that this pyspark can pass: before 4.0 there is no data source in Python."""
    import pyspark

    from kstream.spark.java import ensure_java

    names = [name for name in names if name not in ("source", "sink") or int(pyspark.__version__.split(".")[0]) >= 4]
    ensure_java()
    produce(folder.name, bootstrap, numbers)
    if "job" in names:
        check("job", lambda: a_job_is_exact(folder, bootstrap, numbers))
    of_a_session = {"frames": frames_of_ranges, "source": a_query_reads, "sink": a_query_writes}
    if not of_a_session.keys() & set(names):
        return
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config(conf=spark_conf()).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for name, run in of_a_session.items():
        if name in names:
            check(name, partial(run, spark, folder, bootstrap, numbers))
    spark.stop()


def main(arguments: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if arguments[0] == "--job":
        run_job(*arguments[1:])
    else:
        check_all(Path(arguments[0]), arguments[1], arguments[2:] or CHECKS)


if __name__ == "__main__":
    main(sys.argv[1:])
