"""KafkaUtils: Kafka streams, RDDs and DataFrames, in both of Spark's forms.

createDirectStream(ssc, topics, kafkaParams, fromOffsets, …)              as in `pyspark.streaming.kafka` (Spark 2.4)
createDirectStream(ssc, locationStrategy, consumerStrategy, config)       as in Spark's 0-10 API for Java and Scala
createStream(ssc, zkQuorum, groupId, topics, kafkaParams, …)              as in Spark 2.4, by a receiver and ZooKeeper
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, overload

from pyspark.storagelevel import StorageLevel

from kstream.conf import Settings
from kstream.dstream.arguments import check_body_runs
from kstream.offsets.errors_policy import OnRecordError
from kstream.offsets.offset_range import OffsetRange, TopicAndPartition
from kstream.offsets.positions import Positions, PositionsLike
from kstream.public_call import public_call, refused
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.packing import Packing, RangeSplit
from kstream_kafka.planning.planner import PerPartitionConfig
from kstream_kafka.planning.subscription import ConsumerStrategy, Partitions, Subscribed, Topics, subscription
from kstream_kafka.reader.decoding import Decoding, KafkaMessageAndMetadata, consumer_record, decoder_of, utf8_decoder
from kstream_kafka.reader.location_strategy import NO_PREFERENCE, LocationStrategy
from kstream_kafka.settings import ALLOW_NON_CONSECUTIVE_OFFSETS, POLL_TIMEOUT
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream
from kstream_kafka.source.stream_spec import StreamSpec

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession

    from kstream.context import StreamingContext
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream_kafka.reader.kafka_rdd import KafkaRDD

Decoder: TypeAlias = "Callable[[Any], Any] | None"
Handler: TypeAlias = "Callable[[Any], Any] | None"

POLL_MS = 120_000
"""Milliseconds that a task of a DataFrame outside of a stream waits for the next record. Spark's default."""


@dataclass(frozen=True, order=True, slots=True)
class Broker:
    """Host and port of a Kafka broker.

    Attributes:
        host: the host name.
        port: the port.
    """

    host: str
    port: int


