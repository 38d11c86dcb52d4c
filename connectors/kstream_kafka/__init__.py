"""Kafka for kstream: what `pyspark.streaming.kafka` of Spark 2.4 offered, without a jar.

One idea: the driver plans offset ranges, the workers read exactly those, and nobody joins a consumer group. Rooms, in their order:

    errors, offset_range, ports        values and what is asked of a client
    offsets, params, subscription      pure: the planner, the two dialects of parameters, which topics
    reader, decoding                   one range → chunks of records → elements
    client                             the only import of confluent_kafka
    consumer_cache, range_task         in a Spark task: borrow a consumer, read, give it back
    cursors, direct_input_dstream      on the driver: survey the logs, plan, advance when the plan is durable
    kafka_rdd, utils                   what users see
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream.dstream.recipe import Recipe
    from kstream_kafka.decoding import value_only
    from kstream_kafka.direct_input_dstream import DirectKafkaInputDStream
    from kstream_kafka.kafka_rdd import KafkaRDD
    from kstream_kafka.offset_range import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder
    from kstream_kafka.utils import KafkaUtils

__all__ = [
    "Broker",
    "DirectKafkaInputDStream",
    "KafkaMessageAndMetadata",
    "KafkaRDD",
    "KafkaUtils",
    "OffsetRange",
    "TopicAndPartition",
    "restore_input",
    "utf8_decoder",
    "value_only",
]

# Imported on first use: a worker that reads, a broker and a feed need no part of the driver's side.
_LAZY = {
    "Broker": "offset_range",
    "DirectKafkaInputDStream": "direct_input_dstream",
    "KafkaMessageAndMetadata": "offset_range",
    "KafkaRDD": "kafka_rdd",
    "KafkaUtils": "utils",
    "OffsetRange": "offset_range",
    "TopicAndPartition": "offset_range",
    "utf8_decoder": "offset_range",
    "value_only": "decoding",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kstream_kafka' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kstream_kafka.{_LAZY[name]}"), name)


def restore_input(ssc: StreamHost, recipe: Recipe) -> DStream:
    """Makes a stored input stream again; called by the core on restart, through `connectors.load("kafka")`."""
    from kstream_kafka.direct_input_dstream import DirectKafkaInputDStream

    stream = DirectKafkaInputDStream.from_recipe(ssc, recipe)
    stream.register_recipe()
    return stream
