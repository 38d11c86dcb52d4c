"""The jobs of nights. By the direct stream each batch writes its records and the running totals by key into a database, keyed by its
batch time. By a receiver it also writes its records keyed by their ids, which may come again."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Sequence
from typing import Any

from kstream_kafka import KafkaUtils
from pyspark import RDD, SparkConf

from kstream import BatchTime, StreamingContext

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.default.parallelism": "1",
    "spark.driver.memory": "512m",
    "spark.streaming.stopGracefullyOnShutdown": "true",
    "spark.streaming.gracefulStopTimeout": "120s",
    "spark.streaming.kstream.batch.retries": "20",
    "spark.streaming.kstream.failedBatch": "hold",
}
RECEIVER_SETTINGS = {
    "spark.streaming.receiver.writeAheadLog.enable": "true",
    "spark.streaming.blockInterval": "1s",
}
"""A batch has a task for each block. The JVM of a killed driver logs a stack trace for each that it runs, so they are few."""


def write(table: str, time: BatchTime, rows: Sequence[Sequence[Any]]) -> None:
    data = json.dumps({"batch": time.milliseconds, "rows": rows}).encode()
    urllib.request.urlopen(urllib.request.Request(f"{os.environ['NIGHT_DATABASE']}/{table}", data), timeout=5).close()


def write_records(time: BatchTime, rdd: RDD[Any]) -> None:
    write("records", time, rdd.map(lambda record: [int(record[1])]).collect())


def write_totals(time: BatchTime, rdd: RDD[Any]) -> None:
    write("totals", time, rdd.map(list).collect())


def write_orders(time: BatchTime, rdd: RDD[Any]) -> None:
    write("orders", time, rdd.map(lambda record: [int(record[1])]).collect())


def context(**settings: str) -> StreamingContext:
    conf = SparkConf().setMaster("local[2]").setAppName("night")
    for key, value in {**SETTINGS, **settings, **json.loads(os.environ["NIGHT_SETTINGS"])}.items():
        conf.set(key, value)
    return StreamingContext(conf, float(os.environ["NIGHT_INTERVAL"]))


def params() -> dict[str, Any]:
    return {"bootstrap.servers": os.environ["NIGHT_BROKERS"], "auto.offset.reset": "smallest", "default.api.timeout.ms": 10_000}


def setup() -> StreamingContext:
    ssc = context()
    orders = KafkaUtils.createDirectStream(ssc, [os.environ["NIGHT_TOPIC"]], params())
    orders.foreachRDD(write_records)
    totals = orders.map(lambda record: (record[0], 1)).updateStateByKey(lambda new, total: sum(new) + (total or 0), 1)
    totals.foreachRDD(write_totals)
    return ssc


def setup_receiver() -> StreamingContext:
    ssc = context(**RECEIVER_SETTINGS)
    quorum, group = os.environ["NIGHT_ZOOKEEPER"], os.environ["NIGHT_GROUP"]
    orders = KafkaUtils.createStream(ssc, quorum, group, {os.environ["NIGHT_TOPIC"]: 1}, params())
    orders.foreachRDD(write_records)
    orders.foreachRDD(write_orders)
    return ssc
