"""Drivers whose code changes: a user who accepts what is refused, and the verdict on what is written then.

The log of the drivers has a line for each start. `accepting` reads it while they run, and `changes_in` when all have ended.
"""

from __future__ import annotations

import re
import threading
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from integration import commands
from integration.exactness.database import ONCE
from integration.exactness.kafka_sink import KEYS, Code, Written
from integration.exactness.verdict import read_lines

LOG = "driver.log"
STARTED = "=== driver "
"""Begins the line of a start."""
_DIFFERS = re.compile(r"batch (\d+) ms is half-written, and differs now.*")
_STANDS = "What is written stands"
LOOK_S = 0.3


@dataclass
class Changes:
    """What became of half-written batches whose code has changed.

    Attributes:
        mixed: the batches that have records of several versions of the code.
        warned: batch → how many drivers have told that what is written stands.
        refused: batch → how many drivers have refused it.
        breaches: what is wrong, in words.
    """

    mixed: set[int] = field(default_factory=set[int])
    warned: Counter[int] = field(default_factory=Counter[int])
    refused: Counter[int] = field(default_factory=Counter[int])
    breaches: list[str] = field(default_factory=list[str])

    def __str__(self) -> str:
        return (
            f"batches with records of several versions of the code: {len(self.mixed)}, with a WARNING: {len(self.warned)}, "
            f"refused: {len(self.refused)}"
        )


@contextmanager
def accepting(directory: Path, checkpoint: str) -> Iterator[None]:
    """For the length of a with block each batch that a driver refuses is accepted, by the command. A driver finds that at its next try."""
    stop, accepted, seen = threading.Event(), set[int](), 0

    def accept() -> None:
        nonlocal seen
        while not stop.wait(LOOK_S):
            refusals = [time for log in _logs(directory) for time in _told(log, stands=False)]
            for time in refusals[seen:]:
                if time not in accepted:
                    code, _, _ = commands.run("sink", "accept", f"kafka {ONCE}", "--batch", time, "--checkpoint", checkpoint)
                    accepted.update([time] if code == 0 else [])
            seen = len(refusals)

    thread = threading.Thread(target=accept, name="accepts", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def changes_in(code: Code, records: Iterable[Written], directory: Path) -> Changes:
    """What the drivers of a campaign have made of their changes. `records`: what is written."""
    batch_of = {
        f"{partition}:{offset}": attempt["time"]
        for attempt in read_lines(directory / "attempts.jsonl")
        for _topic, partition, start, until in attempt["ranges"]
        for offset in range(start, until)
    }
    found, versions = Changes(), versions_by_partition(records, batch_of)
    torn = [key for key, these in versions.items() if len(these) > 1]
    if torn:
        found.breaches.append(f"{len(torn)} partitions have records of several versions, such as {torn[0]}: {versions[torn[0]]}")
    of_batch = defaultdict[int, set[int]](set)
    for (batch, _), these in versions.items():
        of_batch[batch] |= these
    found.mixed = {batch for batch, these in of_batch.items() if len(these) > 1}
    for log in _logs(directory):
        warned = Counter(_told(log, stands=True))
        found.breaches += [f"a driver has warned {times} times of batch {time}" for time, times in warned.items() if times > 1]
        found.warned.update(warned.keys())
        found.refused.update(set(_told(log, stands=False)))
    found.breaches += [words for words, is_wrong in _wrong(code, found).items() if is_wrong]
    return found


def versions_by_partition(records: Iterable[Written], batch_of: Mapping[str, int]) -> dict[tuple[int, int], set[int]]:
    """Return batch and partition of the RDD → the versions of the code that have written it."""
    found = defaultdict[tuple[int, int], set[int]](set)
    for record in records:
        for place in record.places:
            if place in batch_of:
                found[batch_of[place], record.partition].add(record.version)
    return found


def _wrong(code: Code, found: Changes) -> dict[str, bool]:
    """What may be wrong in words → whether it is.

    On a narrow lineage a batch is compared when the rest of it is written. So a driver that is killed then tells nothing.
    """
    silent = found.mixed - found.warned.keys()
    return {
        "no batch has records of several versions of the code: no kill met a half-written batch": not found.mixed,
        "no driver has told that what is written stands": not found.warned,
        f"batches {sorted(silent)} have records of several versions, and nobody has told it": code.is_reduced and bool(silent),
        "no batch with other keys was refused": code.changes == KEYS and not found.refused,
        f"batches {sorted(found.refused)} were refused though no record can have moved": code.changes != KEYS and bool(found.refused),
    }


def _logs(directory: Path) -> list[str]:
    """What each driver has said, oldest first."""
    path = directory / LOG
    return path.read_text(errors="replace").split(STARTED)[1:] if path.exists() else []


def _told(log: str, stands: bool) -> list[int]:
    """The batches of which a driver says that they differ. `stands`: those whose written records stand, else those that it refuses."""
    return [int(match.group(1)) for match in _DIFFERS.finditer(log) if (_STANDS in match.group()) == stands]
