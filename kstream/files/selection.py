"""Selection: decides which files of a listing a batch takes, by the rules of Spark's FileInputDStream. Asks no file system and no clock.

The batch at T takes each file whose modification time lies in (threshold, T], once. The threshold is T − window (the remember window, a
minute by default). It is never before `since_ms`, and never after the last batch that had a whole listing. So a stream whose listings
failed for an hour, or whose batches were skipped, loses nothing. The window is for files that appear late with an old time, because they
were moved or have the time of another machine's clock. Older files are never taken, as in Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from kstream.batch_time import Duration, Time
from kstream.files.file_systems import FileStatus

HIDDEN = "."
"""Files whose names begin with this are never taken."""


@dataclass(frozen=True, slots=True)
class Change:
    """A file whose size has changed since a batch took it: `taken` bytes then, `found` bytes now."""

    path: str
    taken: int
    found: int


class Selection:
    """Selects files, and remembers by path the files that the batches of the window took. One thread at a time.

    Empty files are not taken: they have no record, and a program may have opened such a file and not written it yet.

    Args:
        window: how far back a batch looks for files.
        since_ms: files modified at this time (ms) or before are never taken.
    """

    def __init__(self, window: Duration, since_ms: int) -> None:
        self._window = window
        self.since_ms = since_ms
        self.listed_ms = since_ms
        """The newest batch time (ms), or start, by which the whole directory had been listed."""
        self._taken: dict[str, tuple[Time, int]] = {}
        self._reported: set[str] = set()

    def threshold(self, time: Time) -> int:
        """Return the time (ms) up to which files are too old for a batch."""
        return max(self.since_ms, min((time - self._window).milliseconds, self.listed_ms))

    def select(self, time: Time, listed: Iterable[FileStatus], keep: Callable[[str], bool], until: Time | None = None) -> list[FileStatus]:
        """Return the files that a batch takes, sorted by path. Changes no state.

        Args:
            time: the batch.
            listed: the files in the directory.
            keep: the user's filter, called with the path of each file that passes all other rules. Its errors are raised.
            until: the last of several batches, to get the files of all of them (default: only the batch at `time`).
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
        """Return the files whose size has changed since they were taken and that are not marked as reported. No batch reads added bytes."""
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
        """Mark changes as reported, so that `changes` returns them no more. Called when they are in a durable plan."""
        self._reported.update(change.path for change in changes)

    def forget(self, up_to: Time) -> None:
        """Forget the files of batches at `up_to` and before. If such a file is modified later, a batch takes it as a new file."""
        for path in [path for path, (time, _) in self._taken.items() if time <= up_to]:
            del self._taken[path]
            self._reported.discard(path)

    def __len__(self) -> int:
        return len(self._taken)
