"""A frame of foreachBatch is written as a stream is. On FakeKafka, without Spark; partitions run in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from kstream_kafka.errors import ReceiptsLostError
from kstream_kafka.sink.frame_output import ADAPTIVE
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, DataType, LongType, StringType, StructField, StructType

from kstream.batch_time import Time
from kstream.errors import OutputChangedError
from kstream.output import OutputBatch, Writer
from kstream.sinks.named_output import FunctionOutput, NamedOutput

from .fake_kafka import FakeKafka
from .jobs import RECEIPTS, TOTALS, Jobs, Partitions

KAFKA = {"bootstrap.servers": "fake:1"}
SCHEMA = {"key": BinaryType(), "value": StringType(), "offset": LongType()}


class Session:
    """Stands for the settings of a session."""

    def __init__(self) -> None:
        self.conf = self
        self.values = {ADAPTIVE: "true"}

    def get(self, key: str) -> str:
        return self.values[key]

    def set(self, key: str, value: str) -> None:
        self.values[key] = value


class Rows(Partitions):
    """An RDD of rows, and of the records that a function makes of each partition."""

    def __init__(self, partitions: Sequence[Sequence[Any]], is_shuffled: bool = False) -> None:
        super().__init__(*partitions, is_shuffled=is_shuffled)
        self.encode: Callable[[Iterable[Any]], Iterator[Any]] = iter

    def mapPartitions(self, function: Callable[[Iterable[Any]], Iterator[Any]]) -> Rows:
        self.encode = function
        return self

    def records(self, number: int) -> Iterator[Any]:
        return self.encode(self.partitions[number])


class Frame(DataFrame):
    """Stands for a frame, and for what Spark plans of it: partitions of rows."""

    def __new__(cls, *_given: Any, **_named: Any) -> Any:
        return object.__new__(cls)

    def __init__(
        self, *partitions: Sequence[Any], types: dict[str, DataType] | None = None, streaming: bool = False, is_shuffled: bool = False
    ) -> None:
        self.given, self.types, self.streaming, self.is_shuffled = partitions, types or SCHEMA, streaming, is_shuffled
        self.session = Session()
        self.planned_under: list[str] = []
        self.chosen = tuple(self.types)

    @property
    def isStreaming(self) -> bool:
        return self.streaming

    @property
    def sparkSession(self) -> Any:
        return self.session

    @property
    def schema(self) -> StructType:
        return StructType([StructField(name, found) for name, found in self.types.items()])

    def select(self, *columns: Any) -> Any:
        self.chosen = columns
        return self

    @property
    def rdd(self) -> Any:
        self.planned_under.append(self.session.get(ADAPTIVE))
        return Rows([[[row[name] for name in self.chosen] for row in rows] for rows in self.given], self.is_shuffled)


def row(value: str, key: bytes = b"k") -> dict[str, Any]:
    return {"key": bytearray(key), "value": value, "offset": 1}


class Life:
    """Drivers of one checkpoint whose function writes frames."""

    def __init__(self, kafka: FakeKafka) -> None:
        self.kafka = kafka
        self.epoch = 0
        self.stored: Any = None

    def start(self) -> None:
        self.epoch += 1
        self.function = FunctionOutput("foreachBatch", lambda _time, _rdd: self.writes(), ["totals"])
        (self.output,) = self.function.parts()
        assert isinstance(self.output, NamedOutput)
        epochs = {epoch: f"nonce {epoch}" for epoch in range(1, self.epoch + 1)}
        self.output.restore(Writer("job", self.epoch, epochs[self.epoch], epochs.get, lambda _time, _plan: True), self.stored)

    def run(self, ms: int, writes: Callable[[], object], is_first_try: bool = True) -> None:
        """Run a batch, and store its completion if it succeeds."""
        self.writes = writes
        batch, rdd = OutputBatch(Time(ms), f"plan of {ms}", is_first_try), Partitions()
        given: Any = rdd
        self.function.run(batch, given, self.function.prepare(batch, given))
        self.stored = self.output.outcome(Time(ms))


def write(frame: Any, **given: Any) -> None:
    KafkaUtils.writeDataFrame(frame, KAFKA, **{"topic": TOTALS, "name": "totals", **given})


def values(kafka: FakeKafka) -> list[str]:
    return [value.decode() for value in kafka.values(TOTALS)]


@pytest.fixture
def life(jobs: Jobs) -> Life:
    life = Life(jobs.kafka)
    life.start()
    return life


def test_a_frame_is_written_and_planned_without_adaptive_execution(life: Life) -> None:
    frame = Frame([row("a"), row("b")], [row("c")])
    life.run(1000, lambda: write(frame))
    assert values(life.kafka) == ["a", "b", "c"]
    assert life.stored["batch"] == 1000 and life.stored["records"] == 3 and life.stored["partitions"] == 2
    assert frame.planned_under == ["false"] and frame.session.values == {ADAPTIVE: "true"} and frame.chosen == ("key", "value")


def test_a_batch_that_runs_again_finds_its_receipts_also_under_the_next_driver(life: Life) -> None:
    frame = Frame([row("a")], [row("b")])

    def dies() -> None:
        write(frame)
        raise ConnectionError("the driver dies before the completion")

    with pytest.raises(ConnectionError):
        life.run(1000, dies)
    life.start()
    life.run(1000, lambda: write(frame), is_first_try=False)
    life.run(2000, lambda: write(Frame([row("c")])))
    assert values(life.kafka) == ["a", "b", "c"]


def test_a_half_written_frame_that_has_other_keys_now_is_refused(life: Life) -> None:
    def away() -> None:
        raise ConnectionError("the second partition is not written")

    life.kafka.on["committed"] = away
    with pytest.raises(ConnectionError):
        life.run(1000, lambda: write(Frame([row("a")], [row("b")])))
    assert values(life.kafka) == ["a"]
    with pytest.raises(OutputChangedError, match="output totals: batch 1000 ms is half-written, and differs now in partition 0"):
        life.run(1000, lambda: write(Frame([row("a", b"other")], [row("b")], is_shuffled=True)), is_first_try=False)
    life.run(1000, lambda: write(Frame([row("a")], [row("b")], is_shuffled=True)), is_first_try=False)
    assert values(life.kafka) == ["a", "b"]


def test_receipts_that_are_gone_are_never_taken_for_a_frame_that_is_not_written(life: Life) -> None:
    life.run(1000, lambda: write(Frame([row("a")])))
    del life.kafka.topics[RECEIPTS]
    life.start()
    with pytest.raises(ReceiptsLostError):
        life.run(2000, lambda: write(Frame([row("b")])))


def test_what_cannot_be_written_is_refused_in_one_sentence(life: Life) -> None:
    def refused(frame: Any, error: type[Exception], words: str, **given: Any) -> None:
        with pytest.raises(error, match=f"^writeDataFrame: {words}"):
            life.run(1000, lambda: write(frame, **given))

    refused([1], TypeError, "the first argument must be a DataFrame, it is list$")
    refused(Frame(streaming=True), ValueError, "the frame is that of a query of Structured Streaming")
    refused(Frame(types={"key": StringType()}), ValueError, "columns are key, and there is no column 'value'. Name one: AS value.$")
    refused(Frame(types={"value": LongType()}), ValueError, "columns have 'value' as bigint, and it must be string or binary")
    refused(Frame(), ValueError, "topic is missing, and the frame has no column 'topic'. Give one of the two.$", topic=None)
    refused(Frame(), ValueError, "name is missing. Give one of the outputs of foreachBatch", name=None)
    refused(Frame(), ValueError, r"no function of foreachBatch runs that may write output 'other'.*outputs=\['other'\]", name="other")
    refused(Frame(), ValueError, "prefix is ''", prefix="")
    assert values(life.kafka) == []


@pytest.mark.parametrize(
    ("frame", "given"),
    [(Frame(types={"key": StringType()}), {}), (Frame(), {"prefix": ""}), (Frame(streaming=True), {}), ([1], {})],
    ids=["no value", "no prefix", "streaming", "no frame"],
)
def test_a_refusal_fails_the_batch_though_the_function_catches_it(life: Life, frame: Any, given: dict[str, Any]) -> None:
    def catches() -> None:
        with suppress(Exception):
            write(frame, **given)

    with pytest.raises((TypeError, ValueError), match=r"writeDataFrame|prefix"):
        life.run(1000, catches)
    life.run(1000, lambda: write(Frame([row("a")])), is_first_try=False)
    assert values(life.kafka) == ["a"]


def test_a_frame_that_spark_cannot_plan_fails_the_batch_though_the_function_catches_it(life: Life) -> None:
    frame = Frame([{}])

    def catches() -> None:
        with suppress(KeyError):
            write(frame)

    with pytest.raises(KeyError):
        life.run(1000, catches)


def test_a_refusal_of_a_frame_at_least_once_is_left_to_the_function(life: Life) -> None:
    def catches() -> None:
        with suppress(ValueError):
            write(Frame(types={"key": StringType()}), delivery="at-least-once")

    life.run(1000, catches)
