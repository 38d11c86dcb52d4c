"""DirectInputDStream: the base of the direct streams. A Planner plans the ranges of a batch, and tasks read and report them."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from types import MappingProxyType
from typing import Any, ClassVar, TypeVar

from kstream.batch import BatchInfo, InputOutcome, SkippedRecord
from kstream.batch.input_progress import TOTAL_LAG
from kstream.batch.plan import FAIL, REPORT, SKIP, RangePlan
from kstream.batch_time import Time
from kstream.direct.planner import Planner
from kstream.direct.read_report_accumulator import ReadReportAccumulator
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import InputServices, StreamHost
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition, describe_offsets
from kstream.offsets.read_report import bytes_of, counts_of, errors_of, lost_ranges, oldest_of
from kstream.offsets.topic_offsets import by_topic
from kstream.worker.record_errors import KindCounts

R = TypeVar("R", bound=RangePlan)


class DirectInputDStream(InputDStream[R]):
    """A stream without receivers: the driver plans one offset range of every partition for each batch, and the tasks read them.

    A subclass makes the planner, begins it in `start`, and makes the RDD of a batch. The threads are those of `InputDStream`; besides,
    the thread that ends a batch calls `update_rate` and `batch_completed`.
    """

    adapts_rate = True
    logger: ClassVar[logging.Logger]
    """The log of the stream, for its losses."""

    def __init__(self, ssc: StreamHost, on_data_loss: str) -> None:
        """Create the stream and add it to the graph of its context.

        Args:
            ssc: the StreamingContext.
            on_data_loss: the policy for lost records, of DATA_LOSS_POLICIES.
        """
        super().__init__(ssc)
        self.on_data_loss = on_data_loss
        """The policy for lost records. A replay that tolerates losses skips them."""
        self._read_reports: ReadReportAccumulator | None = None

    @property
    @abstractmethod
    def planner(self) -> Planner[R]:
        """The planner of the stream."""

    @abstractmethod
    def _source_text(self, plan: R) -> str:
        """Return the system and the part of it that a plan reads, for the progress: `Kafka[Subscribe[orders]]`."""

    @property
    def tasks_report(self) -> bool:
        """Whether a policy lets a batch succeed without some of its records, so that all its partitions are read in each try."""
        return self.errors_policy != "fail" or self.on_data_loss != FAIL

    # -- planning

    def start(self, services: InputServices) -> None:
        """Tell the planner what batches of earlier drivers have cost. An override calls this method, and then begins the planner."""
        super().start(services)
        self.planner.admission.restore(services.last_batches, self.id)

    def start_replay(self, services: InputServices) -> None:
        """Get ready to return the RDDs of past batches; with `services.tolerate_loss` without the records that are lost."""
        super().start_replay(services)
        if services.tolerate_loss:
            self.on_data_loss = SKIP

    def restored(self, time: Time, plan: R) -> None:
        """Continue after the newest stored plan, at a restart. Asks nobody."""
        self.planner.restore(plan)

    def starting_point(self) -> R:
        """Return a plan of empty ranges at the starting offsets. Called after `start`. Asks nobody."""
        return self.planner.starting_point()

    def position_text(self) -> str:
        """Return the offset of each partition at which the next plan begins, in words."""
        return describe_offsets(self.planner.positions)

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Prepare to plan missed batches. May block; see `InputDStream.missed`."""
        return self.planner.missed(times)

    def plan(self, time: Time) -> R:
        """Plan a batch. Blocks on the source. Moves no offset: that is the task of `planned`. Raises the errors of the planner."""
        return self.planner.plan(time, self.services.open_batches())

    def planned(self, time: Time, plan: R) -> None:
        """Move the offsets to the ends of a plan that is durable now."""
        self.planner.planned(time, plan)

    def without(self, plan: R, skipped: Collection[SkippedRecord]) -> R:
        """Return the plan without these records. Its ranges and its stored form do not change. Pure."""
        made: Any = plan  # a dataclass
        return replace(made, skipped=frozenset(skipped))

    # -- limits

    @property
    def is_measuring(self) -> bool:
        """Whether the first batch with records runs, so that the next one would get none."""
        return self.planner.admission.is_measuring(self.services.open_batches())

    def update_rate(self, recordsPerSecond: int) -> None:
        """Let the partitions share this rate from the next plan on. Called by the thread that ends a batch."""
        self.planner.admission.update_rate(recordsPerSecond)

    def batch_completed(self, info: BatchInfo) -> None:
        """Note the speed of a batch and the length of its records. Called by the thread that ends a batch."""
        self.planner.admission.batch_completed(info, self.id, repr(self))

    # -- what a batch tells

    def metadata(self, time: Time, plan: R) -> Mapping[str, Any]:
        """Return the metadata of a batch for listeners and the progress report; see `metadata_of`. Asks nobody.

        The log ends, and with them the lag, are known only for the batch that this driver has planned last.
        """
        planner = self.planner
        limits = planner.admission.limits_of(time)
        return metadata_of(plan.ranges, planner.log_ends(time), planner.pinned, self._source_text(plan), limits)

    def _reports_of_tasks(self) -> ReadReportAccumulator:
        """Return the read reports of the tasks of this stream. The first call makes their accumulator, which needs a JVM."""
        if self._read_reports is None:
            self._read_reports = ReadReportAccumulator(self.ssc.sparkContext)
        return self._read_reports

    def leave_out(self, time: Time, skipped: Collection[SkippedRecord]) -> None:
        """Leave records out of a batch from now on, and drop what earlier tries have reported about its ranges."""
        super().leave_out(time, skipped)
        if self._read_reports is not None:
            self._read_reports.drop_counts(time.milliseconds)

    def outcome(self, time: Time, plan: R) -> InputOutcome:
        """Return how many records each range held, and which records were lost, by the reports of the tasks. Logs the losses.

        Called after all jobs of the batch have succeeded, and again only after an error of its own. Any thread. Asks nobody.
        """
        with nullcontext({}) if self._read_reports is None else self._read_reports.taken(time.milliseconds) as found:
            lost = [*plan.lost, *lost_ranges(found.get("lost", {}))]
            errors = errors_of(found)
            self._note_findings(time, lost, errors)
            counts = counts_of(plan.ranges, found.get("counts", {}), plan.skipped)
            records = sum(r.count() if count is None else count for r, count in zip(plan.ranges, counts, strict=True))
            for one in lost:
                text = "batch %s, lost records of %s-%d from %d: %s"
                self.logger.warning(text, time, one.topic, one.partition, one.lost_from, one.detail)
            kinds = [(*kind, number) for kind, (number, _) in sorted(errors.items())]
            told = [one.to_json() for one in lost]
            num_bytes, oldest = bytes_of(found, records), oldest_of(found)
            return InputOutcome(counts, told, self.on_data_loss == REPORT, sorted(plan.skipped), kinds, num_bytes, oldest)

    def _note_findings(self, time: Time, lost: Sequence[LostRange], errors: KindCounts) -> None:
        """Act on the losses and the record errors of a batch. Called by `outcome`; any thread. By default this does nothing.

        The Kafka stream logs the record errors here, and lets its next plan look at a topic that was made anew.
        """

    def clear_metadata(self, time: Time) -> None:
        """Drop the plans and the read reports of batches that are older than the remember duration."""
        super().clear_metadata(time)
        if self._read_reports is not None:
            self._read_reports.forget((time - self.remember_duration).milliseconds, self.planned_batches())


