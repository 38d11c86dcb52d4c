"""What streams have let go of leaves the stores; a store that does not answer is seen to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Time
from kstream.dstream.received_blocks import ReceivedBlocks
from kstream.errors import RpcUnreachableError
from kstream.loop.threads import ThreadRuntime
from kstream.receiver.block_reading import Replica
from kstream.receiver.received_block_tracker import ReceivedBlockInfo, ReceivedBlockTracker
from kstream.receiver.receiver_tracker import ReceiverTracker
from kstream.testing import ManualClock
from tests.receivers import InDriver


class Dead(InDriver):
    """Its store does not answer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.forgotten: list[str] = []
        self.asked: list[list[str]] = []

    def remove(self, store: Replica, names: Sequence[str]) -> None:
        self.asked.append(list(names))
        raise RpcUnreachableError("it did not answer", place=f"{store.host}:{store.port}")

    def forget_store(self, executor: str) -> None:
        self.forgotten.append(executor)


class AtOnce(ThreadRuntime):
    """What others do beside is done when they are started."""

    def thread(self, target: Callable[[], None], name: str) -> Any:
        return SimpleNamespace(start=target)


def test_a_store_that_does_not_answer_is_looked_for_and_asked_for_its_blocks_meanwhile() -> None:
    """Its executor lives; without this blocks would have one replica from then on. It may only have been busy, and has what it had."""
    clock = ManualClock(1000)
    executor, blocks = Dead(clock), ReceivedBlockTracker([0], clock)
    tracker = executor.tracker = ReceiverTracker({}, executor, blocks, clock, runtime=AtOnce())
    received = ReceivedBlocks(tracker, blocks, executor)
    tracker.start()
    assert len(tracker.stores()) == 1
    block = ReceivedBlockInfo(0, "a", 1, executors=("driver",))
    blocks.add_block(block)
    received.allocate(0, ["a"])
    received.release(Time(1000), ["a"])
    received.clean_up(RequiredBatches(Time(1000)))
    assert len(tracker.replicas(block)) == 1 and executor.forgotten == []
    received.clean_up(RequiredBatches(Time(2000)))
    assert executor.asked == [["a"]], "nobody waits for it once more"
    tracker._look_at_executors()
    assert executor.forgotten == ["driver"] and len(tracker.stores()) == 1
    received.clean_up(RequiredBatches(Time(3000)))
    assert executor.asked == [["a"], ["a"]], "it is to have no more than is needed"


def test_a_store_that_has_been_replaced_meanwhile_is_not_lost_with_the_old_one() -> None:
    clock = ManualClock(1000)
    executor = Dead(clock)
    tracker = executor.tracker = ReceiverTracker({}, executor, ReceivedBlockTracker([0], clock), clock)
    executor.start_stores()
    tracker.doubt_store(Replica("driver", "localhost", 4711))
    assert len(tracker.stores()) == 1 and executor.forgotten == []
