"""StreamSpec: the definition of a direct stream as one value. Its stored form is a recipe."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream.batch.plan import DATA_LOSS_POLICIES, FAIL
from kstream.batch_time import Duration
from kstream.clock import Clock
from kstream.conf import Settings
from kstream.dstream.recipe import Recipe
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.errors_policy import NO_POLICY, OnRecordError
from kstream.offsets.offset_range import TopicAndPartition
from kstream.offsets.positions import NO_POSITIONS, Positions
from kstream.offsets.settings import DOWNTIME
from kstream.scheduler.settings import BACKPRESSURE_ENABLED, CONCURRENT_JOBS, INITIAL_RATE
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import KafkaConfigError, UnknownTopicError, check_one_of, create_command
from kstream_kafka.planning.packing import Packing
from kstream_kafka.planning.planner import KafkaPlanner, PerPartitionConfig
from kstream_kafka.planning.subscription import Subscribed, Topics, from_json
from kstream_kafka.reader.decoding import TEXT, Decoding, utf8_decoder
from kstream_kafka.reader.location_strategy import NO_PREFERENCE, LocationStrategy
from kstream_kafka.schemas.registry_codec import secrets_in
from kstream_kafka.settings import (
    FIRST_BATCH_RECORDS,
    MAX_BYTES_PER_BATCH,
    MAX_RATE_PER_PARTITION,
    MAX_RECORDS_PER_TASK,
    MAX_TASKS,
    MAX_WAIT,
    MIN_RATE_PER_PARTITION,
    MIN_RECORDS_PER_BATCH,
    ON_DATA_LOSS,
)

KIND = "kafka-direct"
"""The kind of a direct stream's recipe. Its first word names the connector."""
CATCH_UP, BY_TIMESTAMP = "catch-up", "by-timestamp"
DOWNTIME_POLICIES = (CATCH_UP, BY_TIMESTAMP)
_FUNCTIONS = ("key_decoder", "value_decoder", "message_handler", "rates")


