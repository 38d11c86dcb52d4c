"""StructuredNetworkWordCount: the running counts of all words so far, in Structured Streaming of plain PySpark, for comparison.

In one terminal `nc -lk 9999`, in another

    spark-submit structured_network_wordcount.py localhost 9999

or `python -m kstream.examples.structured_network_wordcount localhost 9999`. `network_wordcount.py` counts each second by itself; this
program counts all words so far, and Spark makes the batches.
"""

from __future__ import annotations

import argparse

from pyspark.sql import SparkSession
from pyspark.sql.functions import explode, split


def main() -> None:
    parser = argparse.ArgumentParser(description="The running counts of the words that a server sends.")
    parser.add_argument("hostname")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()

    spark = SparkSession.builder.appName("StructuredNetworkWordCount").getOrCreate()
    spark.sparkContext.setLogLevel("WARN")

    lines = spark.readStream.format("socket").option("host", arguments.hostname).option("port", arguments.port).load()
    words = lines.select(explode(split(lines.value, " ")).alias("word"))
    counts = words.groupBy("word").count()

    query = counts.writeStream.outputMode("complete").format("console").start()
    query.awaitTermination()


if __name__ == "__main__":
    main()
