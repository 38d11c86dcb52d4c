"""ReadReportAccumulator: the read reports of the tasks of one direct stream, merged on the driver by an accumulator of Spark."""

from __future__ import annotations

import threading
from collections.abc import Collection, Generator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Time
from kstream.offsets.read_report import ReportData, merge
from kstream.worker.record_errors import StoredLetters, add_letters, number_of

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.accumulators import Accumulator


MOST_TOLD = 20_000
"""The most dead letters that the tasks of an output are told of: two bytes each in every task."""


class ReadReportParam:
    """Merges reports for Spark's accumulator. Workers begin with an empty dict, and the driver merges the reports that they send.

    `lock` guards the driver's dict. Three threads change the dict: Spark's accumulator thread adds reports, the thread that ends a batch
    takes one, and the generator's thread drops old ones. No code under the lock blocks.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()

    def __reduce__(self) -> Any:
        return ReadReportParam, ()  # tasks get a copy with its own lock

    def zero(self, value: dict[int, ReportData]) -> dict[int, ReportData]:
        """Return the value with which a worker begins. Called by Spark."""
        return {}

    def addInPlace(self, value1: dict[int, ReportData], value2: dict[int, ReportData]) -> dict[int, ReportData]:
        """Merge `value2` into `value1` and return `value1`. Called by Spark, in workers and in the driver's accumulator thread."""
        with self.lock:
            return merge(value1, value2)


class ReadReportAccumulator:
    """The driver's accumulator of the reports of one stream in one SparkContext. Thread-safe.

    The report of a task arrives with the task's result, before the caller of the job knows that the job has ended.
    """

    def __init__(self, sc: SparkContext) -> None:
        self.param = ReadReportParam()
        self.accumulator: Accumulator[dict[int, ReportData]] = sc.accumulator({}, self.param)  # pyright: ignore[reportArgumentType]
        """Spark's accumulator, to which tasks add their reports. It is pickled into the tasks by its number."""
        self._letters_of_ended: dict[int, StoredLetters] = {}
        """Batch time in ms → its letters, of batches whose reports were taken. A window of later batches may read their ranges again."""

    def take(self, time_ms: int) -> ReportData:
        """Remove and return the report of a batch. Its letters are kept until `forget`, as far as they may be told. Any thread.

        Args:
            time_ms: the batch time, in ms.

        Returns:
            {"counts": …, "lost": …}, both possibly empty, "bytes" if they are known, and "errors" if records failed. `lost` also has the
            losses of older batches that were found after their end, because a window reads their ranges again.
        """
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            found = known.pop(time_ms, {})
            if "letters" in found:
                add_letters(self._letters_of_ended.setdefault(time_ms, {}), found["letters"])
                self._letters_of_ended = newest_letters(self._letters_of_ended)
            lost = dict(found.get("lost", {}))
            for older in [t for t in known if t < time_ms]:
                lost.update(known[older].get("lost", {}))
                known[older]["lost"] = {}
        return {**found, "counts": found.get("counts", {}), "lost": lost}

    @contextmanager
    def taken(self, time_ms: int) -> Generator[ReportData]:
        """Take the report of a batch for the body. If the body raises, the report is as before: it is asked for again. Any thread."""
        found = self.take(time_ms)
        try:
            yield found
        except BaseException:
            with self.param.lock:
                merge(self.accumulator.value, {time_ms: found})
            raise

    def errors(self, time_ms: int) -> ReportData:
        """Return the counts, the record errors and the undelivered dead letters of a batch so far. Any thread.

        The undelivered ones are removed: they fail the job that has just ended, and not its next try.
        """
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            found = known.get(time_ms, {})
            undelivered = found.pop("undelivered", {})
            errors = {start: dict(kinds) for start, kinds in found.get("errors", {}).items()}
            return {"counts": dict(found.get("counts", {})), "errors": errors, "undelivered": undelivered}

    def add_letters(self, found: Mapping[int, StoredLetters]) -> None:
        """Add dead letters that earlier drivers have stored, by batch time in ms, as if tasks had reported them. Any thread."""
        if found:
            self.accumulator.add({time_ms: {"letters": letters} for time_ms, letters in found.items()})

    def letters_until(self, time_ms: int) -> dict[int, StoredLetters]:
        """Return the stored dead letters of a batch and of older ones, as far as they may be told to tasks. Any thread.

        Returns:
            Batch time in ms → its letters: MOST_TOLD of the newest batches, none of a batch with more.
        """
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            times = {t for t in (*known, *self._letters_of_ended) if t <= time_ms}
            return newest_letters({t: self._letters_of(t) for t in times})

    def _letters_of(self, time_ms: int) -> StoredLetters:
        """Return a copy of the letters of a batch. Under the lock."""
        known: dict[int, ReportData] = self.accumulator.value
        letters: StoredLetters = {}
        for some in known.get(time_ms, {}).get("letters", {}), self._letters_of_ended.get(time_ms, {}):
            add_letters(letters, some)
        return letters

    def drop_counts(self, time_ms: int) -> None:
        """Drop what is counted and measured of a batch that is read again with other splits, because records are left out.

        Its losses and its dead letters stay. Any thread.
        """
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            if time_ms in known:
                known[time_ms]["counts"] = {}
                known[time_ms].pop("bytes", None)
                known[time_ms].pop("oldest", None)
                known[time_ms].pop("errors", None)

    def forget(self, up_to_ms: int, kept: Collection[Time] = ()) -> None:
        """Drop the reports of old batches: those that arrived after `take`, or that nobody took. Any thread.

        Args:
            up_to_ms: the newest batch time to drop, in ms.
            kept: the batches whose plans are kept: they may have no outcome yet.
        """
        times = {time.milliseconds for time in kept}
        with self.param.lock:
            known: dict[int, ReportData] = self.accumulator.value
            for dated in known, self._letters_of_ended:
                for old in [t for t in dated if t <= up_to_ms and t not in times]:
                    del dated[old]


def newest_letters(batches: Mapping[int, StoredLetters]) -> dict[int, StoredLetters]:
    """Return the letters of the newest batches, MOST_TOLD at most, newest first. Batches that do not fit whole are left out. Pure."""
    kept: dict[int, StoredLetters] = {}
    room = MOST_TOLD
    for time_ms, letters in sorted(batches.items(), reverse=True):
        if 0 < (number := number_of(letters)) <= room:
            kept[time_ms] = letters
            room -= number
    return kept
