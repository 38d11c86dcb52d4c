"""Selection: which files of a listing a batch takes. Pure; the rules are those of Spark's FileInputDStream.

The batch at T takes the files whose modification time lies in (threshold, T], once each. `threshold` is T − window (the remember
window, a minute by default), but never before `since_ms`, when the stream started, and never after the last batch that saw a whole
listing: a stream whose listings failed for an hour, or whose batches were skipped, loses nothing. The window is for files that appear late
with an old time (moved in, or stamped by another machine's clock); older files are never seen, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kstream.batch_time import Duration, Time
from kstream.files.directory import FileStatus

HIDDEN = "."
"""Files whose names begin so are never taken."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file whose size is another than when a batch took it."""

    path: str
    taken: int
    found: int


class Selection:
    """Remembers what the batches of the window took, by path; nothing older. One thread at a time.

    Empty files are left alone: they hold no record, and a writer that opens, writes and closes in the directory itself is not caught
    with nothing written.
    """

    def __init__(self, window: Duration, since_ms: int) -> None:
        self._window = window
        self.since_ms = since_ms
        self.listed_ms = since_ms
        """The newest batch (or start) by which everything in the directory had been looked at."""
        self._taken: dict[str, tuple[Time, int]] = {}
        self._reported: set[str] = set()

    def threshold(self, time: Time) -> int:
        """The time (ms) up to which modified files are too old for a batch."""
        return max(self.since_ms, min((time - self._window).milliseconds, self.listed_ms))

    def select(self, time: Time, listed: Iterable[FileStatus], keep: Callable[[str], bool], until: Time | None = None) -> list[FileStatus]:
        """Return the files that a batch takes, sorted by path. Changes no state.

        Args:
            time: of the batch.
            listed: the files in the directory.
            keep: the user's filter; called last.
            until: return the files of this batch and the following ones up to this time.
        """
        threshold, last = self.threshold(time), (until or time).milliseconds
        found = (
            file
            for file in listed
            if threshold < file.mtime_ms <= last
            and file.size > 0
            and not file.name.startswith(HIDDEN)
            and file.path not in self._taken
            and keep(file.path)
        )
        return sorted(found)

    def changes(self, listed: Iterable[FileStatus]) -> list[Change]:
        """Find files whose size has changed since they were taken, each until it is marked as reported. No batch reads the added bytes."""
        found: list[Change] = []
        for file in listed:
            taken = self._taken.get(file.path)
            if taken is not None and taken[1] != file.size and file.path not in self._reported:
                found.append(Change(file.path, taken[1], file.size))
        return found

    def mark_taken(self, time: Time, files: Iterable[FileStatus]) -> None:
        """Remember the files of a batch. Called once its plan is durable."""
        for file in files:
            self._taken[file.path] = (time, file.size)

    def mark_reported(self, changes: Iterable[Change]) -> None:
        """Do not find these changes again: they are in the plan of a batch."""
        self._reported.update(change.path for change in changes)

    def forget(self, up_to: Time) -> None:
        """Forget the files of batches at `up_to` and before. Such a file is a new file once it is modified again."""
        for path in [path for path, (time, _) in self._taken.items() if time <= up_to]:
            del self._taken[path]
            self._reported.discard(path)

    def __len__(self) -> int:
        return len(self._taken)
