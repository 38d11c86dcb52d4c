"""KafkaUtils: how users make Kafka streams and RDDs, in both of Spark's forms.

createDirectStream(ssc, topics, kafkaParams, fromOffsets, …)              as in `pyspark.streaming.kafka` (Spark 2.4)
createDirectStream(ssc, locationStrategy, consumerStrategy, config)       as in Spark's 0-10 API for Java and Scala
createStream(ssc, zkQuorum, groupId, topics, kafkaParams, …)              Spark 2.4's, by a receiver and ZooKeeper
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.storagelevel import StorageLevel

from kstream.conf import Settings
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.offset_range import Broker, KafkaMessageAndMetadata, OffsetRange, TopicAndPartition, utf8_decoder
from kstream_kafka.planning.packing import Packing, Piece
from kstream_kafka.planning.planner import PerPartitionConfig
from kstream_kafka.planning.positions import Positions
from kstream_kafka.reader.decoding import Decoding, consumer_record, decoder
from kstream_kafka.reader.kafka_rdd import check_available
from kstream_kafka.reader.location_strategy import NO_PREFERENCE, LocationStrategy
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream
from kstream_kafka.source.stream_spec import StreamSpec
from kstream_kafka.source.subscription import ConsumerStrategy, Partitions, Topics, subscription

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from kstream.context import StreamingContext
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream_kafka.reader.kafka_rdd import KafkaRDD

Decoder = Callable[[Any], Any] | None
Handler = Callable[[Any], Any] | None


class KafkaUtils:
    """Factory of Kafka streams, RDDs and DataFrames."""

    @staticmethod
    def createDirectStream(
        ssc: StreamHost,
        topics: Sequence[str] | re.Pattern[str] | LocationStrategy,
        kafkaParams: Mapping[str, Any] | ConsumerStrategy,
        fromOffsets: Any = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler = None,
        *,
        untilOffsets: Any = None,
        downtime: str | None = None,
        onDataLoss: str | None = None,
        perPartitionConfig: PerPartitionConfig | None = None,
    ) -> DirectKafkaInputDStream:
        """A stream that reads Kafka directly, without receivers: each record in exactly one batch.

        Two forms. As in Spark 2.4: `topics` are names, a compiled pattern, or one name that starts with `^` and is a pattern;
        elements are (key, value), or what `messageHandler` makes of a KafkaMessageAndMetadata. As in the 0-10 API: (ssc,
        locationStrategy, consumerStrategy, perPartitionConfig); elements are ConsumerRecords. `value_only` as messageHandler gives
        the bare values at most speed, `consumer_record` ConsumerRecords in the first form too. A decoder of None leaves bytes.

        The RDDs of the stream are KafkaRDDs: `rdd.offsetRanges()` in `transform` or `foreachRDD` called on the stream itself.
        `kafkaParams` by the Java client's or librdkafka's names; `auto.offset.reset` is largest (latest) unless given.

        `fromOffsets` maps partitions to positions – offsets, 'earliest', '-10m' … (`kstream_kafka.planning.positions`) – and then just
        those partitions are read; or it is one position for all partitions. `untilOffsets`, in the same words, bounds the run: when every
        partition is read so far and the batches have ended, the context stops gracefully and leaves the SparkContext running.
        `downtime` is 'catch-up' or 'by-timestamp' (default: the setting spark.streaming.kstream.downtime). `onDataLoss` says what
        happens when records are gone before they were read: 'fail', 'skip' or 'report' (default: the setting
        spark.streaming.kstream.kafka.onDataLoss, which is fail). A checkpoint's offsets win over `fromOffsets`. No broker is asked
        before `ssc.start()`.
        KafkaConfigError for parameters that cannot work, TypeError for wrong types.
        """
        if isinstance(topics, LocationStrategy):
            if not isinstance(kafkaParams, ConsumerStrategy):
                raise TypeError("after a LocationStrategy comes a ConsumerStrategy: ConsumerStrategies.Subscribe(…)")
            config = fromOffsets if fromOffsets is not None else perPartitionConfig
            decoding = _decoding(kafkaParams.given, keyDecoder, valueDecoder, messageHandler)
            spec = StreamSpec(
                kafkaParams.topics, kafkaParams.params, kafkaParams.starts, decoding,
                Positions.parse(untilOffsets, "untilOffsets"), _checked(config), topics, downtime, onDataLoss,
            )  # fmt: skip
        else:
            spec = _old_form(topics, kafkaParams, fromOffsets, Decoding(keyDecoder, valueDecoder, messageHandler))
            spec = StreamSpec(
                spec.topics, spec.params, spec.starts, spec.decoding,
                Positions.parse(untilOffsets, "untilOffsets"), _checked(perPartitionConfig), NO_PREFERENCE, downtime, onDataLoss,
            )  # fmt: skip
        stream = DirectKafkaInputDStream(ssc, spec)
        stream.register_recipe()
        return stream

    @staticmethod
    def createStream(
        ssc: StreamingContext,
        zkQuorum: str,
        groupId: str,
        topics: dict[str, int],
        kafkaParams: Mapping[str, Any] | None = None,
        storageLevel: StorageLevel = StorageLevel.MEMORY_AND_DISK_2,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        *,
        reliable: bool | None = None,
    ) -> DStream:
        """A stream of (key, value) by a receiver, whose group and offsets are in ZooKeeper, as in Spark 2.4. Prefer `createDirectStream`.

        `topics` maps each topic to a number of consumer threads: the receiver's share of the partitions among all consumers of the
        group, in this job or another. `kafkaParams` must name `bootstrap.servers`, since Kafka 4 registers no brokers in ZooKeeper; the
        old consumer's parameters are understood (docs/kafka-receiver.md), the others are those of `createDirectStream`.

        `reliable` (None is True): the offsets of a block are written only after the block has been stored, so every record arrives at
        least once. False: on a timer, `auto.commit.interval.ms`, and what was read and not stored dies with the receiver. In either
        case stored blocks that no batch has read yet die with the driver, although their offsets are written, unless there is a
        write-ahead log.

        Asks nobody before `ssc.start()`. KafkaConfigError for parameters that cannot work, TypeError for wrong types,
        MissingDependencyError without kazoo.
        """
        from kstream_kafka.zookeeper.kafka_receiver import receiver_stream

        return receiver_stream(
            ssc, (zkQuorum, groupId, topics, kafkaParams), storageLevel, keyDecoder, valueDecoder, reliable=reliable is not False
        )

    @staticmethod
    def createRDD(
        sc: SparkContext,
        kafkaParams: Mapping[str, Any],
        offsetRanges: Sequence[OffsetRange],
        leaders: Mapping[TopicAndPartition, Broker] | LocationStrategy | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler = None,
        *,
        maxTasks: int = 0,
        maxRecordsPerTask: int = 0,
    ) -> KafkaRDD:
        """The records of these ranges, as in Spark 2.4: elements as `createDirectStream` makes them, partition i is range i.

        Asks the brokers at once and raises RangesNotAvailableError for a range that is not wholly there. `leaders` is taken and not
        needed: the client finds them. With a LocationStrategy in its place it is the 0-10 form: nothing is asked before the RDD is
        computed, a range past the end fails then, and elements are ConsumerRecords. Blocks on the brokers in the first form only.

        The SparkContext's settings say how long a task waits for the next record (spark.streaming.kafka.consumer.poll.ms) and whether
        `count` trusts the ranges (spark.streaming.kafka.allowNonConsecutiveOffsets), as for the RDDs of a stream.
        """
        ranges, params = _ranges(offsetRanges), KafkaParams.parse(kafkaParams)
        if isinstance(leaders, LocationStrategy):
            decoding, locations = _decoding(kafkaParams, keyDecoder, valueDecoder, messageHandler), leaders
        else:
            decoding, locations = Decoding(keyDecoder, valueDecoder, messageHandler), NO_PREFERENCE
            check_available(params, ranges)
        from kstream_kafka.reader.kafka_rdd import KafkaRDD
        from kstream_kafka.reader.location_strategy import executor_locations

        packing = Packing(maxTasks, maxRecordsPerTask)
        conf = Settings(sc.getConf()).get
        return KafkaRDD(
            sc, ranges, params.executor(), decoding,
            poll_timeout_ms=conf("spark.streaming.kafka.consumer.poll.ms"),
            exact_counts=not conf("spark.streaming.kafka.allowNonConsecutiveOffsets"),
            packing=packing, locations=executor_locations(sc, locations, ranges, packing, {}),
        )  # fmt: skip

    @staticmethod
    def createDataFrame(
        spark: SparkSession,
        kafkaParams: Mapping[str, Any],
        offsetRanges: Sequence[OffsetRange],
        includeHeaders: bool = True,
        *,
        maxTasks: int = 0,
        maxRecordsPerTask: int = 0,
    ) -> DataFrame:
        """The records of these ranges with the columns of Spark's Kafka source; Arrow batches built in the workers.

        key and value are binary, `timestamp` is a timestamp, `headers` an array of (key, value) or null. Read when an action needs
        it, each time anew; a range that is not there fails then. Does not block.
        """
        from kstream_kafka.reader.data_frame import kafka_data_frame
        from kstream_kafka.reader.range_task import RangeReads

        params, ranges = KafkaParams.parse(kafkaParams), _ranges(offsetRanges)
        packing = Packing(maxTasks, maxRecordsPerTask)
        reads = RangeReads.of([Piece(r) for r in ranges], params.executor(), POLL_MS, packing)
        return kafka_data_frame(spark, reads, includeHeaders)


POLL_MS = 120_000
"""How long a task of a DataFrame made outside of a stream waits for the next record: Spark's default."""