class KafkaUtils:
    """Factory of Kafka streams, RDDs and DataFrames."""

    @overload
    @staticmethod
    def createDirectStream(
        ssc: StreamHost,
        topics: Sequence[str] | re.Pattern[str],
        kafkaParams: Mapping[str, Any],
        fromOffsets: PositionsLike = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler = None,
        *,
        untilOffsets: PositionsLike = None,
        downtime: str | None = None,
        onDataLoss: str | None = None,
        onRecordError: str | None = None,
        deadLetterTopic: str | None = None,
        maxErrorRatio: float | None = None,
        perPartitionConfig: PerPartitionConfig | None = None,
    ) -> DirectKafkaInputDStream: ...

    @overload
    @staticmethod
    def createDirectStream(
        ssc: StreamHost,
        topics: LocationStrategy,
        kafkaParams: ConsumerStrategy,
        fromOffsets: PerPartitionConfig | None = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler = None,
        *,
        untilOffsets: PositionsLike = None,
        downtime: str | None = None,
        onDataLoss: str | None = None,
        onRecordError: str | None = None,
        deadLetterTopic: str | None = None,
        maxErrorRatio: float | None = None,
        perPartitionConfig: PerPartitionConfig | None = None,
    ) -> DirectKafkaInputDStream: ...

    @staticmethod
    @public_call
    def createDirectStream(
        ssc: StreamHost,
        topics: Sequence[str] | re.Pattern[str] | LocationStrategy,
        kafkaParams: Mapping[str, Any] | ConsumerStrategy,
        fromOffsets: Any = None,
        keyDecoder: Decoder = utf8_decoder,
        valueDecoder: Decoder = utf8_decoder,
        messageHandler: Handler = None,
        *,
        untilOffsets: PositionsLike = None,
        downtime: str | None = None,
        onDataLoss: str | None = None,
        onRecordError: str | None = None,
        deadLetterTopic: str | None = None,
        maxErrorRatio: float | None = None,
        perPartitionConfig: PerPartitionConfig | None = None,
    ) -> DirectKafkaInputDStream:
        """Create a stream that reads Kafka directly, without receivers. Each record is in exactly one batch.

        The first three positional arguments have two forms: Spark 2.4's and that of the 0-10 API. No request is sent before
        `ssc.start()`. The RDDs of the stream are KafkaRDDs: call `rdd.offsetRanges()` in `transform` or `foreachRDD` of the stream itself.

        Args:
            ssc: the StreamingContext.
            topics: Spark 2.4's form: names, a compiled pattern, or a list of one pattern as text, which starts with `^`.
                0-10 form: a strategy of `LocationStrategies`.
            kafkaParams: Spark 2.4's form: parameters by the Java client's or librdkafka's names. `bootstrap.servers` is required;
                `auto.offset.reset` is largest (latest) by default. 0-10 form: a strategy of `ConsumerStrategies`.
            fromOffsets: Spark 2.4's form: where to start. With a mapping partition → position, only these partitions are read. One
                position applies to all partitions. A position is an offset, 'earliest', 'latest', 'committed', '-1000' (records before
                the end), '-10m' (time ago), a datetime or ISO time. The offsets of a checkpoint win. 0-10 form: a PerPartitionConfig.
            keyDecoder: bytes → key; None leaves bytes.
            valueDecoder: bytes → value; None leaves bytes.
            messageHandler: KafkaMessageAndMetadata → element. With `value_only` the elements are the values, which is fastest. With
                `consumer_record` they are ConsumerRecords. By default elements are (key, value) in Spark 2.4's form, and ConsumerRecords
                in the 0-10 form.
            untilOffsets: where to stop, written as `fromOffsets`. When every partition is read up to there and the batches have ended, the
                context stops gracefully and leaves the SparkContext running.
            downtime: the policy for batches missed while the driver was down: 'catch-up' or 'by-timestamp'. Default: the setting
                spark.streaming.kstream.downtime.
            onDataLoss: the policy for records that are gone before they were read: 'fail', 'skip' or 'report'. Default: the setting
                spark.streaming.kstream.kafka.onDataLoss, which is fail.
            onRecordError: the policy for records for which a decoder, or an operator on records, fails: 'fail', 'skip' or 'dead-letter'.
                Default: the setting spark.streaming.kstream.onRecordError, which is fail. docs/dead-letters.md tells what it covers.
            deadLetterTopic: the topic that gets the records under 'dead-letter'. It must exist.
            maxErrorRatio: the largest part of a batch's records that may fail; above it the batch fails. Default: 0.1, by the setting.
            perPartitionConfig: rate limits for each partition.

        Returns:
            The stream.

        Raises:
            KafkaConfigError: a parameter cannot work.
            TypeError: an argument is of the wrong type.

        Example:
            params = {"bootstrap.servers": "k:9092", "auto.offset.reset": "earliest"}
            orders = KafkaUtils.createDirectStream(ssc, ["orders"], params)
            orders.map(lambda record: record[1]).pprint()

            records = KafkaUtils.createDirectStream(
                ssc, LocationStrategies.PreferConsistent, ConsumerStrategies.Subscribe(["orders"], params)
            )
            records.map(lambda record: (record.key, record.offset)).pprint()
        """
        _check_decoders("createDirectStream", keyDecoder, valueDecoder, messageHandler)
        if isinstance(topics, LocationStrategy):
            if not isinstance(kafkaParams, ConsumerStrategy):
                raise refused(TypeError("after a LocationStrategy comes a ConsumerStrategy: ConsumerStrategies.Subscribe(…)"))
            config = fromOffsets if fromOffsets is not None else perPartitionConfig
            subscribed, params, starts = kafkaParams.topics, kafkaParams.params, kafkaParams.starting_offsets
            decoding = _decoding(kafkaParams.given, keyDecoder, valueDecoder, messageHandler)
            locations = topics
        else:
            config = perPartitionConfig
            subscribed, params, starts = _spark24_form(topics, kafkaParams, fromOffsets)
            decoding = _spark24_decoding(kafkaParams, keyDecoder, valueDecoder, messageHandler)
            locations = NO_PREFERENCE
        spec = StreamSpec(
            topics=subscribed,
            params=params,
            starting_offsets=starts,
            decoding=decoding,
            stopping_offsets=Positions.parse(untilOffsets, "untilOffsets"),
            rates=_checked(config),
            locations=locations,
            downtime=downtime,
            on_data_loss=onDataLoss,
            on_record_error=OnRecordError(onRecordError, deadLetterTopic, maxErrorRatio),
        )
        stream = DirectKafkaInputDStream(ssc, spec)
        stream.register_recipe()
        return stream

    @staticmethod
    @public_call
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
    ) -> DStream[Any]:
        """Create a stream of (key, value) by a receiver, with group and offsets in ZooKeeper, as in Spark 2.4. Prefer `createDirectStream`.

        No request is sent before `ssc.start()`. Without a write-ahead log, stored blocks that no batch has read yet are lost if the driver
        dies, although their offsets are written. This holds with and without `reliable`.

        Args:
            ssc: the StreamingContext.
            zkQuorum: ZooKeeper's servers, `host:port,host:port/chroot`.
            groupId: the consumer group.
            topics: topic → number of consumer threads: the receiver's share of the partitions among all consumers of the group, in this
                job or another.
            kafkaParams: the Kafka parameters. `bootstrap.servers` is required, because Kafka 4 registers no brokers in ZooKeeper.
                docs/kafka-receiver.md lists the old consumer's parameters. The others are those of `createDirectStream`.
            storageLevel: the storage level of received blocks.
            keyDecoder: bytes → key; None leaves bytes.
            valueDecoder: bytes → value; None leaves bytes.
            reliable: None and True: the offsets of a block are written after the block was stored, so every record arrives at least once.
                False: offsets are written every `auto.commit.interval.ms`. If the receiver dies, records that it has read and not stored
                are lost.

        Returns:
            The stream.

        Raises:
            KafkaConfigError: a parameter cannot work.
            TypeError: an argument is of the wrong type.
            MissingDependencyError: kazoo is missing.

        Example:
            KafkaUtils.createStream(ssc, "z:2181", "shop", {"orders": 1}, {"bootstrap.servers": "k:9092"}).pprint()
        """
        from kstream_kafka.zookeeper.kafka_receiver import receiver_stream

        _check_decoders("createStream", keyDecoder, valueDecoder, None)
        if isinstance(kafkaParams, Mapping):
            _spark24_decoding(kafkaParams, keyDecoder, valueDecoder, None)
        return receiver_stream(
            ssc, (zkQuorum, groupId, topics, kafkaParams), storageLevel, keyDecoder, valueDecoder, reliable=reliable is not False
        )

    @staticmethod
    @public_call
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
        """Create an RDD of the records of offset ranges, as in Spark 2.4 or in the 0-10 API.

        Spark 2.4's form asks the brokers at once and blocks. The 0-10 form sends no request before the RDD is computed; a range after the
        end of its log fails then. As for the RDDs of a stream, these settings of the SparkContext apply:
        spark.streaming.kafka.consumer.poll.ms and spark.streaming.kafka.allowNonConsecutiveOffsets.

        Args:
            sc: the SparkContext.
            kafkaParams: as for `createDirectStream`.
            offsetRanges: the ranges. Partition i of the RDD holds the records of range i, unless packed.
            leaders: Spark 2.4's form: ignored, because the client finds the leaders. 0-10 form: a LocationStrategy; then the elements are
                ConsumerRecords unless there is a messageHandler.
            keyDecoder: bytes → key; None leaves bytes.
            valueDecoder: bytes → value; None leaves bytes.
            messageHandler: as for `createDirectStream`.
            maxTasks: most tasks; 0 is no limit. Small ranges then share a task.
            maxRecordsPerTask: longer ranges are split; 0 is no limit.

        Returns:
            The RDD.

        Raises:
            RangesNotAvailableError: Spark 2.4's form: a range lies partly outside of its log.
            BrokerUnreachableError: Spark 2.4's form: no broker answered.
            UnknownTopicError: Spark 2.4's form: a topic does not exist.
            KafkaConfigError: a parameter cannot work.
            TypeError: `offsetRanges` is no list of OffsetRange.

        Example:
            KafkaUtils.createRDD(sc, {"bootstrap.servers": "k:9092"}, [OffsetRange("orders", 0, 100, 200)]).collect()
        """
        from kstream_kafka.reader.kafka_rdd import KafkaRDD, check_available
        from kstream_kafka.reader.location_strategy import executor_locations
        from kstream_kafka.reader.range_reads import RangeReads

        _check_decoders("createRDD", keyDecoder, valueDecoder, messageHandler)
        ranges, params = _ranges(offsetRanges), KafkaParams.parse(kafkaParams)
        if isinstance(leaders, LocationStrategy):
            decoding, locations = _decoding(kafkaParams, keyDecoder, valueDecoder, messageHandler), leaders
        else:
            decoding, locations = _spark24_decoding(kafkaParams, keyDecoder, valueDecoder, messageHandler), NO_PREFERENCE
            check_available(params, ranges)
        packing = Packing(maxTasks, maxRecordsPerTask)
        settings = Settings(sc.getConf())
        return KafkaRDD(
            sc,
            ranges,
            RangeReads.of([RangeSplit(r) for r in ranges], params.executor(), settings[POLL_TIMEOUT], packing),
            decoding,
            exact_counts=not settings[ALLOW_NON_CONSECUTIVE_OFFSETS],
            locations=executor_locations(sc, locations, ranges, packing, {}),
        )

    @staticmethod
    @public_call
    def createDataFrame(
        spark: SparkSession,
        kafkaParams: Mapping[str, Any],
        offsetRanges: Sequence[OffsetRange],
        includeHeaders: bool = True,
        *,
        columns: Sequence[str] | None = None,
        maxTasks: int = 0,
        maxRecordsPerTask: int = 0,
    ) -> DataFrame:
        """Create a DataFrame of the records of offset ranges, with the columns of Spark's Kafka source. Does not block.

        `key` and `value` are binary, `timestamp` is a timestamp, `headers` is an array of (key, value) or null. The workers build Arrow
        batches. Each action reads Kafka again, and fails for a range that is not in its log.

        Args:
            spark: the session.
            kafkaParams: as for `createDirectStream`.
            offsetRanges: the ranges.
            includeHeaders: whether there is a column `headers`. Does not apply with `columns`.
            columns: the names of the columns, in their order, as ["value"]. Only these are built, which is faster. None for all.
            maxTasks: most tasks; 0 is no limit. Small ranges then share a task.
            maxRecordsPerTask: longer ranges are split; 0 is no limit.

        Returns:
            The DataFrame.

        Raises:
            KafkaConfigError: a parameter cannot work.
            TypeError: `offsetRanges` is no list of OffsetRange, or `columns` no list of names.
            ValueError: a column does not exist or is named twice, or `columns` is empty.
            MissingDependencyError: pyarrow or pandas is missing or too old.

        Example:
            KafkaUtils.createDataFrame(spark, {"bootstrap.servers": "k:9092"}, [OffsetRange("orders", 0, 100, 200)]).count()
        """
        from kstream_kafka.reader.data_frame import COLUMNS, checked_columns, kafka_data_frame
        from kstream_kafka.reader.range_reads import RangeReads

        chosen = COLUMNS if includeHeaders else COLUMNS[:-1]
        if columns is not None:
            chosen = checked_columns("createDataFrame", columns)
        params, ranges = KafkaParams.parse(kafkaParams), _ranges(offsetRanges)
        packing = Packing(maxTasks, maxRecordsPerTask)
        reads = RangeReads.of([RangeSplit(r) for r in ranges], params.executor(), POLL_MS, packing)
        return kafka_data_frame(spark, reads, chosen)

    @staticmethod
    @public_call
    def writeDataFrame(
        df: DataFrame,
        kafkaParams: Mapping[str, Any],
        topic: str | None = None,
        *,
        name: str | None = None,
        delivery: str = "exactly-once",
        prefix: str = "kstream",
        outputChanged: str = "fail",
        audit: bool = True,
    ) -> None:
        """Write a DataFrame to Kafka, exactly once by default, within a function of `foreachBatch`. Blocks until it is written.

            def write(df, batch_id):
                totals = df.groupBy("key").agg(F.sum("value").cast("string").alias("value"))
                KafkaUtils.writeDataFrame(totals, kafka, "totals", name="totals")

            stream.foreachBatch(write, outputs=["totals"])

        The columns are those of Spark's Kafka sink: `value`, and perhaps `key`, `headers`, `partition` and `topic`. Others are left out.
        The rest is as for `saveToKafka`: each partition of the frame is one transaction with a receipt, and a batch that runs again writes
        only the partitions that have none.

        Args:
            df: the frame. Each try of a batch must give the same one, as far as that is possible.
            kafkaParams: as for `saveToKafka`. Make them outside of the function: with a new callable in them, such as `oauth_cb`, each
                batch takes the output over again.
            topic: the topic; None if the column `topic` has it.
            name: one of the `outputs` of `foreachBatch`. Exactly once needs it.
            delivery: `exactly-once`; or `at-least-once`, which needs no name, and may be called anywhere.
            prefix: as for `saveToKafka`.
            outputChanged: as for `saveToKafka`.
            audit: as for `saveToKafka`.

        Raises:
            TypeError: `df` is no DataFrame.
            ValueError: it is streaming, or a column is missing or has another type; or no function runs that may write this output; or the
                output is written already.
            KafkaConfigError: a Kafka parameter is unknown or cannot work, or the brokers do not keep what transactions promise.
            OutputChangedError: the batch is half-written, and has other records now; or the checkpoint is older than what was written.
            KafkaError: the brokers do not answer, or refuse this client or a record.
        """
        from kstream.sinks.named_output import noting
        from kstream_kafka.sink.frame_output import CALL, write_frame
        from kstream_kafka.sink.kafka_output import AT_LEAST_ONCE, KafkaTarget

        if name is None and delivery != AT_LEAST_ONCE:
            raise refused(ValueError(f"{CALL}: name is missing. Give one of the outputs of foreachBatch: {CALL}(…, name='totals')"))
        with noting(None if delivery == AT_LEAST_ONCE else name):
            target = KafkaTarget.of(CALL, name or f"kafka {topic}", topic, kafkaParams, delivery, prefix, outputChanged, audit)
            write_frame(df, target)