NO_LIMITS: Mapping[str, Any] = MappingProxyType({})


def metadata_of(
    ranges: Sequence[OffsetRange],
    latest: Mapping[Partition, int] | None,
    pinned: Mapping[Partition, int],
    description: str,
    limits: Mapping[str, Any] = NO_LIMITS,
) -> dict[str, Any]:
    """Return the metadata of a batch.

    Args:
        ranges: the planned ranges.
        latest: the ends of the logs when the batch was planned; None if they are unknown.
        pinned: partition → offset of a record from the future, under the by-timestamp policy.
        description: the system and the part of it that the stream reads, such as `Kafka[Subscribe[orders]]`.
        limits: what limits the batch; see `AdmissionControl.limits_of`.

    Returns:
        A dict with `offsets` (the ranges), `Description` (Spark's text about the ranges that are not empty) and `progress` (JSON values).
    """
    described = (f"topic: {r.topic}\tpartition: {r.partition}\toffsets: {r.fromOffset} to {r.untilOffset}" for r in ranges if r.count())
    return {
        "offsets": list(ranges),
        "Description": "\n".join(described),
        "progress": {**_progress(ranges, latest, pinned, description), **limits},
    }


def _progress(
    ranges: Sequence[OffsetRange], latest: Mapping[Partition, int] | None, pinned: Mapping[Partition, int], description: str
) -> dict[str, Any]:
    """Return the progress with the names of Structured Streaming. If the log ends are unknown, `latestOffset` and `metrics` are None."""
    progress: dict[str, Any] = {
        "description": description,
        "startOffset": by_topic({(r.topic, r.partition): r.fromOffset for r in ranges}),
        "endOffset": by_topic({(r.topic, r.partition): r.untilOffset for r in ranges}),
        "latestOffset": None,
        "metrics": None,
    }
    if latest is not None:
        progress["latestOffset"] = by_topic(latest)
        lags = [max(latest[r.topic, r.partition] - r.untilOffset, 0) for r in ranges if (r.topic, r.partition) in latest]
        if lags:
            progress["metrics"] = {
                "minOffsetsBehindLatest": min(lags),
                "maxOffsetsBehindLatest": max(lags),
                "avgOffsetsBehindLatest": sum(lags) / len(lags),
                TOTAL_LAG: sum(lags),
            }
    if pinned:
        progress["pinned"] = by_topic(pinned)
    return progress
