"""A job on a cluster whose tasks are run twice: by speculation, by a retry, and by a shuffle whose map outputs are gone.

    python -m integration.counted_job OPTIONS

OPTIONS is JSON: bootstrap, topic, dead (the dead-letter topic), total (records of the topic, which are in one batch), directory, settings
of Spark. Before that batch reads, it makes the file `planned` and waits for `go`. Prints what it counted as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time as clock
import urllib.request
import uuid
from collections.abc import Iterable, Iterator
from operator import add
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf, TaskContext

from integration.exactness.job import replace_file
from integration.received.processes import parent_of
from kstream import BatchTime, StreamingContext, StreamingListener
from kstream.spark.spark_context import make_spark_context

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "100ms",
    "spark.streaming.kstream.metrics.port": "0",
    "spark.streaming.kstream.maxErrorRatio": "0.5",
}
INTERVAL_S = 2
EXECUTORS_KILLED = 2
PATIENCE_S = 300.0
_SLOW_S = 20.0
"""The first attempt of a task; its copy ends at once, and then it is killed."""


def decoded(raw: bytes) -> str:
    """A record as text; ValueError for a poison record."""
    partition, number = raw.decode().split(":")
    return f"{int(partition)}:{int(number)}"


def write_twice(root: Path, batch: int, rows: Iterable[str]) -> int:
    """Two sinks of one partition: a naive one that adds its rows, and one that replaces what an earlier attempt has written.

    The first attempt of partition 1 fails after it has written, that of partition 2 is slow.
    """
    task, values = TaskContext.get(), list(rows)
    assert task is not None
    partition, again = task.partitionId(), task.attemptNumber() > 0
    replace_file(root / "naive" / f"{batch}-{partition}-{uuid.uuid4().hex}.json", values)
    replace_file(root / "once" / f"{batch}-{partition}.json", values)
    if partition == 1 and not again:
        raise ConnectionError("the connection was lost after the commit")
    if partition == 2 and not again:
        clock.sleep(_SLOW_S)
    return len(values)


def lose_map_outputs(root: Path, pairs: Iterable[Any]) -> Iterator[Any]:
    """In a reduce task: twice in a run it kills its own executor, with the outputs of the map tasks that ran there."""
    task = TaskContext.get()
    assert task is not None
    if task.partitionId() == 0:
        for number in range(EXECUTORS_KILLED):
            try:
                (root / "killed" / f"{number}").touch(exist_ok=False)
            except FileExistsError:
                continue
            os.kill(parent_of(os.getppid()), signal.SIGKILL)  # worker → daemon → executor
            clock.sleep(60)
    return iter(pairs)


class Told(StreamingListener):
    """Batch time → input rows and record errors, as listeners hear them."""

    def __init__(self) -> None:
        self.batches: dict[int, list[int]] = {}

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        info = batchCompleted.batchInfo()
        self.batches[info.batchTime().milliseconds()] = [info.numRecords(), info.numRecordErrors()]


def main(options: dict[str, Any]) -> None:
    root = Path(options["directory"])
    for folder in ("naive", "once", "killed"):
        (root / folder).mkdir(parents=True)
    conf = SparkConf().setAppName("counted").setAll(list({**SETTINGS, **options["settings"]}.items()))
    sc = make_spark_context(conf)
    sc.setLogLevel("WARN")
    in_action, in_map = sc.accumulator(0), sc.accumulator(0)
    ssc, told, found = StreamingContext(sc, INTERVAL_S), Told(), dict[int, dict[str, Any]]()
    ssc.checkpoint(str(root / "checkpoint"))
    ssc.addStreamingListener(told)
    stream = KafkaUtils.createDirectStream(
        ssc, [options["topic"]], {"bootstrap.servers": options["bootstrap"]}, "earliest", valueDecoder=decoded,
        onDataLoss="skip", onRecordError="dead-letter", deadLetterTopic=options["dead"],
    )  # fmt: skip

    def last_digit(record: tuple[Any, str]) -> tuple[str, int]:
        in_map.add(1)
        return record[1][-1], 1

    def output(time: BatchTime, rdd: Any) -> None:
        ranges = [[r.partition, r.fromOffset, r.untilOffset] for r in rdd.offsetRanges()]
        if not any(until > start for _, start, until in ranges):
            return
        (root / "planned").touch()
        while not (root / "go").exists():
            clock.sleep(0.05)
        batch = time.milliseconds

        def write(rows: Iterable[tuple[Any, str]]) -> None:
            in_action.add(write_twice(root, batch, (value for _, value in rows)))

        rdd.foreachPartition(write)
        shuffled = rdd.map(last_digit).reduceByKey(add, 3).mapPartitions(lambda pairs: lose_map_outputs(root, pairs)).collect()
        found[batch] = {"ranges": ranges, "count": rdd.count(), "shuffled": sum(n for _, n in shuffled)}

    stream.foreachRDD(output)
    ssc.start()
    end = clock.monotonic() + PATIENCE_S
    while sum(rows for rows, _ in told.batches.values()) < options["total"]:
        assert clock.monotonic() < end, f"only {told.batches} came"
        ssc.awaitTerminationOrTimeout(0.2)
    with urllib.request.urlopen(ssc.metricsUrl or "", timeout=20) as answer:
        metrics = [line for line in answer.read().decode().splitlines() if line.startswith(("kstream_input_rec", "kstream_record_err"))]
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    counted = {"in_action": in_action.value, "in_map": in_map.value}
    print(json.dumps({"batches": found, "told": told.batches, "metrics": metrics, "accumulators": counted}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