def _spark24_form(topics: Any, kafkaParams: Any, fromOffsets: Any) -> tuple[Subscribed, KafkaParams, Positions]:
    """Return the subscription, the parameters and the starting positions of Spark 2.4's form.

    Raises:
        KafkaConfigError: positions by partition are not of exactly the named topics, or of a topic outside of the pattern.
    """
    subscribed, starts = subscription(topics), Positions.parse(fromOffsets, "fromOffsets")
    if starts.each:
        given = {topic for topic, _ in starts.each}
        fits = given == set(subscribed.names) if isinstance(subscribed, Topics) else all(map(subscribed.wants, given))
        if not fits:
            raise KafkaConfigError("fromOffsets", f"has offsets of {sorted(given)} where the topics are {subscribed.to_json()}")
        subscribed = Partitions(frozenset(starts.each))
    return subscribed, KafkaParams.parse(kafkaParams), starts


def _check_decoders(operator: str, key: Decoder, value: Decoder, handler: Handler) -> None:
    """Raise TypeError for a function of the user whose call decodes nothing: a generator function or a coroutine function."""
    for name, function in (("keyDecoder", key), ("valueDecoder", value), ("messageHandler", handler)):
        check_body_runs(operator, name, function)


def _decoding(given: Mapping[str, Any], key: Decoder, value: Decoder, handler: Handler) -> Decoding:
    """Return the decoding of the 0-10 form.

    By default elements are ConsumerRecords, and the deserialisers among the parameters decode. The user's decoders and handler win.
    """
    return Decoding(decoder_of(given, "key.deserializer", key), decoder_of(given, "value.deserializer", value), handler or consumer_record)


