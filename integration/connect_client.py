"""A client of Spark Connect that reads a topic by `format("kstream")`, in a batch and in a stream: a script that needs no kstream.

    python connect_client.py URL BOOTSTRAP TOPIC CHECKPOINT

Prints a line of JSON: the offsets and values of each, and the error of an option that does not exist.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def rows_of(frame: Any) -> list[list[Any]]:
    return sorted([row.offset, row.text] for row in frame.selectExpr("offset", "CAST(value AS STRING) AS text").collect())


def main(url: str, bootstrap: str, topic: str, checkpoint: str) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.remote(url).getOrCreate()
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    batch = rows_of(spark.read.format("kstream").options(**options).load())
    stream = spark.readStream.format("kstream").schema("value BINARY, offset BIGINT").options(**options).load()
    writer = stream.writeStream.format("memory").queryName("seen").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    ended = query.awaitTermination(60)
    refused = ""
    try:
        spark.read.format("kstream").options(**options, startingOffset="earliest").load().collect()
    except PySparkException as e:
        refused = str(e)
    streamed = rows_of(spark.table("seen")) if ended else []
    print(json.dumps({"batch": batch, "stream": streamed, "refused": refused}), flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
