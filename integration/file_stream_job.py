"""The driver that is killed while files arrive: notes the numbers of each batch, and of a window over three.

Arguments: the directory that is watched, the one for checkpoint and notes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf

from integration.exactness.job import append_line
from kstream import BatchTime, StreamingContext


def setup(watched: str, notes: Path) -> StreamingContext:
    conf = SparkConf().setMaster("local[2]").setAppName("files").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
    ssc = StreamingContext(conf, 1)
    ssc.sparkContext.setLogLevel("ERROR")
    append_line(notes / "setups.jsonl", {})

    def note(name: str) -> Any:
        def write(time: BatchTime, rdd: Any) -> None:
            append_line(notes / f"{name}.jsonl", {"time": time.milliseconds, "numbers": sorted(rdd.collect())})

        return write

    numbers = ssc.textFileStream(watched).map(int)
    numbers.foreachRDD(note("batches"))
    numbers.window(3, 1).foreachRDD(note("windows"))
    return ssc


def main() -> None:
    watched, notes = sys.argv[1], Path(sys.argv[2])
    ssc = StreamingContext.getOrCreate(str(notes / "checkpoint"), lambda: setup(watched, notes))
    ssc.start()
    append_line(notes / "started.jsonl", {})
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
