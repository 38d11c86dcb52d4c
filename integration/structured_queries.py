"""Queries of a Kafka source of Spark and their rows: a script for a Python that has pyspark and nothing of kstream.

    python structured_queries.py JARS

Reads a query a line, as JSON, and answers with a line `rows [[…], …]`; ends with its input. A query is `{"options": {…}}`, of a batch; with
`"stream": true`, of a stream that ends at the records that are there; with `"checkpoint": "…"` one that goes on; with `"fails_after": N`
one that may fail, and whose sink does after N batches, so that a batch has begun and is not committed.
"""

from __future__ import annotations

import json
import sys
import tempfile
import uuid
from typing import Any

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
ROW = ["base64(key)", "base64(value)", "topic", "partition", "offset", "unix_micros(timestamp)", "timestampType"]
HEADERS = "transform(headers, h -> concat(h.key, '=', coalesce(base64(h.value), 'null')))"


def rows_of(spark: Any, source: str, query: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of a query with a source, sorted by topic, partition and offset."""
    is_stream = query.get("stream", False)
    frame = (spark.readStream if is_stream else spark.read).format(source).options(**query["options"]).load()
    frame = frame.selectExpr(*ROW, *([HEADERS] if "headers" in frame.columns else []))
    if is_stream:
        frame = _available_now(spark, frame, query.get("checkpoint"), query.get("fails_after"))
    return sorted((list(row) for row in frame.collect()), key=lambda row: row[2:5])


def _available_now(spark: Any, frame: Any, checkpoint: str | None, fails_after: int | None) -> Any:
    """Return what a stream reads until it has read all records of now, or has failed."""
    batches: list[list[Any]] = []

    def keep(batch: Any, _: int) -> None:
        if len(batches) == fails_after:
            raise RuntimeError("the sink fails")
        batches.append(batch.collect())

    where = checkpoint or tempfile.mkdtemp()
    writer = frame.writeStream.foreachBatch(keep).option("checkpointLocation", where)
    running = writer.trigger(availableNow=True).queryName(f"q{uuid.uuid4().hex}").start()
    try:
        if not running.awaitTermination(120):
            raise TimeoutError("the stream does not end")
    except Exception as e:
        if fails_after is None or "StreamingQueryException" not in type(e).__name__:
            raise
    return _Collected([row for rows in batches for row in rows])


class _Collected:
    """Rows that were collected already."""

    def __init__(self, rows: list[Any]) -> None:
        self._rows = rows

    def collect(self) -> list[Any]:
        return self._rows


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("structured_queries").config("spark.jars", jars)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        print("rows", json.dumps(rows_of(spark, "kafka", json.loads(line))), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
