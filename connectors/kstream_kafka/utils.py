"""KafkaUtils: how users make Kafka streams, with the signatures of `pyspark.streaming.kafka` (Spark 2.4)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstream_kafka.decoding import Decoding
from kstream_kafka.direct_input_dstream import DirectKafkaInputDStream, as_partition
from kstream_kafka.offset_range import KafkaMessageAndMetadata, TopicAndPartition, utf8_decoder
from kstream_kafka.params import KafkaParams
from kstream_kafka.subscription import subscription

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost


class KafkaUtils:
    """Factory of Kafka streams."""

    @staticmethod
    def createDirectStream(
        ssc: StreamHost,
        topics: Sequence[str] | re.Pattern[str],
        kafkaParams: Mapping[str, Any],
        fromOffsets: Mapping[TopicAndPartition, int] | None = None,
        keyDecoder: Callable[[Any], Any] | None = utf8_decoder,
        valueDecoder: Callable[[Any], Any] | None = utf8_decoder,
        messageHandler: Callable[[KafkaMessageAndMetadata], Any] | None = None,
    ) -> DStream:
        """A stream that reads Kafka directly, without receivers: each record in exactly one batch.

        Elements are (key, value), or what `messageHandler` makes of a KafkaMessageAndMetadata; `value_only` gives the bare values
        at most speed. A decoder of None leaves bytes. The RDDs of the stream are KafkaRDDs: `rdd.offsetRanges()` in `transform` or
        `foreachRDD` called on the stream itself.

        `topics`: names, a compiled pattern, or one name that starts with `^` and is a pattern. `kafkaParams` by the Java client's or
        librdkafka's names; `auto.offset.reset` is largest (latest) unless given. With `fromOffsets` just those partitions are read,
        each from its offset on. No broker is asked before `ssc.start()`.
        KafkaConfigError for parameters that cannot work, TypeError for wrong types.
        """
        given = {as_partition(key): int(at) for key, at in (fromOffsets or {}).items()}
        decoding = Decoding(keyDecoder, valueDecoder, messageHandler)
        stream = DirectKafkaInputDStream(ssc, subscription(topics), KafkaParams.parse(kafkaParams), given, decoding)
        stream.register_recipe()
        return stream
