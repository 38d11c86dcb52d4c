"""Kafka for kstream: what `pyspark.streaming.kafka` of Spark 2.4 and the JVM's kafka-0-10 offered, without a jar.

The driver plans offset ranges, the workers read exactly those ranges, and the direct stream joins no consumer group. The rooms, in order:

    settings     the settings of this package
    errors       the errors of this package
    client/      the clients of the brokers, parameters, security, redaction, connection errors and their diagnosis
    schemas/     Avro and Protobuf values, whose schemas are in a schema registry
    planning/    pure: the planner, the plan of a batch, the packing of ranges into tasks
    reader/      KafkaRDD, the task, the consumer, decoding, Arrow
    sink/        the Kafka sink: transactions with receipts
    source/      the direct stream: subscription, next offsets, starting and stopping offsets, downtime, commits
    structured/  the data source `kstream` of Structured Streaming
    utils        KafkaUtils, the public entry point
    tools/       for commands: the ranges of plans, the ends of logs, other offsets
    zookeeper/   KafkaUtils.createStream: receivers that keep their offsets in ZooKeeper
    demo/        `kstream demo`

The core calls four hooks of this module: `restore_input`, `connector_tools`, `connector_settings` (see `kstream.connectors`) and
`kafka_output`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kstream.lazy_names import lazy_names

if TYPE_CHECKING:
    from kstream.conf import SettingsTable
    from kstream.connectors import ConnectorTools
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream.dstream.recipe import Recipe
    from kstream.offsets.offset_range import HasOffsetRanges, OffsetRange, TopicAndPartition, TopicPartition
    from kstream_kafka.client.schema_registry import SchemaRegistry
    from kstream_kafka.planning.planner import PerPartitionConfig
    from kstream_kafka.planning.subscription import ConsumerStrategies, ConsumerStrategy
    from kstream_kafka.reader.decoding import ConsumerRecord, KafkaMessageAndMetadata, consumer_record, utf8_decoder, value_only
    from kstream_kafka.reader.json_deserializer import JsonDeserializer
    from kstream_kafka.reader.kafka_rdd import KafkaRDD
    from kstream_kafka.reader.location_strategy import LocationStrategies, LocationStrategy
    from kstream_kafka.schemas.avro import AvroDeserializer, AvroSerializer
    from kstream_kafka.schemas.protobuf import ProtobufDeserializer, ProtobufSerializer
    from kstream_kafka.sink.producer_record import ProducerRecord
    from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream
    from kstream_kafka.source.offset_committer import CanCommitOffsets
    from kstream_kafka.utils import Broker, KafkaUtils

__all__ = [
    "AvroDeserializer",
    "AvroSerializer",
    "Broker",
    "CanCommitOffsets",
    "ConsumerRecord",
    "ConsumerStrategies",
    "ConsumerStrategy",
    "DirectKafkaInputDStream",
    "HasOffsetRanges",
    "JsonDeserializer",
    "KafkaMessageAndMetadata",
    "KafkaRDD",
    "KafkaUtils",
    "LocationStrategies",
    "LocationStrategy",
    "OffsetRange",
    "PerPartitionConfig",
    "ProducerRecord",
    "ProtobufDeserializer",
    "ProtobufSerializer",
    "SchemaRegistry",
    "TopicAndPartition",
    "TopicPartition",
    "consumer_record",
    "utf8_decoder",
    "value_only",
]

# A name is imported at its first use, because workers, brokers and feeds need no part of the driver's side.
_LAZY = {
    "AvroDeserializer": "kstream_kafka.schemas.avro",
    "AvroSerializer": "kstream_kafka.schemas.avro",
    "Broker": "kstream_kafka.utils",
    "CanCommitOffsets": "kstream_kafka.source.offset_committer",
    "ConsumerRecord": "kstream_kafka.reader.decoding",
    "ConsumerStrategies": "kstream_kafka.planning.subscription",
    "ConsumerStrategy": "kstream_kafka.planning.subscription",
    "DirectKafkaInputDStream": "kstream_kafka.source.direct_input_dstream",
    "HasOffsetRanges": "kstream.offsets.offset_range",
    "JsonDeserializer": "kstream_kafka.reader.json_deserializer",
    "KafkaMessageAndMetadata": "kstream_kafka.reader.decoding",
    "KafkaRDD": "kstream_kafka.reader.kafka_rdd",
    "KafkaUtils": "kstream_kafka.utils",
    "LocationStrategies": "kstream_kafka.reader.location_strategy",
    "LocationStrategy": "kstream_kafka.reader.location_strategy",
    "OffsetRange": "kstream.offsets.offset_range",
    "PerPartitionConfig": "kstream_kafka.planning.planner",
    "ProducerRecord": "kstream_kafka.sink.producer_record",
    "ProtobufDeserializer": "kstream_kafka.schemas.protobuf",
    "ProtobufSerializer": "kstream_kafka.schemas.protobuf",
    "SchemaRegistry": "kstream_kafka.client.schema_registry",
    "TopicAndPartition": "kstream.offsets.offset_range",
    "TopicPartition": "kstream.offsets.offset_range",
    "consumer_record": "kstream_kafka.reader.decoding",
    "utf8_decoder": "kstream_kafka.reader.decoding",
    "value_only": "kstream_kafka.reader.decoding",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return list(__all__)


def restore_input(ssc: StreamHost, recipe: Recipe) -> DStream[Any]:
    """Create a stored input stream again from its recipe, and register it with the graph. A hook of the core, called at a restart.

    Args:
        ssc: the StreamingContext.
        recipe: the stored form of the stream.

    Returns:
        The stream.

    Raises:
        KafkaConfigError: a stored parameter cannot work.
    """
    from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream

    stream = DirectKafkaInputDStream.from_recipe(ssc, recipe)
    stream.register_recipe()
    return stream


def kafka_output(*given: Any) -> Any:
    """Return the parts of `DStream.saveToKafka`. A hook of the core."""
    from kstream_kafka.sink.kafka_output import kafka_output as made

    return made(*given)


def continuous_source(strategy: Any) -> Any:
    """Return the log of `StreamingContext.continuousStream`. A hook of the core."""
    from kstream_kafka.continuous.source import KafkaContinuousSource

    return KafkaContinuousSource(strategy)


def continuous_output(*given: Any) -> Any:
    """Return the parts of `ContinuousStream.saveToKafka`. A hook of the core."""
    from kstream_kafka.continuous.source import continuous_output as made

    return made(*given)


def connector_tools() -> ConnectorTools:
    """Return the tools of this connector for commands. A hook of the core."""
    from kstream_kafka.tools.connector_tools import KafkaTools

    return KafkaTools()


def connector_settings() -> SettingsTable:
    """Return the settings of this connector. A hook of the core."""
    from kstream_kafka.settings import KAFKA_SETTINGS

    return KAFKA_SETTINGS
