"""The streams of `structured` and `structured_sink`: a script for a Python that has pyspark, and nothing of kstream but source and sink.

    python timed_streams.py SOURCE JARS

Reads a stream a line, as JSON, runs it until it has read its records, and answers with a line `rows [[…], …]`: for each trigger that
Spark reports the number of its records, and milliseconds by name (`durationMs`). Ends with its input. A stream is `{"options": {…},
"records": 3000, "through": "columns"}`; with `"schema": "value BINARY"` that schema is given to the source, and with `"idle": 1.5` the
stream runs on for so many seconds, with triggers that have nothing to read. `"sink": {…}` are the options of a sink of the same name as the
source; without them the sink is `noop`.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import Any

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.numRecentProgressUpdates": "100000",
    "spark.sql.streaming.noDataProgressEventInterval": "0",
}
"""The same for both sides. A Spark before 4.1 does not know the sockets. By the last two Spark reports each trigger, without data, too."""
PATIENCE_S = 300.0


def lengths(batches: Iterator[Any]) -> Iterator[Any]:
    """The length of each value, for `mapInArrow`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for batch in batches:
        yield pa.RecordBatch.from_arrays([pc.binary_length(batch.column(0)).cast(pa.int64())], ["length"])


def through(frame: Any, what: str) -> Any:
    """What the stream writes: all columns, keys and values, the values, or what a Python function makes of the values."""
    if what == "columns":
        return frame
    if what == "pairs":
        return frame.select("key", "value")
    return frame.select("value") if what == "values" else frame.select("value").mapInArrow(lengths, "length LONG")


def triggers_of(spark: Any, source: str, stream: dict[str, Any]) -> list[list[Any]]:
    """Run a stream, and return its triggers in their order: the number of records, and milliseconds by name."""
    reader = spark.readStream.format(source).options(**stream["options"])
    if "schema" in stream:
        reader = reader.schema(stream["schema"])
    frame = through(reader.load(), stream["through"])
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(source if "sink" in stream else "noop").options(**stream.get("sink", {}))
        query = writer.option("checkpointLocation", checkpoint).start()
        try:
            end = time.monotonic() + PATIENCE_S
            while not _has_read(query, stream["records"]):
                if time.monotonic() > end or not query.isActive:
                    raise TimeoutError(f"the stream does not end: {query.exception() or query.lastProgress}")
                time.sleep(0.1)
            time.sleep(stream.get("idle", 0))
        finally:
            query.stop()
        return [[trigger["numInputRows"], dict(trigger["durationMs"])] for trigger in query.recentProgress]


def _has_read(query: Any, records: int) -> bool:
    """Return whether a stream has read its records. Asks for little before a trigger had nothing to read."""
    last = query.lastProgress
    return last is not None and not last["numInputRows"] and sum(each["numInputRows"] for each in query.recentProgress) >= records


def main(source: str, jars: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("timed_streams")
    for key, value in {**SETTINGS, **({"spark.jars": jars} if jars else {})}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        print("rows", json.dumps(triggers_of(spark, source, json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
