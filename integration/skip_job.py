"""The driver of `integration.test_peek_and_skip`: parses records as numbers, per batch and over a window. A poison record fails a batch.

python -m integration.skip_job BOOTSTRAP TOPIC DIRECTORY

The environment variable SKIP_JOB is JSON, or not there: settings (of Spark), watched (a directory whose files are read, too).
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from integration.exactness.job import replace_file, wait_for_the_end
from kstream import BatchTime, StreamingContext

INTERVAL_S = 2
VARIABLE = "SKIP_JOB"


def parsed(record: tuple[str, str]) -> int:
    """The number in a record; ValueError for a poison record."""
    return int(record[1])


def setup(bootstrap: str, topic: str, directory: Path) -> StreamingContext:
    """Builds the graph: two outputs of the parsed records, each a file per batch; a third one for the lines of files."""
    options = json.loads(os.environ.get(VARIABLE, "{}"))
    conf = SparkConf().setMaster("local[2]").setAppName("skip").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    conf = conf.set("spark.ui.showConsoleProgress", "false").set("spark.streaming.kstream.batch.retries", "60")
    conf = conf.set("spark.streaming.kstream.skipEmptyBatches", "true")  # on a busy machine a retry waits behind the batches of each tick
    ssc = StreamingContext(conf.setAll(list(options.get("settings", {}).items())), INTERVAL_S)
    ssc.sparkContext.setLogLevel("OFF")
    params = {"bootstrap.servers": bootstrap, "auto.offset.reset": "smallest"}
    numbers = KafkaUtils.createDirectStream(ssc, [topic], params).map(parsed)

    def write(folder: str) -> Any:
        def output(time: BatchTime, rdd: Any) -> None:
            replace_file(directory / folder / f"{time.milliseconds}.json", sorted(rdd.collect()))

        return output

    numbers.foreachRDD(write("sink"))
    numbers.window(2 * INTERVAL_S).foreachRDD(write("windows"))
    if "watched" in options:
        ssc.textFileStream(options["watched"]).map(int).foreachRDD(write("files"))
    return ssc


def main() -> None:
    bootstrap, topic, directory = sys.argv[1], sys.argv[2], Path(sys.argv[3])
    ssc = StreamingContext.getOrCreate(str(directory / "checkpoint"), lambda: setup(bootstrap, topic, directory))
    ssc.start()
    wait_for_the_end(ssc, endure=True)


if __name__ == "__main__":
    main()
