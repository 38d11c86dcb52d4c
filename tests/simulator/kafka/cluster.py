"""SimulatedCluster: topics as lists of records, and what may happen to them."""

from __future__ import annotations

import enum
import random
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kstream.offsets.offset_range import Partition

TOPIC = "t"


class Hazard(enum.Enum):
    """What may happen to a simulated cluster besides records being written."""

    LEADERS = "a partition gets a new leader, and for some questions has none"
    SILENCE = "no broker answers for some questions"
    PARTITIONS = "the topic gets one more partition"
    RETENTION = "the oldest records go"
    TRUNCATION = "an unclean election cuts a log; other records take the offsets, unless some of them have been read already"
    REGROWTH = "an unclean election cuts a log, and other records take the offsets before anybody looks"
    DELETION = "the topic is deleted, and made anew once somebody has noticed"
    REMAKING = "the topic is deleted and made anew before anybody looks"


@dataclass(frozen=True, slots=True)
class Record:
    """`ident` is unique over all records ever written."""

    offset: int
    ident: str
    epoch: int
    timestamp_ms: int


@dataclass(slots=True)
class Log:
    """One partition. `begin`: the first offset kept; records are those of [begin, end), in order."""

    records: list[Record] = field(default_factory=list[Record])
    begin: int = 0
    epoch: int = 0
    leaderless: int = 0
    """So many questions find no leader."""
    read_to: int = 0
    """Up to where jobs have read it."""
    muted: bool = False
    """Takes no more records."""

    @property
    def end(self) -> int:
        return self.records[-1].offset + 1 if self.records else max(self.begin, self._cut_to)

    _cut_to: int = 0

    def end_of_epoch(self, epoch: int) -> int:
        """Where the records of this epoch and older ones end: what OffsetsForLeaderEpoch answers."""
        return next((r.offset for r in self.records if r.epoch > epoch), self.end)

    def cut(self, to: int) -> list[Record]:
        """Removes what is at `to` or later; returns it."""
        gone = [r for r in self.records if r.offset >= to]
        self.records = [r for r in self.records if r.offset < to]
        self._cut_to = to
        return gone

    def remove_before(self, begin: int) -> list[Record]:
        gone = [r for r in self.records if r.offset < begin]
        self._cut_to = self.end
        self.records = [r for r in self.records if r.offset >= begin]
        self.begin = begin
        return gone


class SimulatedCluster:
    """One topic. `written`: ident → where it was; `gone`: ident → why it is not there any more."""

    def __init__(self, partitions: int, now_ms: Callable[[], int]) -> None:
        self.now_ms = now_ms
        self.logs: dict[Partition, Log] = {(TOPIC, n): Log() for n in range(partitions)}
        self.made = 1
        self.exists = True
        self.silent = 0
        self.written: dict[str, tuple[Partition, int]] = {}
        self.gone: dict[str, str] = {}
        self.noticed = False
        """Whether a driver has been told that the topic is deleted."""

    @property
    def topic_id(self) -> str:
        return f"topic-{self.made}"

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        return {TOPIC: self.topic_id} if self.exists and TOPIC in topics else {}

    # -- what happens

    def produce(self, rng: random.Random) -> str:
        """One to six records into one partition."""
        ready = [p for p, log in self.logs.items() if not log.muted and log.leaderless == 0] if self.exists else []
        if not ready:
            return "nothing can be written"
        p = rng.choice(ready)
        count = rng.randint(1, 6)
        for _ in range(count):
            self._append(p, self.now_ms() - rng.choice([0, 0, 0, 700]))
        return f"{count} records into {p[0]}-{p[1]}, which ends at {self.logs[p].end}"

    def _append(self, p: Partition, timestamp_ms: int) -> None:
        log = self.logs[p]
        ident = f"{p[1]}@{log.end}#{len(self.written)}"
        log.records.append(Record(log.end, ident, log.epoch, timestamp_ms))
        self.written[ident] = (p, log.records[-1].offset)

    def meet(self, hazard: Hazard, rng: random.Random) -> str:
        """Lets a hazard happen; returns what happened, in words."""
        if not self.exists:
            return self._maybe_make_again()
        p = rng.choice(sorted(self.logs))
        log = self.logs[p]
        match hazard:
            case Hazard.LEADERS:
                log.epoch += 1
                log.leaderless = rng.randrange(3)
                return f"{p[0]}-{p[1]} has a new leader, epoch {log.epoch}"
            case Hazard.SILENCE:
                self.silent = rng.randint(1, 4)
                return f"no broker answers {self.silent} questions"
            case Hazard.PARTITIONS:
                if len(self.logs) < 5:
                    self.logs[TOPIC, len(self.logs)] = Log()
                return f"the topic has {len(self.logs)} partitions"
            case Hazard.RETENTION:
                to = rng.randint(log.begin, log.end)
                self._lose(log.remove_before(to), "retention")
                return f"{p[0]}-{p[1]} begins at {to}"
            case Hazard.TRUNCATION | Hazard.REGROWTH:
                return self._truncate(p, rng, hazard is Hazard.TRUNCATION)
            case Hazard.DELETION | Hazard.REMAKING:
                return self._delete(hazard is Hazard.REMAKING, rng)

    def _truncate(self, p: Partition, rng: random.Random, sparing: bool) -> str:
        log = self.logs[p]
        to = rng.randint(max(log.begin, log.end - 6), log.end)
        self._lose(log.cut(to), "truncation")
        log.epoch += 1
        log.muted = log.muted or (sparing and to < log.read_to)
        grown = 0 if log.muted else rng.randrange(8)
        for _ in range(grown):
            self._append(p, self.now_ms())
        return f"{p[0]}-{p[1]} is cut to {to} (epoch {log.epoch}) and grows by {grown}"

    def _delete(self, at_once: bool, rng: random.Random) -> str:
        for log in self.logs.values():
            self._lose(log.records, "deletion")
        self.exists, self.noticed = False, False
        if not at_once:
            return "the topic is deleted"
        return self._make(rng.randrange(12))

    def _maybe_make_again(self) -> str:
        return self._make(0) if self.noticed else "the topic is still gone"

    def _make(self, records: int) -> str:
        self.made += 1
        self.exists = True
        self.logs = {p: Log() for p in self.logs}
        for p in self.logs:
            for _ in range(records):
                self._append(p, self.now_ms())
        return f"the topic is made anew, {records} records in each of {len(self.logs)} partitions"

    def _lose(self, records: list[Record], why: str) -> None:
        self.gone.update((r.ident, why) for r in records)

    def heal(self) -> None:
        """Everything answers again, and a deleted topic is back."""
        self.silent = 0
        for log in self.logs.values():
            log.leaderless = 0
        if not self.exists:
            self._make(0)
