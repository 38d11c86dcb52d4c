"""StoredStream: the stored plans of one input of this job, decoded, for a start that continues from a log."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic

from kstream.batch import BatchPlan
from kstream.batch_time import Time
from kstream.checkpoint import LogContents
from kstream.checkpoint.reader import PlanKey
from kstream.dstream.input_dstream import InputDStream, P
from kstream.errors import NotRecoverableError


@dataclass(frozen=True, slots=True)
class StoredStream(Generic[P]):
    """The plans of an input in the log of earlier drivers. A start decodes each of them once, here, and hands them on. Immutable.

    Attributes:
        stream: the input of this job.
        plans: batch time → plan, oldest first; empty for a stream that begins.
        removed: batch time and epoch → plan, of those that settled intervals have in place of removed ones; None for the plan of another
            kind of input.
        kept: the plan that `left_behind` has kept; None for none, and for a stream that begins.
    """

    stream: InputDStream[P]
    plans: Mapping[Time, P]
    removed: Mapping[PlanKey, P | None] = field(default_factory=dict[PlanKey, "P | None"])
    kept: P | None = None

    @staticmethod
    def of(stream: InputDStream[P], contents: LogContents) -> StoredStream[P]:
        """Decode the plans of an input.

        Args:
            stream: the input.
            contents: those of the log, with the stream numbers of this job (`rebound`).

        Raises:
            CorruptRecordError: the input cannot read its data in a record.
            NotRecoverableError: the stored data belongs to another kind of input.
        """
        plans = {time: stream.decoded(plan) for time, plan in sorted(contents.plans.items()) if stream.id in plan.inputs}
        in_log = {(time, plan.epoch) for time, plan in contents.plans.items()}
        settled = {(plan.time, plan.epoch): plan for interval in contents.settled for plan in interval.plans if stream.id in plan.inputs}
        removed = {key: _of_this_kind(stream, plan) for key, plan in settled.items() if key not in in_log}
        kept = contents.kept_offsets if plans else None
        return StoredStream(stream, plans, removed, stream.decoded(kept) if kept is not None and stream.id in kept.inputs else None)

    @property
    def newest(self) -> tuple[Time, P] | None:
        """The newest plan with its batch time; None for a stream that begins."""
        time = max(self.plans, default=None)
        return None if time is None else (time, self.plans[time])

    def reads_nothing(self) -> str:
        """Return why the stored plans seem to be of another job; empty if they do not. See `InputDStream.reads_nothing_of`."""
        return "" if self.newest is None else self.stream.reads_nothing_of(self.newest[1], self.kept)

    def left_behind(self) -> P | None:
        """Return the part of the plans that must be kept; None for nothing. See `InputDStream.left_behind`."""
        return None if self.newest is None else self.stream.left_behind(self.newest[1], self.kept)

    def skipped_between(self, before: BatchPlan, after: BatchPlan) -> Sequence[str]:
        """Return the data between two consecutive plans that neither of them has. See `InputDStream.skipped_between`.

        Args:
            before: a plan of the log, or one of a settled interval.
            after: the next one.
        """
        first, second = self._plan(before), self._plan(after)
        return () if first is None or second is None else self.stream.skipped_between(first, second)

    def _plan(self, record: BatchPlan) -> P | None:
        """Return the plan of this input in a record that has one; None for a removed plan of another kind of input."""
        key = record.time, record.epoch
        return self.removed[key] if key in self.removed else self.plans[record.time]

    def restore(self) -> None:
        """Let the input continue behind its newest plan, and keep its plans. Before its `start`.

        Raises:
            NotRecoverableError: the input cannot continue from there.
        """
        if self.newest is not None:
            self.stream.restored(*self.newest)
            if self.kept is not None:
                self.stream.restored_kept(self.kept)
        for time, plan in self.plans.items():
            self.stream.remember_plan(time, plan)


def _of_this_kind(stream: InputDStream[P], plan: BatchPlan) -> P | None:
    """Return the plan of an input in a record; None if it belongs to another kind of input. Raises CorruptRecordError."""
    try:
        return stream.decoded(plan)
    except NotRecoverableError:
        return None
