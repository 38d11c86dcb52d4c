"""The driver that is killed: copies a topic to another one behind a shuffle. A script for a Python that has pyspark and perhaps no kstream.

Argument: a JSON file with bootstrap, topic, target, directory, source and sink (their formats), options (of the source), sink_options and
settings (of Spark). The query ends when there is a file `stop`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

_SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "512m",
}
_SETTINGS_OF_THE_COPY = {
    "spark.sql.shuffle.partitions": "6",
    "spark.sql.adaptive.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10000",
}
"""Spark keeps the offsets of all batches: the verdict reads them."""


def run(start: Callable[[SparkSession, Mapping[str, Any]], StreamingQuery], settings: Mapping[str, str] | None = None) -> None:
    """Start a query by what the argument says, and run it until there is a file `stop`."""
    given = json.loads(Path(sys.argv[1]).read_text())
    builder = SparkSession.builder.appName("structured_kills")
    for key, value in {**_SETTINGS, **(settings or {}), **given["settings"]}.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    query = start(spark, given)
    while not Path(given["directory"], "stop").exists():
        query.awaitTermination(1)
    query.stop()
    spark.stop()


def start_copy(spark: SparkSession, given: Mapping[str, Any]) -> StreamingQuery:
    kafka = {"kafka.bootstrap.servers": given["bootstrap"]}
    source = spark.readStream.format(given["source"]).options(**kafka, subscribe=given["topic"], startingOffsets="earliest")
    places = source.options(**given["options"]).load().selectExpr("CAST(value AS STRING) AS value")
    # Deals the records out in turn: which partition has one depends on the tasks of the source, and AQE decides how many there are.
    writer = places.hint("rebalance").writeStream.format(given["sink"]).options(**kafka, topic=given["target"], **given["sink_options"])
    return writer.option("checkpointLocation", str(Path(given["directory"], "checkpoint"))).start()


if __name__ == "__main__":
    run(start_copy, _SETTINGS_OF_THE_COPY)
