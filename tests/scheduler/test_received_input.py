"""What streams have let go of leaves the stores; a store that does not answer is seen to."""

from __future__ import annotations

from collections.abc import Sequence

from kstream.batch_time import Time
from kstream.errors import RpcUnreachableError
from kstream.receiver.block_reading import Replica
from kstream.receiver.received_block_events import ReceivedBlockInfo
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.scheduler.received_input import ReceivedInput
from kstream.scheduler.receiver_tracker import ReceiverTracker
from kstream.testing import ManualClock
from tests.receivers import InDriver


class Dead(InDriver):
    """Its store does not answer."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__(clock)
        self.forgotten: list[str] = []

    def remove(self, store: Replica, names: Sequence[str]) -> None:
        raise RpcUnreachableError("it did not answer", place=f"{store.host}:{store.port}")

    def forget_store(self, executor: str) -> None:
        self.forgotten.append(executor)


def test_a_store_that_does_not_answer_is_lost_until_it_is_started_again() -> None:
    """Its executor lives; without this its blocks would have one replica from then on."""
    clock = ManualClock(1000)
    executor, blocks = Dead(clock), ReceivedBlockTracker([0], clock)
    tracker = executor.tracker = ReceiverTracker({}, executor, blocks, clock)
    received = ReceivedInput(tracker, blocks, executor)
    executor.start_stores()
    assert len(tracker.stores()) == 1
    blocks.add_block(ReceivedBlockInfo(0, "a", 1, executors=("driver",)))
    received.allocate(0, ["a"])
    received.forget(Time(1000), ["a"])
    received.clean_up(Time(1000))
    assert tracker.stores() == [] and executor.forgotten == ["driver"]
    executor.start_stores()
    assert len(tracker.stores()) == 1


def test_a_store_that_has_been_replaced_meanwhile_is_not_lost_with_the_old_one() -> None:
    clock = ManualClock(1000)
    executor = Dead(clock)
    tracker = executor.tracker = ReceiverTracker({}, executor, ReceivedBlockTracker([0], clock), clock)
    executor.start_stores()
    tracker.lose_store(Replica("driver", "localhost", 4711))
    assert len(tracker.stores()) == 1 and executor.forgotten == []
