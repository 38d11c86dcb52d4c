"""EpochTask: the loop of a continuous task in a worker, from its identity to its end.

A run first takes the identity of its task, and only then asks the driver whether it may write, and from where. So a run that wakes up late
takes the identity late and is refused; and the identity of a run that was accepted is taken from it by a later hand-over.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any, TypeAlias

from kstream.clock import Clock
from kstream.continuous.messages import STOP_TASK, CoordinatorLink, FailedRecord
from kstream.continuous.ports import Chunk, EpochOutput, UnboundedLog
from kstream.continuous.task_report import TaskReport, latencies_of
from kstream.errors import RpcError, RpcRefusedError, one_line
from kstream.loop import Event, Runtime
from kstream.offsets.offset_range import Partition

logger = logging.getLogger(__name__)
ChunkFunction: TypeAlias = Callable[[Iterator[Any]], Iterable[Any]]
"""The user's function: gets the records of a chunk, and returns what is written, as in `mapPartitions`."""


@dataclass(frozen=True, slots=True)
class EpochLimits:
    """When an epoch ends, and how long a task goes on without its driver.

    Attributes:
        epoch_ms: the time from the first record of an epoch until it is ended.
        epoch_bytes: the bytes of outputs at which it is ended earlier.
        idle_ms: the longest wait for a record, and so about the longest time until a command to stop is obeyed.
        report_ms: the least time between two reports.
        driver_ms: the time without an answer of the driver after which the run ends itself.
    """

    epoch_ms: int = 100
    epoch_bytes: int = 16 * 1024 * 1024
    idle_ms: int = 200
    report_ms: int = 1000
    driver_ms: int = 60_000


class EpochTask:
    """One run of a task. It runs once, on the thread that calls `run`; a second thread talks with the driver meanwhile."""

    def __init__(
        self, log: UnboundedLog, output: EpochOutput, function: ChunkFunction, clock: Clock, runtime: Runtime, limits: EpochLimits
    ) -> None:
        """Make a run; `run` runs it.

        Args:
            log: what it reads. It is closed at the end.
            output: where it writes. It is closed at the end.
            function: the user's function.
            clock: its monotonic time ends epochs, its wall clock measures latencies.
            runtime: makes the second thread.
            limits: when an epoch ends.
        """
        self._log = log
        self._output = output
        self._function = function
        self._clock = clock
        self._runtime = runtime
        self._limits = limits
        self._over = runtime.event()
        self._reporter = _Reporter()
        self._moved: dict[Partition, int] = {}
        """The position behind this epoch, of each partition of which it has records."""
        self._at: dict[Partition, int] = {}
        """The position of each partition."""
        self._report = TaskReport()
        self._begun_ms = 0
        self._taken: _Taken | None = None
        """The chunk on which the user's function works."""

    def run(self, link: CoordinatorLink) -> None:
        """Take the identity of the task, ask the driver, and process records until the driver stops the run, or is gone. Blocks.

        A run that the driver refuses ends at once. An error ends the run, and is reported to the driver first.

        Raises:
            FencedError: another run has taken the identity.
            RpcError: the driver has not answered the registration.
            KStreamError: of the log or of the output.
            Exception: of the user's function.
        """
        try:
            self._output.open()
            positions = link.register()
            if positions is None:
                logger.info("continuous task %d: the driver refuses run %d, which ends", link.run.task, link.run.run)
                return
            follower = _Follower(link, self._reporter, self._over, self._clock, self._limits)
            self._runtime.thread(follower.follow, f"ContinuousTask-{link.run.task}-commands").start()
            try:
                self._process(positions)
            except Exception as e:
                self._over.set()
                self._tell_failure(link, e)
                raise
            self._over.set()
            _tell(follower.report)
            _tell(link.deregister)
        finally:
            self._over.set()
            self._log.close()
            self._output.close()

    def _tell_failure(self, link: CoordinatorLink, error: Exception) -> None:
        record = None if self._taken is None else self._taken.record()
        _tell(lambda: link.failed(error, record))

    def _process(self, positions: dict[Partition, int]) -> None:
        self._at = dict(positions)
        self._log.assign(positions)
        while not self._over.is_set():
            for chunk in self._log.poll(self._wait_ms() / 1000):
                self._add(chunk)
                if self._output.num_bytes >= self._limits.epoch_bytes:
                    self._end()
            if self._moved and self._wait_ms() <= 0:
                self._end()
        self._end()

    def _wait_ms(self) -> int:
        """Return how long a poll may wait for records: until the end of the epoch, if one has begun."""
        if not self._moved:
            return self._limits.idle_ms
        return max(0, self._begun_ms + self._limits.epoch_ms - self._clock.monotonic_ms())

    def _add(self, chunk: Chunk) -> None:
        """Add what the user's function makes of a chunk to the epoch. A chunk without records begins none."""
        if chunk.records:
            if not self._moved:
                self._begun_ms = self._clock.monotonic_ms()
            self._output.add(self._made(chunk))
            self._report = self._report.plus(TaskReport({}, 0, len(chunk.records), chunk.num_bytes, chunk.newest_ms))
        if chunk.records or chunk.partition in self._moved:
            self._moved[chunk.partition] = chunk.until
        self._at[chunk.partition] = chunk.until

    def _made(self, chunk: Chunk) -> Iterator[Any]:
        """Yield what the user's function makes of a chunk. While it works, or after it has raised, `_taken` is set."""
        records = iter(chunk.records)
        self._taken = taken = _Taken(chunk, records, self._at[chunk.partition])
        results = iter(self._function(records))
        while True:
            self._taken = taken
            try:
                made = next(results)
            except StopIteration:
                break
            self._taken = None  # an error while it is written is not the user's
            yield made
        self._taken = None

    def _end(self) -> None:
        """End the epoch, if one has begun."""
        if not self._moved:
            return
        self._output.end(dict(self._moved))
        newest = self._report.newest_ms
        counted = TaskReport(self._moved, 1) if newest is None else _one_epoch(self._moved, self._clock.time_ms() - newest)
        self._reporter.add(self._report.plus(counted))
        self._moved, self._report = {}, TaskReport()


