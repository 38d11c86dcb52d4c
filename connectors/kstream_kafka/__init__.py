"""Kafka for kstream: what `pyspark.streaming.kafka` of Spark 2.4 and the JVM's kafka-0-10 offered, without a jar.

One idea: the driver plans offset ranges, the workers read exactly those, and nobody joins a consumer group. Rooms, in their order:

    errors, offset_range, ports            values and what is asked of a client
    positions, params, subscription, …     pure: what users say – where from and where to, which topics, which dialect
    findings, plan_data                    pure: what reads met besides records, what is stored of a batch
    offsets, as_of, packing                pure: the planner, what there was at a time, ranges into tasks
    starts, bounds, cursors, downtime      on the driver, by a client: from what users say to offsets
    lag, moved_offsets                     for commands: where logs end, other offsets for a stream that does not run
    reader, reading, decoding, records     one range → chunks of messages → elements; losses raised or noted
    client, range_consumer, librdkafka     the imports of confluent_kafka, and who maps its errors
    consumer_cache, range_task, arrow      in a Spark task: borrow a consumer, read, give it back
    stream_spec, direct_input_dstream      the stream: survey the logs, plan, advance when the plan is durable
    kafka_rdd, data_frame, utils           what users see
    simulation                             a Kafka made of lists, for kstream.testing.simulator
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream.dstream.recipe import Recipe
    from kstream.testing.simulator import Source
    from kstream_kafka.consumer_strategy import ConsumerStrategies, ConsumerStrategy
    from kstream_kafka.decoding import consumer_record, value_only
    from kstream_kafka.direct_input_dstream import DirectKafkaInputDStream
    from kstream_kafka.kafka_rdd import KafkaRDD
    from kstream_kafka.lag import log_ends
    from kstream_kafka.location_strategy import LocationStrategies, LocationStrategy
    from kstream_kafka.moved_offsets import reset_offsets, rewound_offsets, standing_still
    from kstream_kafka.offset_range import (
        Broker,
        CanCommitOffsets,
        HasOffsetRanges,
        KafkaMessageAndMetadata,
        OffsetRange,
        TopicAndPartition,
        TopicPartition,
        utf8_decoder,
    )
    from kstream_kafka.per_partition_config import PerPartitionConfig
    from kstream_kafka.records import ConsumerRecord
    from kstream_kafka.utils import KafkaUtils

__all__ = [
    "Broker",
    "CanCommitOffsets",
    "ConsumerRecord",
    "ConsumerStrategies",
    "ConsumerStrategy",
    "DirectKafkaInputDStream",
    "HasOffsetRanges",
    "KafkaMessageAndMetadata",
    "KafkaRDD",
    "KafkaUtils",
    "LocationStrategies",
    "LocationStrategy",
    "OffsetRange",
    "PerPartitionConfig",
    "TopicAndPartition",
    "TopicPartition",
    "consumer_record",
    "log_ends",
    "reset_offsets",
    "restore_input",
    "rewound_offsets",
    "standing_still",
    "utf8_decoder",
    "value_only",
]

# Imported on first use: a worker that reads, a broker and a feed need no part of the driver's side.
_LAZY = {
    "Broker": "offset_range",
    "CanCommitOffsets": "offset_range",
    "ConsumerRecord": "records",
    "ConsumerStrategies": "consumer_strategy",
    "ConsumerStrategy": "consumer_strategy",
    "DirectKafkaInputDStream": "direct_input_dstream",
    "HasOffsetRanges": "offset_range",
    "KafkaMessageAndMetadata": "offset_range",
    "KafkaRDD": "kafka_rdd",
    "KafkaUtils": "utils",
    "LocationStrategies": "location_strategy",
    "LocationStrategy": "location_strategy",
    "OffsetRange": "offset_range",
    "PerPartitionConfig": "per_partition_config",
    "TopicAndPartition": "offset_range",
    "TopicPartition": "offset_range",
    "consumer_record": "decoding",
    "log_ends": "lag",
    "reset_offsets": "moved_offsets",
    "rewound_offsets": "moved_offsets",
    "standing_still": "moved_offsets",
    "utf8_decoder": "offset_range",
    "value_only": "decoding",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'kstream_kafka' has no attribute {name!r}")
    return getattr(importlib.import_module(f"kstream_kafka.{_LAZY[name]}"), name)


def simulated_source() -> Callable[..., Source]:
    """What plays Kafka in `kstream.testing.simulator`; found through `connectors.load("kafka")`."""
    from kstream_kafka.simulation import KafkaSource

    return KafkaSource


def restore_input(ssc: StreamHost, recipe: Recipe) -> DStream:
    """Makes a stored input stream again; called by the core on restart, through `connectors.load("kafka")`."""
    from kstream_kafka.direct_input_dstream import DirectKafkaInputDStream

    stream = DirectKafkaInputDStream.from_recipe(ssc, recipe)
    stream.register_recipe()
    return stream
