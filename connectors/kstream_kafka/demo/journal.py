"""Journal: what the drivers of the demo have done, from the lines that they write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kstream.offsets.offset_range import PlannedRange
from kstream_kafka.demo.proof import Attempt


class Journal:
    """Follows the journal of the drivers. Used by one thread.

    The journal has lines `{"event": …, "pid": …}` with `started` (at), `attempt` (batch, ranges) and `failed` (batch, reason).
    Batch times are ms since the epoch.

    Attributes:
        drivers: the pids of the drivers, in the order of their starts.
        attempts: all attempts at batches that have records, in their order.
        restarted_at: the start of the second driver, in ms since the epoch; 0 before it.
        failure: batch and reason of the first output operation that failed; None without one.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0
        self.drivers: list[int] = []
        self.attempts: list[Attempt] = []
        self.restarted_at = 0
        self.failure: tuple[int, str] | None = None

    def read(self) -> None:
        """Take in the complete lines that the demo's drivers have appended since the last call. The file may not exist yet."""
        if not self._path.exists():
            return
        with open(self._path, "rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            self._add(json.loads(line))

    def made_up(self, pending: set[int]) -> list[Attempt]:
        """Return the attempts of the second driver at batches of its downtime. `pending`: batches that the first one had planned."""
        return [one for one in self.attempts if one.driver > 1 and one.batch <= self.restarted_at and one.batch not in pending]

    def live(self) -> list[Attempt]:
        """Return the attempts of the second driver at batches that it planned at their own time."""
        return [one for one in self.attempts if one.driver > 1 and one.batch > self.restarted_at]

    def num_records(self) -> int:
        """Return the number of records of all batches that were tried."""
        return sum({one.batch: one.num_records for one in self.attempts}.values())

    def _add(self, line: dict[str, Any]) -> None:
        event = line["event"]
        if event == "started":
            self.drivers.append(line["pid"])
            self.restarted_at = line["at"] if len(self.drivers) > 1 else 0
        elif event == "attempt" and line["ranges"]:
            ranges = tuple(PlannedRange(*one) for one in line["ranges"])
            self.attempts.append(Attempt(line["batch"], self._driver(line["pid"]), ranges))
        elif event == "failed" and self.failure is None:
            self.failure = line["batch"], line["reason"]

    def _driver(self, pid: int) -> int:
        """Return the number of a driver (1, 2 …). A batch may begin before the driver's listener hears of the start."""
        return self.drivers.index(pid) + 1 if pid in self.drivers else len(self.drivers) + 1
