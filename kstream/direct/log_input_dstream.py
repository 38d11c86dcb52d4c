"""LogInputDStream: the direct stream of any Log. Each batch is one offset range of every partition."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from kstream.batch import BatchInfo, InputOutcome, Json, SkippedRecord
from kstream.batch.log_progress import metadata_of, outcome_of
from kstream.batch.plan import DATA_LOSS_POLICIES, FAIL, REPORT, SKIP
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.direct.log_plan import KIND, LogPlan
from kstream.direct.read_report_accumulator import ReadReportAccumulator
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import InputServices, StreamHost
from kstream.dstream.recipe import Recipe
from kstream.errors import ConfigurationError, DataLossError, NotRecoverableError
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.log import Log, beginnings_of, ends_of, with_retries
from kstream.offsets.log_ends import Ends, ends_at_times, times_with_records
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition, describe_offsets, skipped_between
from kstream.offsets.positions import Positions, PositionsLike
from kstream.offsets.read_report import counts_of, lost_ranges
from kstream.offsets.settings import DOWNTIME, LOG_FIRST_BATCH_RECORDS, LOG_MAX_RATE_PER_PARTITION, LOG_ON_DATA_LOSS
from kstream.offsets.starting_offsets import resolve
from kstream.scheduler.settings import BACKPRESSURE_ENABLED, CONCURRENT_JOBS, INITIAL_RATE

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.batch_time import BatchTime
    from kstream.direct.log_rdd import LogRDD
    from kstream.dstream.dstream import DStream
    from kstream.output import Output

logger = logging.getLogger("kstream.offsets")
T = TypeVar("T")
U = TypeVar("U")


class LogInputDStream(InputDStream[LogPlan]):
    """The direct stream of a Log: exact over restarts, with offset ranges that commands show.

    The driver asks the Log for its ends once a batch. The tasks read the ranges. Spark's rate settings for back-pressure hold, and
    `spark.streaming.kstream.log.maxRatePerPartition`. Lost records follow `spark.streaming.kstream.log.onDataLoss`.

    Example:
        rows = LogInputDStream(ssc, EventsTable("/var/lib/orders/events.db"), startingOffsets="earliest")
        rows.foreachRDD(lambda rdd: print(rdd.offsetRanges(), rdd.count()))
    """

    operator = "log stream"
    adapts_rate = True

    def __init__(
        self,
        ssc: StreamHost,
        log: Log,
        startingOffsets: Positions | PositionsLike = "latest",
        maxRecordsPerTask: int = 0,
        *,
        clock: Clock | None = None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """Create the stream and add it to the graph of its context. Does not ask the Log.

        Args:
            ssc: the StreamingContext.
            log: the Log. Tasks get a pickled copy.
            startingOffsets: where the first start begins: "earliest", "latest", "-1000" (records before the end), or offsets by partition;
                where the Log has times also "-10m", a datetime or ISO time. A partition that comes later begins at its earliest offset.
            maxRecordsPerTask: the length above which several tasks read a range; 0 is no limit.
            clock: the clock, for tests; None for the system's.
            pause: waits for seconds between attempts, for tests.

        Raises:
            ConfigurationError: the Log has no name, or a starting offset cannot be understood.
        """
        if not log.name:
            raise ConfigurationError(f"{type(log).__name__} has no `name`: set it to one word for the system", key="name", value="")
        self._starting_offsets = Positions.parse(startingOffsets, "startingOffsets")
        super().__init__(ssc)
        self.log = log
        self._max_records_per_task = maxRecordsPerTask
        self._clock = clock or SystemClock()
        self._pause = pause
        self._next: dict[Partition, int] | None = None
        self._latest: tuple[Time, Mapping[Partition, int]] | None = None
        self._past_ends: dict[int, Ends] = {}
        self._gone: set[Partition] = set()
        """Partitions that the Log no longer has, and whose loss is in a plan of this driver."""
        self._reports: ReadReportAccumulator | None = None
        self._admission = AdmissionControl(AdmissionSettings(), self.slide_duration)

    # -- life

    def start(self, services: InputServices) -> None:
        """Ask the Log for its ends, and at a first start for the starting offsets. Blocks. An error of the Log fails `ssc.start()`.

        Raises:
            ConfigurationError: a policy does not exist, or a starting offset cannot be resolved.
        """
        super().start(services)
        self._admission = AdmissionControl(self._admission_settings(), self.slide_duration)
        self._admission.restore(services.last_batches, self.id)
        policy = self._on_data_loss()
        if policy not in DATA_LOSS_POLICIES:
            raise ConfigurationError(
                f"{LOG_ON_DATA_LOSS} is {policy!r}; it must be one of {', '.join(DATA_LOSS_POLICIES)}",
                key=LOG_ON_DATA_LOSS.key,
                value=policy,
            )
        if self._next is None:
            self._next = self._ask(lambda: resolve(self.log, self._starting_offsets, self._clock.time_ms()))
        else:
            self._ends()  # a Log that cannot be reached fails the start, and not the first batch

    def decode(self, data: Mapping[str, Json]) -> LogPlan:
        """Return the plan of a stored form. NotRecoverableError if the data is of another kind of input or of another Log."""
        if "log" not in data:
            raise self.another_kind(data)
        if data["log"] != self.log.name:
            raise NotRecoverableError(
                f"{self!r} reads the log {self.log.name!r}, and its stored plans are of the log {data['log']!r}: the `name` of the Log or "
                "the order of the inputs has changed. Restore it, or use a new checkpoint directory."
            )
        return LogPlan.decode(data)

    def _ends(self) -> dict[Partition, int]:
        """Return the end of each partition. Blocks on the Log."""
        return self._ask(lambda: ends_of(self.log))

    def _ask(self, call: Callable[[], T]) -> T:
        """Return the result of a question to the Log, which is repeated after retriable errors. Blocks."""
        return with_retries(call, f"{self.log.name}: the question for offsets", self._pause)

    # -- planning

    def starting_point(self) -> LogPlan:
        """Return a plan of empty ranges at the starting offsets. Called after `start`."""
        return LogPlan.empty_at(self.log.name, self._offsets())

    def position_text(self) -> str:
        """Return the offset of each partition at which the next plan begins, in words."""
        return describe_offsets(self._offsets())

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Ask the Log where it ended at each missed time, if the policy is by-timestamp. Blocks.

        Returns:
            The times with records, or all if a rate limits batches. None under catch-up, and for a Log without times.
        """
        if self.ssc.settings[DOWNTIME] != "by-timestamp" or not times:
            return None
        now = self._offsets()
        if self._ask(lambda: self.log.offsets_at(times[0].milliseconds)) is None:
            logger.warning("%s has no times: downtime=by-timestamp has no effect, the first missed batch takes all records", self.log.name)
            return None

        def offsets_at(stamps: Sequence[int]) -> list[Mapping[Partition, int | None]]:
            return [self._ask(lambda ms=ms: self.log.offsets_at(ms)) or {} for ms in stamps]

        stamps = [at.milliseconds for at in times]
        self._past_ends = ends_at_times(offsets_at, stamps, self._ends())
        if self._admission.caps_rates:
            return times
        return [Time(ms) for ms in times_with_records(stamps, self._past_ends, now)]

    def plan(self, time: Time) -> LogPlan:
        """Plan a batch: each range ends at the end of its partition, or earlier by the rate limits. Blocks on the Log; moves no offset.

        Under by-timestamp, a missed batch ends where the Log ended at its time.

        Raises:
            DataLossError: a partition is gone or ends before the next offset, and losses are not tolerated.
            Exception: another error of the Log.
        """
        then = self._past_ends.get(time.milliseconds)
        latest = self._ends() if then is None else then
        current, lost = self._current(latest, missed=then is not None)
        if lost and self._on_data_loss() == FAIL:
            found = "; ".join(f"{self.log.name} {entry.topic}-{entry.partition}: {entry.detail}" for entry in lost)
            raise DataLossError(f"{found}. To continue without these records, restart with {LOG_ON_DATA_LOSS}=skip")
        self._latest = (time, latest)
        ends = {p: max(latest.get(p, at), at) for p, at in current.items()}
        if then is None:
            until = self._admission.admit(time, current, ends, self.services.open_batches())
        else:
            until = self._admission.admit_missed(time, current, ends)
        return LogPlan(self.log.name, [OffsetRange(*p, at, until[p]) for p, at in sorted(current.items())], lost)

    def _current(self, latest: Mapping[Partition, int], missed: bool) -> tuple[dict[Partition, int], list[LostRange]]:
        """Return where each partition begins in the next plan, and the losses that this shows. Blocks if there is a new partition.

        A partition that is gone keeps an empty range at its next offset. If it comes back, the stream reads on from there.

        Args:
            latest: the end of each partition.
            missed: whether these are ends in the past, at the time of a missed batch. Then one before the next offset is no loss.
        """
        now = self._offsets()
        new = latest.keys() - now.keys()
        earliest = self._ask(lambda: beginnings_of(self.log)) if new else {}
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
        """Move the offsets to the ends of a plan that is durable now."""
        self._next = plan.until_offsets
        if self._latest is not None and self._latest[0] == time and time.milliseconds not in self._past_ends:
            self._admission.planned(time, plan.ranges, self._latest[1])
        deleted = {(entry.topic, entry.partition) for entry in plan.lost if entry.cause == "deletion"}
        self._gone = (self._gone | deleted) - (self._latest[1].keys() if self._latest is not None else set())
        self._past_ends = {ms: ends for ms, ends in self._past_ends.items() if ms > time.milliseconds}

    def skipped_between(self, before: LogPlan, after: LogPlan) -> Sequence[str]:
        """Return the offsets between two consecutive plans that neither plan has, as texts. Pure."""
        return skipped_between(before.until_offsets, after.ranges, after.lost)

    def _offsets(self) -> dict[Partition, int]:
        """Return the next offset of each partition. RuntimeError before the start."""
        if self._next is None:
            raise RuntimeError("plan before start")
        return self._next

    def update_rate(self, recordsPerSecond: int) -> None:
        """Let the partitions share this rate from the next plan on. Called by the thread that ends a batch."""
        self._admission.update_rate(recordsPerSecond)

    @property
    def is_measuring(self) -> bool:
        """Whether the first batch with records runs, so that the next one would get none."""
        return self._admission.is_measuring(self.services.open_batches())

    def batch_completed(self, info: BatchInfo) -> None:
        """Note the speed of a batch. Called by the thread that ends a batch."""
        self._admission.batch_completed(info, self.id, repr(self))

    def _admission_settings(self) -> AdmissionSettings:
        """Return the limits of a batch."""
        settings = self.ssc.settings
        most = settings[LOG_MAX_RATE_PER_PARTITION]
        return AdmissionSettings(
            max_rate=lambda _: most,
            caps_rates=most > 0,
            backpressure=settings[BACKPRESSURE_ENABLED],
            initial_rate=settings[INITIAL_RATE],
            concurrent_jobs=settings[CONCURRENT_JOBS],
            first_records=settings[LOG_FIRST_BATCH_RECORDS],
        )

    @property
    def tasks_report(self) -> bool:
        """Whether the policy lets a batch succeed without some of its records."""
        return self._on_data_loss() != FAIL

    def _on_data_loss(self) -> str:
        """Return the policy for data loss. A replay that tolerates losses skips them."""
        return SKIP if self.services.tolerate_loss else self.ssc.settings[LOG_ON_DATA_LOSS]

    # -- the batch

    def rdd(self, time: Time, plan: LogPlan) -> LogRDD:
        """Return the LogRDD of the plan's ranges. The tasks read the Log, and raise the errors of the read."""
        from kstream.direct.log_rdd import LogRDD  # imported late, because it needs a JVM and planning does not

        sc = self.ssc.sparkContext
        if self._reports is None:
            self._reports = ReadReportAccumulator(sc)
        tolerate = self._on_data_loss() != FAIL
        return LogRDD(sc, self.log, plan.ranges, self._max_records_per_task, self._reports, time.milliseconds, tolerate, plan.skipped)

    def without(self, plan: LogPlan, skipped: Collection[SkippedRecord]) -> LogPlan:
        """Return the plan without these records. Its ranges and its stored form do not change. Pure."""
        return replace(plan, skipped=frozenset(skipped))

    def leave_out(self, time: Time, skipped: Collection[SkippedRecord]) -> None:
        """Leave records out of a batch from now on, and drop what earlier tries have reported about its ranges."""
        super().leave_out(time, skipped)
        if self._reports is not None:
            self._reports.drop_counts(time.milliseconds)

    def metadata(self, time: Time, plan: LogPlan) -> Mapping[str, Any]:
        """Return the metadata of a batch for listeners and the progress report. The lag is known for the batch planned last."""
        latest = self._latest[1] if self._latest is not None and self._latest[0] == time else None
        description = f"{self.log.name}[{', '.join(sorted({r.topic for r in plan.ranges}))}]"
        return metadata_of(plan.ranges, latest, {}, description, self._admission.limits_of(time))

    def outcome(self, time: Time, plan: LogPlan) -> InputOutcome:
        """Return how many records each range held, and the lost ranges. Logs the losses. Any thread."""
        with nullcontext({}) if self._reports is None else self._reports.taken(time.milliseconds) as found:
            lost = [*plan.lost, *lost_ranges(found.get("lost", {}))]
            counts = counts_of(plan.ranges, found.get("counts", {}), plan.skipped)
            return outcome_of(time, counts, lost, self._on_data_loss() == REPORT, logger, plan.skipped)

    def clear_metadata(self, time: Time) -> None:
        """Drop the plans and the read reports of batches that are older than the remember duration."""
        super().clear_metadata(time)
        if self._reports is not None:
            self._reports.forget((time - self.remember_duration).milliseconds, self.planned_batches())

    if TYPE_CHECKING:  # type checkers know the RDDs of this stream, which have offset ranges

        def transform(self, func: Callable[[LogRDD], RDD[U]] | Callable[[BatchTime, LogRDD], RDD[U]]) -> DStream[U]: ...

        def foreachRDD(self, func: Callable[[LogRDD], Any] | Callable[[BatchTime, LogRDD], Any] | Output) -> None: ...

    # -- recovery without setup

    def recipe(self) -> Recipe:
        """Return how to create the stream again. `params` are the parameters of the Log, for commands, if it has any to store."""
        args: dict[str, Json] = {"startingOffsets": self._starting_offsets.to_json(), "maxRecordsPerTask": self._max_records_per_task}
        params = self.log.parameters()
        if params is not None:
            args["params"] = dict(params)
        log: Any = self.log
        return Recipe(KIND + self.log.name, args, {"log": log})

    def worker_functions(self) -> Sequence[Any]:
        """Return the Log, which the tasks get. start() tries to pickle it."""
        return [self.log]

    @staticmethod
    def from_recipe(ssc: StreamHost, recipe: Recipe) -> LogInputDStream:
        """Create the stream from the result of `recipe`, at a restart."""
        log: Any = recipe.functions["log"]
        return LogInputDStream(ssc, log, Positions.from_json(recipe.args["startingOffsets"]), recipe.args["maxRecordsPerTask"])
