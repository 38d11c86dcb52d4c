"""KafkaPlanner and LogPlanner plan the same ranges of the same logs: a direct stream may have either."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from kstream.batch.plan import RangePlan
from kstream.batch_time import Duration, Time
from kstream.direct.log_planner import LogPlanner
from kstream.direct.planner import Planner
from kstream.errors import DataLossError
from kstream.offsets.admission_control import AdmissionControl
from kstream.offsets.log import Log
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.offsets.positions import Positions
from tests.kstream_kafka import planner as kafka
from tests.kstream_kafka.fakes import FakeClient

A, B = ("t", 0), ("t", 1)
BOTH = ("kafka", "log")


@dataclass
class LogOfClient(Log):
    """The logs of a FakeClient, as a Log."""

    name = "fake"
    client: FakeClient

    def latest(self) -> Mapping[Partition, int]:
        return {p: end for p, (_, end) in self.client.logs.items()}

    def earliest(self) -> Mapping[Partition, int]:
        return {p: begin for p, (begin, _) in self.client.logs.items()}

    def offsets_at(self, time_ms: int) -> Mapping[Partition, int | None]:
        [answer] = self.client.at_times([time_ms], list(self.client.logs))
        return answer

    def read(self, offsets: OffsetRange) -> Iterable[Any]:
        raise AssertionError("a planner reads nothing")


class Run:
    """A planner of either kind over the same cluster."""

    def __init__(self, kind: str, logs: kafka.Logs, rate: int = 0, **policies: bool) -> None:
        limits = kafka.limited_to(rate) if rate else kafka.NO_LIMITS
        made = kafka.Planner(logs, auto_offset_reset="earliest", limits=limits, metadata_max_age_ms=0, **policies)
        self.client, self.clock, self.time = made.client, made.clock, Time(0)
        self._of_kafka = made.planner
        starts, admission = Positions.parse("earliest", "startingOffsets"), AdmissionControl(limits, Duration(1000))
        self._of_log = LogPlanner(LogOfClient(self.client), starts, admission, self.clock, **policies)
        self._kind = kind

    @property
    def planner(self) -> Planner[Any]:
        return self._of_kafka if self._kind == "kafka" else self._of_log

    def start(self, newest: RangePlan | None = None) -> Run:
        if newest is not None:
            self.planner.restore(newest)
        if self._kind == "kafka":
            self._of_kafka.begin(self.client)
        else:
            self._of_log.begin()
        return self

    def plan(self, open_batches: Collection[Time] = ()) -> RangePlan:
        self.time = Time(self.time.milliseconds + 1000)
        return self.planner.plan(self.time, open_batches)

    def store(self) -> RangePlan:
        plan = self.plan()
        self.planner.planned(self.time, plan)
        return plan


def offsets(ranges: Sequence[OffsetRange]) -> list[tuple[int, int, int]]:
    return [(r.partition, r.fromOffset, r.untilOffset) for r in ranges]


@pytest.mark.parametrize("kind", BOTH)
def test_a_plan_moves_nothing_until_it_is_durable_and_the_next_one_begins_where_it_ends(kind: str) -> None:
    run = Run(kind, {A: (2, 5)}).start()
    assert offsets(run.planner.starting_point().ranges) == [(0, 2, 2)]
    run.plan()
    assert run.planner.positions == {A: 2}
    assert offsets(run.store().ranges) == [(0, 2, 5)] and run.planner.positions == {A: 5}
    run.client.logs.update({A: (2, 6), B: (1, 3)})
    assert offsets(run.store().ranges) == [(0, 5, 6), (1, 1, 3)], "a new partition begins at its earliest offset"


@pytest.mark.parametrize("kind", BOTH)
def test_a_planner_goes_on_after_the_newest_plan(kind: str) -> None:
    newest = Run(kind, {A: (0, 5)}).start().store()
    assert offsets(Run(kind, {A: (0, 9)}).start(newest).store().ranges) == [(0, 5, 9)]


@pytest.mark.parametrize("kind", BOTH)
def test_a_rate_limits_each_partition_and_the_log_ends_are_known_of_the_newest_plan(kind: str) -> None:
    run = Run(kind, {A: (0, 10), B: (0, 1)}, rate=3).start()
    assert offsets(run.store().ranges) == [(0, 0, 3), (1, 0, 1)]
    assert run.planner.log_ends(run.time) == {A: 10, B: 1} and run.planner.log_ends(Time(0)) is None
    assert run.planner.admission.limits_of(run.time)["readLimit"] == {"reason": "maxRatePerPartition", "records": 4}


@pytest.mark.parametrize("kind", BOTH)
def test_a_log_that_was_cut_is_an_error_or_a_loss_in_the_plan(kind: str) -> None:
    run, tolerant = Run(kind, {A: (0, 5)}).start(), Run(kind, {A: (0, 5)}, tolerate_loss=True).start()
    for each in (run, tolerant):
        each.store()
        each.client.logs[A] = (0, 2)
    with pytest.raises(DataLossError):
        run.plan()
    plan = tolerant.store()
    assert offsets(plan.ranges) == [(0, 2, 2)]
    assert [(e.lost_from, e.lost_until, e.cause) for e in plan.lost] == [(2, 5, "truncation")]
    assert not tolerant.store().lost


@pytest.mark.parametrize("kind", BOTH)
def test_by_timestamp_each_missed_batch_has_the_records_of_its_time(kind: str) -> None:
    newest = Run(kind, {A: (0, 1)}).start().store()
    times = [Time(1000), Time(2000), Time(3000)]
    for by_timestamp, busy, ranges in ((False, None, [(0, 1, 4)]), (True, [times[0], times[2]], [(0, 1, 2)])):
        run = Run(kind, {A: (0, 4)}, by_timestamp=by_timestamp)
        run.client.times = {A: [(0, 0), (500, 1), (2500, 2), (2600, 3)]}
        run.clock.advance(3050)
        assert run.start(newest).planner.missed(times) == busy
        assert offsets(run.store().ranges) == ranges
    run.time = times[1]
    assert offsets(run.store().ranges) == [(0, 2, 4)]
