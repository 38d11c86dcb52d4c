"""Queries of a Kafka source of Spark and their rows: a script for a Python that has pyspark and perhaps nothing of kstream.

    python structured_queries.py JARS

Reads a query a line, as JSON, and answers with a line `rows [[…], …]`, or `error "…"`; ends with its input. A query is
`{"options": {…}}`, of a batch; with `"stream": true`, of a stream that ends at the records that are there. It may also have

    source       the source, if it is not Spark's own
    schema       the columns
    sql          a query of the view `records`
    others       the options of the view `others`
    watermark    the delay of the watermark of both
    distinct     columns of which each value comes once within the watermark
    zone         the time zone of the session
    checkpoint   of a stream that goes on
    fails_after  after so many batches the sink of a stream fails, so that a batch has begun and is not committed
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
}
ROW = ["base64(key)", "base64(value)", "topic", "partition", "offset", "unix_micros(timestamp)", "timestampType"]
HEADERS = "transform(headers, h -> concat(h.key, '=', coalesce(base64(h.value), 'null')))"


def rows_of(spark: Any, source: str, query: dict[str, Any]) -> list[list[Any]]:
    """Return the rows of a query with a source, sorted by topic, partition and offset, or those of `sql` in some order of their own."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "2")
    session.conf.set("spark.sql.session.timeZone", query.get("zone", "UTC"))
    frame = _records(session, source, query, query["options"])
    if "others" in query:
        _records(session, source, query, query["others"]).createOrReplaceTempView("others")
    if "distinct" in query:
        frame = frame.dropDuplicatesWithinWatermark(query["distinct"])
    frame.createOrReplaceTempView("records")
    if "sql" in query:
        frame = session.sql(query["sql"])
    elif "schema" not in query:
        frame = frame.selectExpr(*ROW, *([HEADERS] if "headers" in frame.columns else []))
    rows = _available_now(frame, query.get("checkpoint"), query.get("fails_after")) if query.get("stream", False) else frame.collect()
    plain = [[_plain(value) for value in row] for row in rows]
    return sorted(plain, key=json.dumps if query.keys() & {"sql", "schema"} else lambda row: row[2:5])


def _records(session: Any, source: str, query: dict[str, Any], options: dict[str, str]) -> Any:
    """Return the records of these options."""
    reader = session.readStream if query.get("stream", False) else session.read
    if "schema" in query:
        reader = reader.schema(query["schema"])
    frame = reader.format(source).options(**options).load()
    return frame.withWatermark("timestamp", query["watermark"]) if "watermark" in query else frame


def _plain(value: Any) -> Any:
    """Return a value as JSON has it."""
    return bytes(value).decode() if isinstance(value, bytes | bytearray) else value


def _available_now(frame: Any, checkpoint: str | None, fails_after: int | None) -> list[Any]:
    """Return what a stream reads until it has read all records of now, or its sink has failed."""
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
    return [row for rows in batches for row in rows]


def main(jars: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("structured_queries").config("spark.jars", jars)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    for line in sys.stdin:
        query = json.loads(line)
        try:
            answer = "rows", rows_of(spark, query.get("source", "kafka"), query)
        except Exception as e:
            answer = "error", str(e)
        print(answer[0], json.dumps(answer[1]), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
