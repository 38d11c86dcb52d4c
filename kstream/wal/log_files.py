"""The names of log files: `log-<start>-<stop>`, in milliseconds. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_NAME = re.compile(r"log-(\d+)-(\d+)")


@dataclass(frozen=True, order=True, slots=True)
class LogFile:
    """A file of a log, ordered by its start (a number, not a text). It takes records up to and including its stop time."""

    start: int
    stop: int

    @property
    def name(self) -> str:
        return f"log-{self.start}-{self.stop}"

    def is_older_than(self, threshold_ms: int) -> bool:
        """Strictly: a file that stops at the threshold may hold a record of it."""
        return self.stop < threshold_ms


def log_files(names: Iterable[str]) -> list[LogFile]:
    """The log files among the names, in order; other names are nobody's business here."""
    return sorted(LogFile(int(match[1]), int(match[2])) for name in names if (match := _NAME.fullmatch(name)))


def first_free(start: int, taken: Iterable[LogFile]) -> int:
    """The first start after `start` that no file has."""
    starts = {file.start for file in taken}
    start += 1
    while start in starts:
        start += 1
    return start
