"""HdfsWordCount: counts the words of the text files that arrive in a directory, every second.

    spark-submit hdfs_wordcount.py hdfs://namenode:8020/incoming

or `python -m kstream.examples.hdfs_wordcount /tmp/incoming`: the directory may be on HDFS, on a local disk (of all machines that run
executors) or on anything fsspec knows (`s3://bucket/incoming`). Move files into it when they are whole: `mv words.txt /tmp/incoming/`.
"""

from __future__ import annotations

import argparse

from pyspark import SparkConf

from kstream import StreamingContext


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the words of files that arrive in a directory, every second.")
    parser.add_argument("directory")
    arguments = parser.parse_args()

    ssc = StreamingContext(SparkConf().setAppName("HdfsWordCount"), 1)
    ssc.sparkContext.setLogLevel("WARN")  # or Spark's log would hide what is printed

    lines = ssc.textFileStream(arguments.directory)
    words = lines.flatMap(lambda line: line.split(" "))
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    counts.pprint()

    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
