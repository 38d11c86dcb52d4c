"""Which batch a lost block is reported by. No JVM."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kstream.batch_time import Time
from kstream.dstream import ReceiverInputDStream
from kstream.dstream.receiver_input_dstream import PlannedBlock, ReceiverPlan
from kstream.receiver.block_reading import BlockLocations, Replica
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from tests.fakes import FakeHost
from tests.receiver_driver import Quiet

FIRST, SECOND = Time(1000), Time(2000)


class OnlyBlockA:
    """Received blocks, of which all but one are on no executor."""

    def locations(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockLocations]:
        where = (Replica("1", "h", 1),)
        return [BlockLocations(b.block_id, b.num_records, where if b.block_id == "a" else ()) for b in blocks]

    def rdd(self, *_: Any) -> Any: ...

    def allocate(self, *_: Any) -> None: ...

    def lost(self) -> dict[str, str]:
        return {}


class Stream(ReceiverInputDStream):
    _blocks: Any = OnlyBlockA()


def test_a_lost_block_is_reported_by_its_own_batch_although_an_earlier_one_ends_after_it_was_generated() -> None:
    stream = Stream(FakeHost({"spark.streaming.kstream.receiver.onDataLoss": "skip"}), Quiet())
    plans = {FIRST: ReceiverPlan([PlannedBlock("a", 5)]), SECOND: ReceiverPlan([PlannedBlock("b", 7)])}
    for time, plan in plans.items():
        stream.remember_plan(time, plan)
        stream.planned(time, plan)
        stream.rdd(time, plan)
    assert stream.outcome(FIRST, plans[FIRST]).lost == []
    assert [loss["block"] for loss in stream.outcome(SECOND, plans[SECOND]).lost] == ["b"]
    assert stream.outcome(SECOND, plans[SECOND]).lost == [], "each once"