def _spark24_decoding(given: Any, key: Decoder, value: Decoder, handler: Handler) -> Decoding:
    """Return the decoding of Spark 2.4's form, in which the decoders decode, as UTF-8 by default, and deserialisers do nothing.

    Raises:
        KafkaConfigError: a deserialiser is not one of Kafka's own. One of Kafka's own passes, also LongDeserializer, and decodes nothing.
    """
    for parameter, decoder in (("key.deserializer", key), ("value.deserializer", value)):
        decoder_of(given, parameter, decoder)
    return Decoding(key, value, handler)


def _checked(config: Any) -> PerPartitionConfig | None:
    """Return the rate limits as given. TypeError unless they have both methods."""
    if config is not None and not (hasattr(config, "maxRatePerPartition") and hasattr(config, "minRatePerPartition")):
        raise refused(TypeError("perPartitionConfig should be a PerPartitionConfig"))
    return config


def _ranges(given: Sequence[OffsetRange]) -> list[OffsetRange]:
    """Return the ranges as a list. TypeError if they are no list or tuple of OffsetRange."""
    if not isinstance(given, list | tuple) or not all(isinstance(r, OffsetRange) for r in given):  # pyright: ignore
        raise refused(TypeError("offsetRanges should be list of OffsetRange"))
    return list(given)


__all__ = ["KafkaMessageAndMetadata", "KafkaUtils"]
