"""The job of docker-compose.yml: counts the orders of each region, and writes the counts of each batch to Kafka exactly once.

    kstream run /opt/jobs/orders.py:setup --checkpoint /checkpoints/orders --master spark://spark-master:7077

Each record of the topic `counts` has a region as its key and a number as its value. So their sum is the number of orders.
"""

from __future__ import annotations

import json
import os
from operator import add

from kstream_kafka import KafkaUtils
from pyspark import SparkConf

from kstream import StreamingContext


def setup() -> StreamingContext:
    conf = SparkConf().setAppName("orders")
    conf.set("spark.streaming.stopGracefullyOnShutdown", "true")  # SIGTERM of `docker stop` ends the batches that have begun
    conf.set("spark.streaming.kstream.ui.enabled", "true")
    conf.set("spark.streaming.kstream.ui.host", "0.0.0.0")  # so a request needs the token that the log shows
    conf.set("spark.streaming.kstream.ui.port", os.environ.get("PAGE_PORT", "4050"))
    conf.set("spark.streaming.kstream.metrics.host", "0.0.0.0")
    conf.set("spark.streaming.kstream.metrics.port", "9404")
    conf.set("spark.ui.port", os.environ.get("SPARK_UI_PORT", "4040"))
    ssc = StreamingContext(conf, 1)
    kafka = {"bootstrap.servers": os.environ["KAFKA_BROKERS"]}
    orders = KafkaUtils.createDirectStream(ssc, ["orders"], kafka, fromOffsets="earliest")
    counts = orders.map(lambda record: (json.loads(record[1])["region"], 1)).reduceByKey(add, 2)
    counts.saveToKafka("counts", kafka, key=lambda row: row[0], value=lambda row: str(row[1]), name="counts")
    return ssc
