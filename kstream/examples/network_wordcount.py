"""NetworkWordCount: counts the words that a server on the network sends, every second.

In one terminal `nc -lk 9999`, to type words into; in another

    spark-submit network_wordcount.py localhost 9999

or `python -m kstream.examples.network_wordcount localhost 9999`. On pyspark.streaming the import line would be
`from pyspark.streaming import StreamingContext`.
"""

from __future__ import annotations

import argparse

from pyspark import SparkConf

from kstream import StreamingContext


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the words that a server sends, every second.")
    parser.add_argument("hostname")
    parser.add_argument("port", type=int)
    arguments = parser.parse_args()

    ssc = StreamingContext(SparkConf().setAppName("NetworkWordCount"), 1)
    ssc.sparkContext.setLogLevel("WARN")  # or Spark's log would hide what is printed

    lines = ssc.socketTextStream(arguments.hostname, arguments.port)
    words = lines.flatMap(lambda line: line.split(" "))
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    counts.pprint()

    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
