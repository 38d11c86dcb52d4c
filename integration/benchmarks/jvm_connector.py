"""The JVM connector's side of `data_frames`: a script for a Python that has pyspark and nothing of kstream.

    python jvm_connector.py JARS BOOTSTRAP TOPIC STARTING ENDING

Reads a query a line, runs it over the view `records` and answers with a line `rows [[…], …]`; ends with its input.
"""

from __future__ import annotations

import json
import sys
from typing import Any

SETTINGS = {
    "spark.master": "local[2]",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
}
"""The same for both sides."""


def rows_of(spark: Any, query: str) -> list[Any]:
    """The answer, in an order of its own."""
    return sorted(list(row) for row in spark.sql(query).collect())


def main(jars: str, bootstrap: str, topic: str, starting: str, ending: str) -> None:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("jvm_connector").config("spark.jars", jars)
    for key, value in SETTINGS.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    options = {
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "startingOffsets": starting,
        "endingOffsets": ending,
        "includeHeaders": "true",
    }
    spark.read.format("kafka").options(**options).load().createOrReplaceTempView("records")
    for query in sys.stdin:
        print("rows", json.dumps(rows_of(spark, query.strip())), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
