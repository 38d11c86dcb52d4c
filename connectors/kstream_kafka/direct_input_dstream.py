"""DirectKafkaInputDStream: each batch is one offset range of every partition, planned on the driver, read in the workers.

Plan data: `{"ranges": [[topic, partition, from, until], …], "leader_epochs": [epoch or null, …], "topic_ids": null}` with every
partition in every plan, empty ranges included, by topic and number; `leader_epochs[i]` is what the leader of partition i said when
the plan was made. `"ahead": [[topic, partition], …]` is there only while a given start offset lies past the log's end.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from kstream.batch import InputPlan
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.recipe import Recipe
from kstream_kafka.cursors import Cursors, ahead_of
from kstream_kafka.decoding import Decoding
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.offset_range import OffsetRange, TopicAndPartition, utf8_decoder
from kstream_kafka.offsets import RateLimits, estimated_rate, plan_ranges
from kstream_kafka.params import KafkaParams
from kstream_kafka.ports import DriverClient, Partition
from kstream_kafka.subscription import Subscribed, Topics, from_json

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost
    from kstream_kafka.kafka_rdd import KafkaRDD

MakeClient = Callable[[KafkaParams, int], DriverClient]


class DirectKafkaInputDStream(InputDStream):
    """The direct stream. `from_offsets` empty: start by `auto.offset.reset`. `make_client` and `clock` are for tests."""

    operator = "Kafka direct stream"
    no_recipe_reason: ClassVar[str] = "a Kafka parameter may hold a secret or is no plain value, so it is not stored"

    def __init__(
        self,
        ssc: StreamHost,
        topics: Subscribed,
        params: KafkaParams,
        from_offsets: Mapping[Partition, int],
        decoding: Decoding,
        make_client: MakeClient | None = None,
        clock: Clock | None = None,
    ) -> None:
        _check_topics(topics, from_offsets)
        super().__init__(ssc)
        self._topics = topics
        self._params = params
        self._from_offsets = dict(from_offsets)
        self._decoding = decoding
        self._make_client = make_client or _real_client
        clock = clock or SystemClock()
        self._cursors = Cursors(topics, params.reset, from_offsets, params.metadata_max_age_ms, clock.monotonic_ms)
        self._restored = False
        self._client: DriverClient | None = None

    # -- life

    def start(self) -> None:
        """Connects; at a first start resolves the starting offsets, and fails if that cannot be done."""
        self._client = self._make_client(self._params, self.ssc.settings.get("spark.streaming.kafka.maxRetries"))
        if not self._restored:
            self._cursors.begin(self._client)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def restored(self, time: Time, data: Mapping[str, Any]) -> None:
        self._cursors.restore(_ranges(data), ahead_of(data))
        self._restored = True

    # -- planning

    def starting_point(self) -> InputPlan:
        """An empty range at every cursor."""
        return _input_plan([OffsetRange(*p, at, at) for p, at in sorted(self._cursors.offsets.items())], None, self._cursors.ahead)

    def plan(self, time: Time) -> InputPlan:
        """Up to the end of every log, or as far as the rates allow. Blocks on the brokers; moves nothing.

        Raises the errors of the client, PartitionRevokedError and LogShrankError: then the batch is not planned.
        """
        if self._client is None:
            raise RuntimeError("plan before start")
        survey = self._cursors.survey(self._client)
        latest = {p: end.offset for p, end in survey.latest.items()}
        ranges = plan_ranges(survey.current, latest, self._limits(), survey.ahead)
        epochs = [survey.latest[r.topic, r.partition].leader_epoch for r in ranges]
        return _input_plan(ranges, epochs, survey.ahead)

    def planned(self, time: Time, data: Mapping[str, Any]) -> None:
        self._cursors.advance(_ranges(data), ahead_of(data))

    def _limits(self) -> RateLimits:
        conf = self.ssc.settings.get
        most, least = conf("spark.streaming.kafka.maxRatePerPartition"), conf("spark.streaming.kafka.minRatePerPartition")
        initial = conf("spark.streaming.backpressure.initialRate")
        return RateLimits(
            batch_ms=self.slide_duration.milliseconds,
            max_rate=lambda _: most,
            min_rate=lambda _: least,
            estimate=estimated_rate(conf("spark.streaming.backpressure.enabled"), None, initial),
        )

    # -- the batch

    def rdd(self, time: Time, data: Mapping[str, Any]) -> KafkaRDD:
        """The KafkaRDD of the plan's ranges."""
        from kstream_kafka.kafka_rdd import KafkaRDD  # needs a JVM, which planning does not

        conf = self.ssc.settings.get
        return KafkaRDD(
            self.ssc.sparkContext,
            _ranges(data),
            self._params.executor(),
            self._decoding,
            leader_epochs=data.get("leader_epochs"),
            poll_timeout_ms=conf("spark.streaming.kafka.consumer.poll.ms"),
            exact_counts=not conf("spark.streaming.kafka.allowNonConsecutiveOffsets"),
        )

    def metadata(self, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The ranges, and Spark's description of those that are not empty."""
        ranges = _ranges(data)
        described = (f"topic: {r.topic}\tpartition: {r.partition}\toffsets: {r.fromOffset} to {r.untilOffset}" for r in ranges if r.count())
        return {"offsets": ranges, "Description": "\n".join(described)}

    # -- recovery without setup

    def recipe(self) -> Recipe | None:
        """Everything but what might be a secret; then None, and the user's setup makes the stream."""
        params = self._params.storable()
        if params is None:
            return None
        decoders = {"key_decoder": self._decoding.key_decoder, "value_decoder": self._decoding.value_decoder}
        args = {
            **self._topics.to_json(),
            "params": params,
            "from_offsets": [[*p, at] for p, at in sorted(self._from_offsets.items())],
            **{name: _decoder_kind(f) for name, f in decoders.items()},
        }
        functions = {name: f for name, f in decoders.items() if f is not None and f is not utf8_decoder}
        if self._decoding.message_handler is not None:
            functions["message_handler"] = self._decoding.message_handler
        return Recipe("kafka-direct", args, functions)

    @staticmethod
    def from_recipe(ssc: StreamHost, recipe: Recipe) -> DirectKafkaInputDStream:
        """The inverse of `recipe`."""
        args = recipe.args
        decoding = Decoding(
            _decoder(args["key_decoder"], recipe.functions.get("key_decoder")),
            _decoder(args["value_decoder"], recipe.functions.get("value_decoder")),
            recipe.functions.get("message_handler"),
        )
        given = {(str(topic), int(partition)): int(at) for topic, partition, at in args["from_offsets"]}
        return DirectKafkaInputDStream(ssc, from_json(dict(args)), KafkaParams.parse(args["params"]), given, decoding)


def _real_client(params: KafkaParams, max_retries: int) -> DriverClient:
    from kstream_kafka.client import KafkaDriverClient  # so that building a graph does not load librdkafka

    return KafkaDriverClient(params, max_retries)


def _check_topics(topics: Subscribed, from_offsets: Mapping[Partition, int]) -> None:
    """Given offsets must be of exactly the topics named, as in Spark 2.4; of matching ones for a pattern."""
    given = {topic for topic, _ in from_offsets}
    fits = given == set(topics.names) if isinstance(topics, Topics) else all(map(topics.wants, given))
    if given and not fits:
        raise KafkaConfigError("fromOffsets", f"has offsets of {sorted(given)} where the topics are {topics.to_json()}")
    below = {p: at for p, at in from_offsets.items() if at < 0}
    if below:
        raise KafkaConfigError("fromOffsets", f"has negative offsets: {below}", "Use auto.offset.reset for earliest or latest.")


def _ranges(data: Mapping[str, Any]) -> list[OffsetRange]:
    return [OffsetRange.from_json(r) for r in data["ranges"]]


def _input_plan(ranges: list[OffsetRange], epochs: list[int | None] | None, ahead: frozenset[Partition]) -> InputPlan:
    data: dict[str, Any] = {
        "ranges": [r.to_json() for r in ranges],
        "leader_epochs": epochs if epochs is not None else [None] * len(ranges),
        "topic_ids": None,
    }
    if ahead:
        data["ahead"] = [list(p) for p in sorted(ahead)]
    return InputPlan(data, sum(r.count() for r in ranges))


def as_partition(key: TopicAndPartition | tuple[str, int]) -> Partition:
    """A key of `fromOffsets`, a TopicAndPartition or a plain pair, as the plain pair used inside."""
    return (key.topic, key.partition) if isinstance(key, TopicAndPartition) else (key[0], key[1])


def _decoder_kind(decoder: Callable[[Any], Any] | None) -> str:
    return "raw" if decoder is None else "utf8" if decoder is utf8_decoder else "given"


def _decoder(kind: str, given: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return {"raw": None, "utf8": utf8_decoder}.get(kind, given)
