"""The stage: the modules of the sink of queries, with simulated clients and time in the place of real ones, one life after the other."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from kstream_kafka.client.ports import Encoded
from kstream_kafka.sink import audit_topic, query_batches, receipts, receipts_topic
from kstream_kafka.structured import sink_options, writers

from tests.kstream_kafka.sink.simulation.clients import SimulatedKafka
from tests.kstream_kafka.sink.simulation.turns import Turns

from .checkpoint import QueryCheckpoint, QueryPlace


class ClockOnTurns:
    """Stands for the SystemClock."""

    def monotonic_ms(self) -> int:
        return STAGE.turns.now_ms

    def wait(self, milliseconds: int, _stop: Any) -> bool:
        STAGE.turns.sleep(milliseconds / 1000)
        return False


class Stage:
    """What the modules of the sink get in place of real clients. `enter` says for which life.

    Attributes:
        turns, kafka: those of the life that is on.
        checkpoints: its checkpoints, by name.
    """

    turns: Turns
    kafka: SimulatedKafka
    checkpoints: dict[str, QueryCheckpoint]

    def __init__(self) -> None:
        self._made: dict[Any, Any] = {}

    def enter(self, turns: Turns, kafka: SimulatedKafka, num_receipts: int) -> None:
        """Begin a life. `num_receipts`: how many partitions of a new topic have receipts."""
        self.turns, self.kafka, self.checkpoints = turns, kafka, {}
        self._made.clear()
        receipts_topic.NEW_PARTITIONS = num_receipts

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """What the current process has made once."""
        mine = (self.turns.current.number, key)
        if mine not in self._made:
            self._made[mine] = make()
        return self._made[mine]

    def place(self, url: str, exclusive: bool) -> QueryPlace:
        """The folder of spools in a checkpoint."""
        return QueryPlace(self.checkpoints[url.partition("/")[0]], url)


STAGE = Stage()


def _passing(batches: Iterable[Encoded], _topic: str | None, _most: int) -> Iterator[Encoded]:
    """Stands for what makes records of Arrow: simulated spools have records."""
    return iter(batches)


@contextmanager
def set_up() -> Generator[None]:
    """Put the simulated parts in. One life at a time in a process."""

    def put(module: Any, name: str, stands_in: Callable[..., Any]) -> None:
        stack.enter_context(patch.object(module, name, stands_in))

    with ExitStack() as stack:
        put(query_batches, "Transaction", lambda *arguments: STAGE.kafka.transaction(*arguments))
        put(receipts, "TopicReader", lambda settings: STAGE.kafka.reader(settings))
        put(receipts, "once", lambda _key, make: make())
        for module in (query_batches, receipts_topic, audit_topic):
            put(module, "KafkaDriverClient", lambda params: STAGE.kafka.client(params))
        put(query_batches, "check_transactions", lambda *_: None)
        put(query_batches, "once", STAGE.once)
        put(sink_options, "StorePlace", STAGE.place)
        put(writers, "SystemClock", ClockOnTurns)
        put(writers, "encoded", _passing)
        stack.enter_context(patch.object(receipts_topic, "NEW_PARTITIONS", receipts_topic.NEW_PARTITIONS))
        yield