def _old_form(topics: Any, kafkaParams: Any, fromOffsets: Any, decoding: Decoding) -> StreamSpec:
    """Spark 2.4's: with offsets by partition just those partitions are read, and they must be of exactly the topics named."""
    subscribed, starts = subscription(topics), Positions.parse(fromOffsets, "fromOffsets")
    if starts.each:
        given = {topic for topic, _ in starts.each}
        fits = given == set(subscribed.names) if isinstance(subscribed, Topics) else all(map(subscribed.wants, given))
        if not fits:
            raise KafkaConfigError("fromOffsets", f"has offsets of {sorted(given)} where the topics are {subscribed.to_json()}")
        subscribed = Partitions(frozenset(starts.each))
    return StreamSpec(subscribed, KafkaParams.parse(kafkaParams), starts, decoding)


def _decoding(given: Mapping[str, Any], key: Decoder, value: Decoder, handler: Handler) -> Decoding:
    """The 0-10 form's: ConsumerRecords, decoded as the parameters' deserialisers say unless the user gives decoders."""
    return Decoding(decoder(given, "key.deserializer", key), decoder(given, "value.deserializer", value), handler or consumer_record)


def _checked(config: Any) -> PerPartitionConfig | None:
    if config is not None and not (hasattr(config, "maxRatePerPartition") and hasattr(config, "minRatePerPartition")):
        raise TypeError("perPartitionConfig should be a PerPartitionConfig")
    return config


def _ranges(given: Sequence[OffsetRange]) -> list[OffsetRange]:
    if not isinstance(given, list | tuple) or not all(isinstance(r, OffsetRange) for r in given):  # pyright: ignore
        raise TypeError("offsetRanges should be list of OffsetRange")
    return list(given)


__all__ = ["KafkaMessageAndMetadata", "KafkaUtils"]
