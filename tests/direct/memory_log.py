"""A Log in memory, and its stream without a JVM."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.batch_time import Time
from kstream.direct.log_input_dstream import LogInputDStream
from kstream.direct.log_plan import LogPlan
from kstream.direct.log_rdd import LogTask, leave_out, split_ranges
from kstream.offsets.log import Log
from kstream.offsets.log_ends import OffsetsForTime
from kstream.offsets.offset_range import OffsetRange, Partition
from tests.fakes import FakeRDD, fake_reports

A, B = ("t", 0), ("t", 1)


@dataclass
class MemoryLog(Log):
    """Records of (timestamp in ms, value) by partition. `problems` are raised by the next calls, one each."""

    name = "memory"
    records: dict[Partition, list[tuple[int, Any]]] = field(default_factory=lambda: {A: []})
    first: dict[Partition, int] = field(default_factory=dict[Partition, int])
    problems: list[Exception] = field(default_factory=list[Exception])
    asked: int = 0
    has_times: bool = True

    def add(self, partition: Partition, *values: Any, at_ms: int = 0) -> list[Any]:
        self.records.setdefault(partition, []).extend((at_ms, value) for value in values)
        return list(values)

    def latest(self) -> Mapping[Partition, int]:
        self.asked += 1
        self._raise()
        return {p: len(found) for p, found in self.records.items()}

    def earliest(self) -> Mapping[Partition, int]:
        return {p: self.first.get(p, 0) for p in self.records}

    def offsets_at(self, time_ms: int) -> OffsetsForTime | None:
        if not self.has_times:
            return None
        return {p: next((i for i, (at, _) in enumerate(found) if at >= time_ms), None) for p, found in self.records.items()}

    def read(self, offsets: OffsetRange) -> Iterator[Any]:
        partition = (offsets.topic, offsets.partition)
        for offset in range(offsets.fromOffset, offsets.untilOffset):
            if offset >= self.first.get(partition, 0):
                yield self.records[partition][offset][1]
            self._raise()

    def _raise(self) -> None:
        if self.problems:
            raise self.problems.pop(0)


class MemoryStream(LogInputDStream):
    """The stream of a MemoryLog. Its RDDs hold what the tasks would yield."""

    log: MemoryLog

    def __init__(self, host: Any, log: MemoryLog, startingOffsets: Any = "earliest", maxRecordsPerTask: int = 0) -> None:
        self.paused: list[float] = []
        super().__init__(host, log, startingOffsets, maxRecordsPerTask, pause=self.paused.append)
        self._read_reports = fake_reports()

    def rdd(self, time: Time, plan: LogPlan) -> Any:
        splits = tuple(tuple(leave_out(split, plan.skipped)) for split in split_ranges(plan.ranges, self._max_records_per_task))
        tolerate = self.on_data_loss != "fail"
        task = LogTask(self.log, splits, time.milliseconds, tolerate, self._reports_of_tasks().accumulator, self.paused.append)
        return FakeRDD([record for index in range(len(splits)) for record in task(index)])