def _one_epoch(moved: dict[Partition, int], latency_ms: int) -> TaskReport:
    return TaskReport(moved, 1, latencies=latencies_of(latency_ms))


@dataclass(frozen=True, slots=True)
class _Taken:
    """A chunk, and the iterator by which the user's function takes its records. An iterator of a sequence knows how many are left."""

    chunk: Chunk
    records: Iterator[Any]
    begins: int

    def record(self) -> FailedRecord:
        """Return the record that was taken last; the first one if none was, or if the log knows no offsets."""
        chunk, place = self.chunk, len(self.chunk.records) - length_hint(self.records) - 1
        offsets: Sequence[int] = chunk.offsets or (self.begins,)
        return FailedRecord(*chunk.partition, offsets[max(0, min(place, len(offsets) - 1))])


class _Reporter:
    """What is to be reported. Both threads of a task call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._report = TaskReport()

    def add(self, report: TaskReport) -> None:
        with self._lock:
            self._report = self._report.plus(report)

    def take(self) -> TaskReport:
        with self._lock:
            report, self._report = self._report, TaskReport()
        return report

    def give_back(self, report: TaskReport) -> None:
        """Take back a report that the driver has not got."""
        with self._lock:
            self._report = report.plus(self._report)


class _Follower:
    """Reports the epochs, and asks for commands, on a thread of its own. Sets `over` at a command to stop, and when the driver is gone."""

    def __init__(self, link: CoordinatorLink, reporter: _Reporter, over: Event, clock: Clock, limits: EpochLimits) -> None:
        self._link = link
        self._task = link.run.task
        self._reporter = reporter
        self._over = over
        self._clock = clock
        self._limits = limits

    def follow(self) -> None:
        """Talk with the driver until the run is over. Blocks."""
        answered = self._clock.monotonic_ms()
        reported = answered
        while not self._over.is_set():
            now = self._clock.monotonic_ms()
            try:
                if now - reported >= self._limits.report_ms:
                    reported = now
                    self.report()
                command = self._link.next_command()
            except RpcError as e:
                if isinstance(e, RpcRefusedError) or self._clock.monotonic_ms() - answered >= self._limits.driver_ms:
                    logger.warning("continuous task %d: its driver does not answer, and the run ends: %s", self._task, one_line(e))
                    self._over.set()
                self._clock.wait(self._limits.report_ms, self._over)
                continue
            answered = self._clock.monotonic_ms()
            if command == STOP_TASK:
                self._over.set()

    def report(self) -> None:
        """Send what there is to report. RpcError: it is sent with the next report."""
        report = self._reporter.take()
        if report.epochs:
            try:
                self._link.report(report)
            except RpcError:
                self._reporter.give_back(report)
                raise


def _tell(message: Callable[[], None]) -> None:
    """Send a last message. The driver learns of the end by the end of the job, too."""
    try:
        message()
    except RpcError as e:
        logger.warning("%s", one_line(e))
