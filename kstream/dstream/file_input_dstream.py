"""FileInputDStream: each batch has the files that have arrived in a directory since the last one.

The stored form of its FilePlan:

    {"kind": "files", "files": [[path, mtime_ms, size], …], "since": ms, "listed": ms}

If a file has changed since a batch took it, there is also `"changed": [[path, size as taken, size found], …]`.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.batch import InputOutcome, Json, PlannedInput
from kstream.batch.plan import FILES, kind_of
from kstream.batch_time import Duration, Time
from kstream.clock import Clock
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import StreamHost
from kstream.errors import KStreamError
from kstream.files import Change, FileFormat, FileSource, FileStatus, Selection
from kstream.files.settings import MIN_REMEMBER

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger(__name__)
Filter = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class FilePlan(PlannedInput):
    """The files of a batch, sorted by path. Their records are counted as 0, because nobody knows their number before the files are read."""

    files: Sequence[FileStatus]
    since_ms: int
    """Files modified at this time (ms) or before are never taken. The time when the stream was first made; 0 with `newFilesOnly=False`."""
    listed_ms: int
    """The newest batch time (ms), or start, by which the whole directory had been listed."""
    changes: Sequence[Change] = ()
    """Files that have changed since a batch took them."""

    @property
    def num_records(self) -> int:
        return 0

    @property
    def is_empty(self) -> bool:
        return not self.files

    def encode(self) -> Mapping[str, Json]:
        """Return the stored form; see the module."""
        files = [file.to_json() for file in self.files]
        data: dict[str, Json] = {"kind": FILES, "files": files, "since": self.since_ms, "listed": self.listed_ms}
        if self.changes:
            data["changed"] = [[change.path, change.taken, change.found] for change in self.changes]
        return data

    @staticmethod
    def decode(data: Mapping[str, Json]) -> FilePlan:
        """Return the plan whose `encode` gave this data. KeyError if the data is of another kind of input."""
        files = [FileStatus.from_json(row) for row in data["files"]]
        return FilePlan(files, data["since"], data["listed"], [Change(*row) for row in data.get("changed", ())])


class FileInputDStream(InputDStream[FilePlan]):
    """Spark's file stream: the driver lists the directory once a batch, `kstream.files.Selection` selects files, and workers read them.

    The user's `filter(path)` is called for each file that would be taken. Listeners get 0 records, as from Spark, because the number of
    records in a file is not known before it is read. If a listing fails, a warning is logged and the batch has no files, as with Spark.
    The next listing that succeeds finds all files that came meanwhile.

    Downtime: each missed batch takes the files of its interval, under both policies, as in Spark. All missed batches are planned from one
    listing.
    """

    operator = "file stream"
    no_recipe_reason: str = "a file stream made by its class instead of by the context"

    def __init__(
        self, ssc: StreamHost, source: FileSource, format: FileFormat, clock: Clock, filter: Filter | None = None, newFilesOnly: bool = True
    ) -> None:
        super().__init__(ssc)
        self._source = source
        self._format = format
        self._clock = clock
        self._filter: Filter = filter or (lambda _path: True)
        window = remember_window(self.slide_duration, self.ssc.settings[MIN_REMEMBER])
        self.remember(window)
        # As in Spark, the time of making the stream counts, not that of `start`: files that came in between are new.
        self._selection = Selection(window, clock.time_ms() if newFilesOnly else 0)
        self._survey: tuple[Time, list[FileStatus]] | None = None
        self._trouble = ""

    # -- planning

    def starting_point(self) -> FilePlan:
        """Return a plan without files. It stores the time from which on files are taken."""
        self._selection.listed_ms = self._clock.time_ms()
        return FilePlan((), self._selection.since_ms, self._selection.listed_ms)

    def decode(self, data: Mapping[str, Json]) -> FilePlan:
        """Return the plan whose `encode` gave this data. NotRecoverableError if the data is of another kind of input."""
        if kind_of(data) != FILES:
            raise self.another_kind(data)
        return FilePlan.decode(data)

    def plan(self, time: Time) -> FilePlan:
        """List the directory and select the files of the batch. For batches that `missed` has looked at, its listing is used.

        Blocks while the directory is listed. If the listing fails, the plan has no files.

        Raises:
            KStreamError: the directory can never be watched. An error of the user's filter is raised, too; the batch is then not planned.
        """
        if self._survey is not None and time <= self._survey[0]:
            listed: list[FileStatus] | None = self._survey[1]
        else:
            self._survey = None
            listed = self._list(self._selection.threshold(time))
        if listed is None:
            return FilePlan((), self._selection.since_ms, self._selection.listed_ms)
        files = self._selection.select(time, listed, self._filter)
        listed_ms = max(time.milliseconds, self._selection.listed_ms)
        return FilePlan(files, self._selection.since_ms, listed_ms, self._selection.changes(listed))

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """List the directory once for all missed batches. Return the batch times that get files; None if the listing fails. Blocks."""
        listed = self._list(self._selection.threshold(times[0]))
        if listed is None:
            return None
        self._survey = (times[-1], listed)
        found = self._selection.select(times[0], listed, self._filter, until=times[-1])
        return {times[bisect_left(times, Time(file.mtime_ms))] for file in found}

    def planned(self, time: Time, plan: FilePlan) -> None:
        """Move the time of the last listing. Log a warning, once, for each file that has changed since a batch took it."""
        self._selection.listed_ms = plan.listed_ms
        self._selection.mark_reported(plan.changes)
        for change in plan.changes:
            logger.warning(
                "%s had %d bytes when it was taken and has %d now: the added bytes are not read. Files must be moved into %s whole.",
                change.path,
                change.taken,
                change.found,
                self._source.directory,
            )

    def remember_plan(self, time: Time, plan: FilePlan) -> None:
        """Keep the plan, and mark its files as taken."""
        super().remember_plan(time, plan)
        self._selection.mark_taken(time, plan.files)

    def restored(self, time: Time, plan: FilePlan) -> None:
        """Take the start and the last listing from the newest stored plan. `remember_plan` restores the taken files."""
        self._selection.since_ms = plan.since_ms
        self._selection.listed_ms = plan.listed_ms

    def _list(self, newer_than_ms: int) -> list[FileStatus] | None:
        """Return the files of the directory. None if it cannot be listed; the first of equal failures in a row is logged. Blocks.

        Raises:
            KStreamError: the directory can never be watched.
        """
        began = self._clock.monotonic_ms()
        try:
            listed = self._source.list(newer_than_ms)
        except KStreamError:
            raise
        except (FileNotFoundError, NotADirectoryError):
            self._warn(f"there is no directory {self._source.directory}: no files until there is")
            return None
        except Exception as e:  # every file system raises what its client does
            self._warn(f"cannot list {self._source.directory}: {type(e).__name__}: {e}. The batch has no files; the next one looks again.")
            return None
        self._trouble = ""
        took = self._clock.monotonic_ms() - began
        if took > self.slide_duration.milliseconds:
            logger.warning(
                "finding new files in %s took %d ms, more than the batch interval: move old files away, or make batches longer",
                self._source.directory,
                took,
            )
        return listed

    def _warn(self, trouble: str) -> None:
        """Log a warning, unless the last listing failed in the same way."""
        if trouble != self._trouble:
            logger.warning("%s", trouble)
        self._trouble = trouble

    # -- the batch

    def rdd(self, time: Time, plan: FilePlan) -> RDD[Any]:
        """Return an RDD of the files' records, file by file in the order of their paths. Without files the RDD is empty."""
        return self._source.rdd(plan.files, self._format)

    def metadata(self, time: Time, plan: FilePlan) -> Mapping[str, Any]:
        """Return Spark's `files` and `Description`, and for the progress report the numbers of files and bytes."""
        paths = [file.path for file in plan.files]
        progress = {
            "description": f"FileStream[{self._source.directory}]",
            "metrics": {"files": len(paths), "bytes": sum(file.size for file in plan.files)},
        }
        return {"files": paths, "Description": "\n".join(paths), "progress": progress}

    def outcome(self, time: Time, plan: FilePlan) -> InputOutcome:
        """Report the files of the plan that changed after a batch had taken them, to the ledger and to listeners."""
        detail = "changed after it was taken; not read again"
        lost = [
            {"path": change.path, "cause": "changed", "size": change.taken, "found": change.found, "detail": detail}
            for change in plan.changes
        ]
        return InputOutcome(lost=lost, report=bool(lost))

    def clear_metadata(self, time: Time) -> None:
        """Forget old plans, and the files that they took."""
        super().clear_metadata(time)
        self._selection.forget(time - self.remember_duration)


def remember_window(interval: Duration, at_least_ms: int) -> Duration:
    """Return how far back a batch looks for files: `at_least_ms` rounded up to whole intervals, at least one interval. Pure."""
    return interval * max(1, -(-at_least_ms // interval.milliseconds))
