"""The side of Spark's own Kafka sink in `kafka_sink`: a script for a Python that has pyspark and nothing of kstream.

    python jvm_sink.py JARS BOOTSTRAP PARTITIONS RECORDS

Each line is the name of a DataFrame, a space and a topic: the DataFrame is written there once. `rdd` is the RDD of pairs that kstream
writes, `jvm` has as many records of this size, made in the JVM. The answer is an empty list.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def pairs(count: int) -> Callable[[int, Iterable[Any]], Iterator[tuple[bytes, bytes]]]:
    """What makes so many records of a partition. Each has a key of its own."""
    return lambda partition, _nothing: ((b"%d:%d" % (partition, number), b"v" * 100) for number in range(count))


def main(jars: str, bootstrap: str, partitions: int, records: int) -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as f

    builder = SparkSession.builder.appName("jvm_sink").master("local[2]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.driver.bindAddress", "127.0.0.1").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    rdd = spark.sparkContext.parallelize(range(partitions), partitions).mapPartitionsWithIndex(pairs(records // partitions))
    number = f.col("id").cast("string").cast("binary").alias("key")
    frames = {
        "rdd": spark.createDataFrame(rdd, "key binary, value binary"),
        "jvm": spark.range(0, records, 1, partitions).select(number, f.lit("v" * 100).cast("binary").alias("value")),
    }
    for line in sys.stdin:
        name, topic = line.split()
        frames[name].write.format("kafka").option("kafka.bootstrap.servers", bootstrap).option("topic", topic).save()
        print("rows []", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
