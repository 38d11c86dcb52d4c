"""DirectKafkaWordCount: counts the words of a Kafka topic, every second, and continues exactly where it stopped.

    spark-submit direct_kafka_wordcount.py localhost:9092 lines /tmp/wordcount

or `python -m kstream.examples.direct_kafka_wordcount localhost:9092 lines /tmp/wordcount`; no --packages. The first start begins at
the end of the topic. After a stop or a crash, a start with the same checkpoint directory counts the records that came meanwhile, each in
exactly one batch. On pyspark.streaming.kafka (Spark 2.4) the import lines would be `from pyspark.streaming import StreamingContext` and
`from pyspark.streaming.kafka import KafkaUtils`.
"""

from __future__ import annotations

import argparse

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from kstream import StreamingContext


def create_context(brokers: str, topic: str) -> StreamingContext:
    """Make the context of a first start."""
    ssc = StreamingContext(SparkConf().setAppName("DirectKafkaWordCount"), 1)
    records = KafkaUtils.createDirectStream(ssc, [topic], {"metadata.broker.list": brokers})
    words = records.map(lambda record: record[1]).flatMap(lambda line: line.split(" "))
    counts = words.map(lambda word: (word, 1)).reduceByKey(lambda a, b: a + b)
    counts.pprint()
    return ssc


def main() -> None:
    parser = argparse.ArgumentParser(description="Counts the words of a Kafka topic, every second.")
    parser.add_argument("brokers", help="such as localhost:9092, with commas between")
    parser.add_argument("topic")
    parser.add_argument("checkpoint", help="a directory, made if it is not there")
    arguments = parser.parse_args()

    ssc = StreamingContext.getOrCreate(arguments.checkpoint, lambda: create_context(arguments.brokers, arguments.topic))
    ssc.sparkContext.setLogLevel("WARN")  # or Spark's log would hide what is printed
    ssc.start()
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