@dataclass(frozen=True)
class StreamSpec:
    """The definition of a direct stream. Immutable.

    Creating one raises KafkaConfigError if a position is of a partition that the stream does not read, or if a policy does not exist.

    Attributes:
        topics: the topics or partitions.
        params: the Kafka parameters.
        starting_offsets: where the stream begins at its first start.
        decoding: makes the elements from the messages.
        stopping_offsets: where a bounded run stops; no position for a run without bounds.
        rates: rate limits for each partition; None for Spark's rate settings.
        locations: the rule for the executors that should read.
        downtime: the policy for missed batches; None for the setting `spark.streaming.kstream.downtime`.
        on_data_loss: the policy for lost records; None for the setting `spark.streaming.kstream.kafka.onDataLoss`.
        on_record_error: the policy for records that fail.
    """

    topics: Subscribed
    params: KafkaParams
    starting_offsets: Positions = NO_POSITIONS
    decoding: Decoding = TEXT
    stopping_offsets: Positions = NO_POSITIONS
    rates: PerPartitionConfig | None = None
    locations: LocationStrategy = NO_PREFERENCE
    downtime: str | None = None
    on_data_loss: str | None = None
    on_record_error: OnRecordError = NO_POLICY

    def __post_init__(self) -> None:
        """Check the positions and the policies. KafkaConfigError if they cannot work."""
        for name, positions in (("fromOffsets", self.starting_offsets), ("untilOffsets", self.stopping_offsets)):
            stray = sorted(p for p in positions.each if not self.topics.reads(p))
            if stray:
                raise KafkaConfigError(name, f"has offsets of {stray} where the topics are {self.topics.to_json()}")
        check_one_of(self.downtime, DOWNTIME_POLICIES, "downtime")
        check_one_of(self.on_data_loss, DATA_LOSS_POLICIES, "onDataLoss")
        check_apart(self.on_record_error.dead_letter_topic, self.topics)

    def admission(self, settings: Settings) -> AdmissionSettings:
        """Return the limits of a batch. The rates of the user's PerPartitionConfig win over those of the settings.

        A bounded run has an end, and nobody waits for its single batches: nothing but a rate or a number of bytes limits it.
        """
        rates, is_bounded = self.rates, bool(self.stopping_offsets)
        most, least = settings[MAX_RATE_PER_PARTITION], settings[MIN_RATE_PER_PARTITION]
        return AdmissionSettings(
            max_rate=(lambda _: most) if rates is None else (lambda p: rates.maxRatePerPartition(TopicAndPartition(*p))),
            min_rate=(lambda _: least) if rates is None else (lambda p: rates.minRatePerPartition(TopicAndPartition(*p))),
            caps_rates=most > 0 or rates is not None,
            backpressure=settings[BACKPRESSURE_ENABLED],
            initial_rate=settings[INITIAL_RATE],
            concurrent_jobs=settings[CONCURRENT_JOBS],
            first_records=0 if is_bounded else settings[FIRST_BATCH_RECORDS],
            max_bytes=settings[MAX_BYTES_PER_BATCH],
            min_records=0 if is_bounded else settings[MIN_RECORDS_PER_BATCH],
            max_wait_ms=settings[MAX_WAIT],
        )

    def downtime_policy(self, settings: Settings) -> str:
        """Return the policy for missed batches: that of the stream, else that of the settings."""
        return self.downtime or settings[DOWNTIME]

    def data_loss_policy(self, settings: Settings) -> str:
        """Return the policy for lost records: that of the stream, else that of the settings."""
        return self.on_data_loss or settings[ON_DATA_LOSS]

    def check_policies(self, settings: Settings) -> None:
        """Check that the policies exist. KafkaConfigError if one does not."""
        check_one_of(self.downtime_policy(settings), DOWNTIME_POLICIES, DOWNTIME.key)
        check_one_of(self.data_loss_policy(settings), DATA_LOSS_POLICIES, ON_DATA_LOSS.key)

    def planner(self, settings: Settings, interval: Duration, clock: Clock) -> KafkaPlanner:
        """Create a planner of this definition.

        Args:
            settings: the settings, which hold where the definition has no value.
            interval: the batch interval.
            clock: the clock.
        """
        return KafkaPlanner(
            self.topics,
            self.params,
            self.starting_offsets,
            self.stopping_offsets,
            AdmissionControl(self.admission(settings), interval),
            clock,
            by_timestamp=self.downtime_policy(settings) == BY_TIMESTAMP,
            tolerate_loss=self.data_loss_policy(settings) != FAIL,
        )

    @staticmethod
    def packing(settings: Settings) -> Packing:
        """Return how the ranges of a batch are distributed over tasks."""
        return Packing(settings[MAX_TASKS], settings[MAX_RECORDS_PER_TASK])

    def recipe(self) -> Recipe | None:
        """Return the stored form of the definition.

        Returns:
            The recipe. None if only the user's setup can create the stream again at a restart. That is so if a parameter may be a
            secret, or if a stopping position is an offset or a time, which are valid for one run only.
        """
        params = self.params.storable()
        if params is None or self._secrets_of_registries() or self._stops_are_of_one_run():
            return None
        args = {
            **self.topics.to_json(),
            "params": params,
            "starts": self.starting_offsets.to_json(),
            "ends": self.stopping_offsets.to_json(),
            "locations": self.locations.to_json(),
            "downtime": self.downtime,
            "on_data_loss": self.on_data_loss,
            "key_decoder": _decoder_kind(self.decoding.key_decoder),
            "value_decoder": _decoder_kind(self.decoding.value_decoder),
        }
        if self.on_record_error != NO_POLICY:
            args["on_record_error"] = self.on_record_error.to_json()
        given = (self.decoding.key_decoder, self.decoding.value_decoder, self.decoding.message_handler, self.rates)
        functions: dict[str, Any] = {name: f for name, f in zip(_FUNCTIONS, given, strict=True) if f is not None and f is not utf8_decoder}
        return Recipe(KIND, args, functions)

    def why_no_recipe(self) -> str:
        """Return why `recipe` returns None, for an error message. Call it only then."""
        closed = [*self.params.not_storable(), *self._secrets_of_registries()]
        if closed:
            return f"the Kafka parameters {', '.join(closed)} may hold a secret, or are no plain values, and are never stored"
        return "untilOffsets is a time or offsets, which setup must set for each run"

    def _secrets_of_registries(self) -> list[str]:
        """Return the names of the settings that may hold a secret, of the schema registries of the decoders."""
        return secrets_in((self.decoding.key_decoder, self.decoding.value_decoder))

    def _stops_are_of_one_run(self) -> bool:
        """Return whether a stopping position is an offset or a time, and so is valid for one run only."""
        stops = [self.stopping_offsets.default, *self.stopping_offsets.each.values()]
        return any(end is not None and end.kind in ("time", "offset") for end in stops)

    @staticmethod
    def from_recipe(recipe: Recipe) -> StreamSpec:
        """Create the definition from its stored form, at a restart.

        Args:
            recipe: the result of the method `recipe`. A recipe of an older kstream may lack `on_data_loss`.
                `on_record_error` is there if it was given.

        Raises:
            KafkaConfigError: a stored parameter, position or policy cannot work.
        """
        args, functions = recipe.args, recipe.functions
        decoding = Decoding(
            _decoder(args["key_decoder"], functions.get("key_decoder")),
            _decoder(args["value_decoder"], functions.get("value_decoder")),
            functions.get("message_handler"),
        )
        rates: Any = functions.get("rates")
        return StreamSpec(
            topics=from_json(dict(args)),
            params=KafkaParams.parse(args["params"]),
            starting_offsets=Positions.from_json(args["starts"]),
            decoding=decoding,
            stopping_offsets=Positions.from_json(args["ends"]),
            rates=rates,
            locations=LocationStrategy.from_json(args["locations"]),
            downtime=args["downtime"],
            on_data_loss=args.get("on_data_loss"),
            on_record_error=OnRecordError.from_json(args.get("on_record_error", {})),
        )


def _decoder_kind(decoder: Callable[[Any], Any] | None) -> str:
    """Return the stored name of a decoder: "raw" for bytes, "utf8", or "given" for a function of the user."""
    return "raw" if decoder is None else "utf8" if decoder is utf8_decoder else "given"


def _decoder(kind: str, given: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    """Return the decoder of a name of `_decoder_kind`. `given` is the user's stored function, if there is one."""
    return {"raw": None, "utf8": utf8_decoder}.get(kind, given)


def check_apart(topic: str | None, read: Subscribed) -> None:
    """Check that a stream does not read its own dead letters. KafkaConfigError if it does. None is no topic.

    Args:
        topic: the dead-letter topic.
        read: the topics that the stream reads.
    """
    if topic is not None and read.wants(topic):
        raise KafkaConfigError("deadLetterTopic", f"is {topic!r}, which the stream itself reads", "Name another topic.")


def check_exists(topic: str | None, client: DriverClient, bootstrap: str) -> None:
    """Check that the dead-letter topic exists. Blocks on the brokers. None is no topic.

    Raises:
        KafkaConfigError: there is no such topic.
        KafkaError: another error of the client.
    """
    if topic is None:
        return
    try:
        client.partitions(Topics((topic,)))
    except UnknownTopicError as e:
        hint = f"Create it: {create_command(topic, bootstrap)}"
        raise KafkaConfigError("deadLetterTopic", f"is {topic!r}, a topic that Kafka does not have", hint) from e
