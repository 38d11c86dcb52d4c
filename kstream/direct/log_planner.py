"""LogPlanner: which offsets of a Log each batch reads. It asks the Log, and knows neither Spark nor settings."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from time import sleep
from typing import TypeVar

from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.direct.log_plan import LogPlan
from kstream.errors import DataLossError
from kstream.offsets.admission_control import AdmissionControl
from kstream.offsets.log import Log, beginnings_of, ends_of, with_retries
from kstream.offsets.log_ends import Ends, ends_at_times, times_with_records
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream.offsets.positions import Positions
from kstream.offsets.settings import LOG_ON_DATA_LOSS
from kstream.offsets.starting_offsets import resolve

logger = logging.getLogger("kstream.offsets")
T = TypeVar("T")


class LogPlanner:
    """Plans the batches of one stream of a Log: each is one offset range of every partition.

    The order of calls: at a restart `restore`; then `begin`; then for each batch `plan`, and `planned` once the plan is durable. The Log is
    not asked before `begin`. One thread at a time calls the methods; `log_ends` may be called by any.
    """

    pinned: Mapping[Partition, int] = {}
    """Empty: a Log is not asked for records from the future."""

    def __init__(
        self,
        log: Log,
        starting_offsets: Positions,
        admission: AdmissionControl,
        clock: Clock,
        *,
        by_timestamp: bool = False,
        tolerate_loss: bool = False,
        pause: Callable[[float], None] = sleep,
    ) -> None:
        """Create a planner. Does not ask the Log.

        Args:
            log: the Log.
            starting_offsets: where the first start begins. A partition that comes later begins at its earliest offset.
            admission: the limits of a batch.
            clock: the clock.
            by_timestamp: whether each missed batch gets the records of its time; otherwise the first batch takes all of them.
            tolerate_loss: whether a loss is recorded in the next plan; otherwise planning raises it.
            pause: waits for seconds between attempts, for tests.
        """
        self.admission = admission
        """The limits of a batch. What batches have cost, and the rate of back-pressure, are told to it."""
        self._log = log
        self._starting_offsets = starting_offsets
        self._clock = clock
        self._by_timestamp = by_timestamp
        self._tolerate_loss = tolerate_loss
        self._pause = pause
        self._next: dict[Partition, int] | None = None
        self._latest: tuple[Time, Mapping[Partition, int]] | None = None
        """The batch that was planned last, with the ends of the partitions then."""
        self._past_ends: dict[int, Ends] = {}
        """Time of a missed batch in ms → where the Log ended then."""
        self._gone: set[Partition] = set()
        """Partitions that the Log no longer has, and whose loss is in a plan of this driver."""

    def restore(self, plan: LogPlan) -> None:
        """Continue after the newest stored plan, at a restart. Does not ask the Log."""
        self._move_to(plan)

    def begin(self) -> None:
        """Find the starting offsets at a first start. After `restore` only ask the Log for its ends: one that is away fails the start.

        Blocks.

        Raises:
            ConfigurationError: a starting offset cannot be resolved.
            Exception: another error of the Log.
        """
        if self._next is None:
            self._next = self._ask(lambda: resolve(self._log, self._starting_offsets, self._clock.time_ms()))
        else:
            self._ends()  # a Log that cannot be reached fails the start, and not the first batch

    def _ends(self) -> dict[Partition, int]:
        """Return the end of each partition. Blocks on the Log."""
        return self._ask(lambda: ends_of(self._log))

    def _ask(self, call: Callable[[], T]) -> T:
        """Return the result of a question to the Log, which is repeated after retriable errors. Blocks."""
        return with_retries(call, f"{self._log.name}: the question for offsets", self._pause)

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offset of each partition at which the next plan begins. RuntimeError before `restore` and `begin`."""
        if self._next is None:
            raise RuntimeError("plan before start")
        return self._next

    def starting_point(self) -> LogPlan:
        """Return a plan of empty ranges at the starting offsets. Call this after `begin`."""
        return LogPlan.empty_at(self._log.name, self.positions)

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Ask the Log where it ended at each missed time, if missed batches are planned by timestamp. Blocks then.

        Returns:
            The times with records, or all if a rate limits batches. None under catch-up, and for a Log without times.
        """
        if not self._by_timestamp or not times:
            return None
        if self._ask(lambda: self._log.offsets_at(times[0].milliseconds)) is None:
            logger.warning("%s has no times: downtime=by-timestamp has no effect, the first missed batch takes all records", self._log.name)
            return None

        def offsets_at(stamps: Sequence[int]) -> list[Mapping[Partition, int | None]]:
            return [self._ask(lambda ms=ms: self._log.offsets_at(ms)) or {} for ms in stamps]

        stamps = [at.milliseconds for at in times]
        self._past_ends = ends_at_times(offsets_at, stamps, self._ends())
        if self.admission.caps_rates:
            return times
        return [Time(ms) for ms in times_with_records(stamps, self._past_ends, self.positions)]

    def plan(self, time: Time, open_batches: Collection[Time]) -> LogPlan:
        """Plan a batch: each range ends at the end of its partition, or earlier by the rate limits. Blocks on the Log; moves no offset.

        Under by-timestamp, a missed batch ends where the Log ended at its time.

        Args:
            time: the batch time.
            open_batches: the batches that run, or wait for an earlier one.

        Raises:
            DataLossError: a partition is gone or ends before the next offset, and losses are not tolerated.
            Exception: another error of the Log.
        """
        then = self._past_ends.get(time.milliseconds)
        latest = self._ends() if then is None else then
        current, lost = self._current(latest, missed=then is not None)
        if lost and not self._tolerate_loss:
            found = "; ".join(f"{self._log.name} {entry.topic}-{entry.partition}: {entry.detail}" for entry in lost)
            raise DataLossError(f"{found}. To continue without these records, restart with {LOG_ON_DATA_LOSS}=skip")
        self._latest = (time, latest)
        ends = {p: max(latest.get(p, at), at) for p, at in current.items()}
        if then is None:
            until = self.admission.admit(time, current, ends, open_batches)
        else:
            until = self.admission.admit_missed(time, current, ends)
        return LogPlan(self._log.name, [OffsetRange(*p, at, until[p]) for p, at in sorted(current.items())], lost)

    def _current(self, latest: Mapping[Partition, int], missed: bool) -> tuple[dict[Partition, int], list[LostRange]]:
        """Return where each partition begins in the next plan, and the losses that this shows. Blocks if there is a new partition.

        A partition that is gone keeps an empty range at its next offset. If it comes back, the stream reads on from there.

        Args:
            latest: the end of each partition.
            missed: whether these are ends in the past, at the time of a missed batch. Then one before the next offset is no loss.
        """
        now = self.positions
        new = latest.keys() - now.keys()
        earliest = self._ask(lambda: beginnings_of(self._log)) if new else {}
        current = dict(now) | {p: earliest[p] for p in new}
        lost: list[LostRange] = []
        for p, at in now.items():
            end = latest.get(p)
            if end is None and p not in self._gone:
                lost.append(LostRange(*p, at, None, "deletion", f"the partition is gone; its next offset was {at}"))
            elif end is not None and end < at and not missed:
                lost.append(LostRange(*p, end, at, "truncation", f"the log ends at {end}, before the next offset {at}"))
                current[p] = end
        return current, lost

    def planned(self, time: Time, plan: LogPlan) -> None:
        """Move the offsets to the ends of a plan that is durable now. Tell the limits of it, unless it is a missed batch by timestamp."""
        ends = self.log_ends(time)
        if ends is not None and time.milliseconds not in self._past_ends:
            self.admission.planned(time, plan.ranges, ends)
        self._move_to(plan)
        self._past_ends = {ms: ends for ms, ends in self._past_ends.items() if ms > time.milliseconds}

    def _move_to(self, plan: LogPlan) -> None:
        """Move the offsets to the ends of a plan. Note which partitions are gone by its losses, and which of the gone ones are back."""
        self._next = plan.until_offsets
        deleted = {(entry.topic, entry.partition) for entry in plan.lost if entry.cause == "deletion"}
        self._gone = (self._gone | deleted) - (self._latest[1].keys() if self._latest is not None else set())

    def log_ends(self, time: Time) -> Mapping[Partition, int] | None:
        """Return the ends of the logs when a batch was planned; None unless this planner has planned it last. Any thread."""
        latest = self._latest
        return latest[1] if latest is not None and latest[0] == time else None
