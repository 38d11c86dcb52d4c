"""StreamSpec: everything a direct stream is told when it is made, as one value; stored as a recipe and made again from it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kstream.dstream.recipe import Recipe
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.data_loss import check_policy
from kstream_kafka.planning.offset_range import utf8_decoder
from kstream_kafka.planning.planner import PerPartitionConfig
from kstream_kafka.planning.positions import NOWHERE, Positions
from kstream_kafka.reader.decoding import TEXT, Decoding
from kstream_kafka.reader.location_strategy import NO_PREFERENCE, LocationStrategy
from kstream_kafka.source.subscription import Subscribed, from_json

KIND = "kafka-direct"
CATCH_UP, BY_TIMESTAMP = "catch-up", "by-timestamp"
_FUNCTIONS = ("key_decoder", "value_decoder", "message_handler", "rates")


@dataclass(frozen=True)
class StreamSpec:
    """What is read, from where to where, how it is decoded, how quickly, and on which executors.

    `downtime` None leaves the policy to the setting `spark.streaming.kstream.downtime`, `on_data_loss` None to
    `spark.streaming.kstream.kafka.onDataLoss`; `rates` None to Spark's rate settings.
    """

    topics: Subscribed
    params: KafkaParams
    starts: Positions = NOWHERE
    decoding: Decoding = TEXT
    ends: Positions = NOWHERE
    rates: PerPartitionConfig | None = None
    locations: LocationStrategy = NO_PREFERENCE
    downtime: str | None = None
    on_data_loss: str | None = None

    def __post_init__(self) -> None:
        for name, positions in (("fromOffsets", self.starts), ("untilOffsets", self.ends)):
            stray = sorted(p for p in positions.each if not self.topics.reads(p))
            if stray:
                raise KafkaConfigError(name, f"has offsets of {stray} where the topics are {self.topics.to_json()}")
        check_downtime(self.downtime, "downtime")
        check_policy(self.on_data_loss, "onDataLoss")

    def recipe(self) -> Recipe | None:
        """Everything, to be stored; None where the user's setup must make the stream anew.

        That is with what might be a secret, and with ends that are a moment or offsets: tonight's setup means another moment.
        """
        params = self.params.storable()
        if params is None or self._ends_are_of_one_run():
            return None
        args = {
            **self.topics.to_json(),
            "params": params,
            "starts": self.starts.to_json(),
            "ends": self.ends.to_json(),
            "locations": self.locations.to_json(),
            "downtime": self.downtime,
            "on_data_loss": self.on_data_loss,
            "key_decoder": _decoder_kind(self.decoding.key_decoder),
            "value_decoder": _decoder_kind(self.decoding.value_decoder),
        }
        given = (self.decoding.key_decoder, self.decoding.value_decoder, self.decoding.message_handler, self.rates)
        functions: dict[str, Any] = {name: f for name, f in zip(_FUNCTIONS, given, strict=True) if f is not None and f is not utf8_decoder}
        return Recipe(KIND, args, functions)

    def why_no_recipe(self) -> str:
        """The reason for a recipe of None, for an error message."""
        closed = self.params.not_storable()
        if closed:
            return f"the Kafka parameters {', '.join(closed)} may hold a secret, or are no plain values, and are never stored"
        return "untilOffsets names a moment or offsets, which setup says anew for each run"

    def _ends_are_of_one_run(self) -> bool:
        ends = [self.ends.default, *self.ends.each.values()]
        return any(end is not None and end.kind in ("time", "offset") for end in ends)

    @staticmethod
    def from_recipe(recipe: Recipe) -> StreamSpec:
        """The inverse of `recipe`."""
        args, functions = recipe.args, recipe.functions
        decoding = Decoding(
            _decoder(args["key_decoder"], functions.get("key_decoder")),
            _decoder(args["value_decoder"], functions.get("value_decoder")),
            functions.get("message_handler"),
        )
        rates: Any = functions.get("rates")
        return StreamSpec(
            from_json(dict(args)), KafkaParams.parse(args["params"]), Positions.from_json(args["starts"]), decoding,
            Positions.from_json(args["ends"]), rates, LocationStrategy.from_json(args["locations"]), args["downtime"],
            args.get("on_data_loss"),
        )  # fmt: skip


def check_downtime(policy: str | None, key: str) -> str | None:
    """Returns it; KafkaConfigError if there is no such policy."""
    if policy not in (None, CATCH_UP, BY_TIMESTAMP):
        raise KafkaConfigError(key, f"is {policy!r}", f"One of: {CATCH_UP}, {BY_TIMESTAMP}.")
    return policy


def _decoder_kind(decoder: Callable[[Any], Any] | None) -> str:
    return "raw" if decoder is None else "utf8" if decoder is utf8_decoder else "given"


def _decoder(kind: str, given: Callable[[Any], Any] | None) -> Callable[[Any], Any] | None:
    return {"raw": None, "utf8": utf8_decoder}.get(kind, given)
