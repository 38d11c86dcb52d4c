"""A job that copies a topic without batches, as a process that a test kills.

python -m integration.continuous_job BOOTSTRAP SOURCE TARGET CHECKPOINT DELIVERY
"""

from __future__ import annotations

import base64
import sys

from kstream_kafka import ConsumerStrategies
from pyspark import SparkConf

from kstream import StreamingContext


def main() -> None:
    bootstrap, source, target, checkpoint, delivery = sys.argv[1:]
    conf = SparkConf().setMaster("local[2]").setAppName("continuous").set("spark.ui.enabled", "false")
    conf.set("spark.driver.host", "127.0.0.1").set("spark.streaming.stopGracefullyOnShutdown", "true")
    ssc = StreamingContext(conf, 1)
    ssc.checkpoint(checkpoint)
    kafka = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest"}
    records = ssc.continuousStream(ConsumerStrategies.Subscribe([source], kafka))
    records.map(lambda record: (record.key, base64.b64encode(record.value))).saveToKafka(target, kafka, delivery=delivery)
    ssc.start()
    print("started", flush=True)
    ssc.awaitTermination()


if __name__ == "__main__":
    main()
