"""The stage: the sink's own modules, with simulated clients, threads and time in the place of real ones, for one life after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeVar
from unittest.mock import patch

from kstream_kafka.sink import kafka_output, partition_writer, receipts, receipts_topic, transactional_ids
from pyspark import TaskContext

from kstream.sinks import receipt
from tests.simulator.strands import Killed

from .clients import SimulatedKafka
from .turns import Turns

T = TypeVar("T")
R = TypeVar("R")


class OpenedBeside:
    """Stands for the Future of a call that runs in a thread of its own."""

    def __init__(self, turns: Turns, call: Callable[[], None]) -> None:
        self._turns, self._call = turns, call
        self._is_done = False
        self._error: Exception | None = None
        self._listeners: list[Callable[[Any], None]] = []
        turns.strands.spawn("opens", turns.current.number, self._run)

    def _run(self) -> None:
        try:
            self._call()
        except Killed:
            raise
        except Exception as e:
            self._error = e
        self._is_done = True
        for listener in self._listeners:
            listener(self)

    def done(self) -> bool:
        return self._is_done

    def result(self) -> None:
        self._turns.wait(self.done)
        if self._error is not None:
            raise self._error

    def add_done_callback(self, listener: Callable[[Any], None]) -> None:
        self._listeners.append(listener)


class OneAfterTheOther:
    """Stands for a ThreadPoolExecutor: its calls come in an order of the seed."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __enter__(self) -> OneAfterTheOther:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[[T], R], arguments: Iterable[T]) -> Iterator[R]:
        given = list(arguments)
        self._turns.rng.shuffle(given)
        return iter([function(argument) for argument in given])


class Stage:
    """What the modules of the sink get in place of real clients. `enter` says for which life.

    Attributes:
        turns, kafka: those of the life that is on.
    """

    turns: Turns
    kafka: SimulatedKafka

    made: tuple[int, int] = (0, 0)
    """A driver, by its process, and how many outputs it has made."""

    def position(self) -> int:
        """Return the position of the output that the current driver makes."""
        number, count = self.made
        me = self.turns.current.number
        self.made = (me, count + 1 if number == me else 0)
        return self.made[1]

    def enter(self, turns: Turns, kafka: SimulatedKafka, num_receipts: int) -> None:
        """Begin a life. `num_receipts`: how many partitions of a new topic have receipts."""
        self.turns, self.kafka = turns, kafka
        receipts_topic.NEW_PARTITIONS = num_receipts


STAGE = Stage()


@contextmanager
def set_up() -> Generator[None]:
    """Put the simulated parts in. One life at a time in a process."""

    def put(module: Any, name: str, stands_in: Callable[..., Any]) -> None:
        stack.enter_context(patch.object(module, name, stands_in))

    with ExitStack() as stack:
        for module in (transactional_ids, partition_writer):
            put(module, "Transaction", lambda *arguments: STAGE.kafka.transaction(*arguments))
        for module in (kafka_output, receipts):
            put(module, "TopicReader", lambda settings: STAGE.kafka.reader(settings))
        for module in (receipt, partition_writer):
            put(module, "hashing", lambda: STAGE.turns.current.hashing)
        put(receipts_topic, "KafkaDriverClient", lambda params: STAGE.kafka.client(params))
        put(receipts_topic, "RecordProducer", lambda settings: STAGE.kafka.producer(settings))
        put(transactional_ids, "ThreadPoolExecutor", lambda *_: OneAfterTheOther(STAGE.turns))
        put(receipts_topic, "check_transactions", lambda *_: None)
        put(kafka_output, "is_one_to_one", lambda rdd: not rdd.is_shuffled)
        put(partition_writer, "begun", lambda call, _: OpenedBeside(STAGE.turns, call))
        for module in (receipts, partition_writer):
            put(module, "once", lambda _key, make: make())
        put(partition_writer, "monotonic", lambda: STAGE.turns.monotonic())
        put(partition_writer, "sleep", lambda seconds: STAGE.turns.sleep(seconds))
        put(TaskContext, "get", lambda: STAGE.turns.current)
        stack.enter_context(patch.object(receipts_topic, "NEW_PARTITIONS", receipts_topic.NEW_PARTITIONS))
        yield
