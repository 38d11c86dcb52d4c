"""What the entries of an audit prove: each input offset is in one batch, and each batch is in the output as its receipts say. Pure.

An output topic is read once, from the ends of the first entry to those of the last one. Between the ends of two entries are the records of
the second one's batch. Their digests must be those of the entry.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from kstream.cli.terminal import count
from kstream_kafka.sink.audit import AuditEntry
from kstream_kafka.sink.receipt import Digest, GivenUp, sum_of
from kstream_kafka.sink.spool import DigestSum


class AuditVerdict(enum.IntEnum):
    """What an audit says. The number is an exit code, as of `ReadingCode`."""

    PROVED = 0
    DIFFERS = 1
    NOT_PROVABLE = 3

    @property
    def word(self) -> str:
        """The verdict as JSON has it."""
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True)
class AuditFinding:
    """Something that is not as it should be, or that cannot be known.

    Attributes:
        verdict: DIFFERS or NOT_PROVABLE.
        words: a sentence without a full stop.
    """

    verdict: AuditVerdict
    words: str


def batches_of(entries: Sequence[AuditEntry]) -> tuple[list[AuditEntry], list[AuditFinding]]:
    """Return one entry for each batch, oldest first, and what is wrong with the others. The first one may be that of the beginning.

    A driver that died before the completion was stored has left an entry, and the next one another. The last one counts: its ends are those
    up to which nothing else was written. An entry of an earlier driver that comes late does not count.

    Args:
        entries: those of one output, in the order of the log.
    """
    found: dict[int, AuditEntry] = {}
    findings: list[AuditFinding] = []
    epoch, newest = 0, None
    for entry in entries:
        before = found.get(entry.time_ms)
        if entry.epoch < epoch or (newest is not None and newest.is_batch and not entry.is_batch):
            continue
        epoch = entry.epoch
        is_same = before is not None and (before.nonce, before.inputs, before.digests) == (entry.nonce, entry.inputs, entry.digests)
        if before is not None and entry.is_batch and not is_same:
            findings.append(_differs(f"batch {entry.moment} has two entries that say different things"))
        if newest is not None and entry.time_ms < newest.time_ms:
            if not is_same:
                findings.append(_differs(f"batch {entry.moment} has an entry behind that of batch {newest.moment}"))
            continue
        newest = entry
        kept = {*entry.kept, *(before.kept if before is not None else ())}
        found[entry.time_ms] = replace(entry, kept=tuple(sorted(kept)))
    findings += [_kept(entry) for entry in found.values() if entry.kept]
    return list(found.values()), findings


def _kept(entry: AuditEntry) -> AuditFinding:
    """Return the finding about a batch of which partitions stand as an earlier try has written them."""
    words = f"partitions {list(entry.kept)} stand as an earlier try has written them, though their records may have moved"
    return AuditFinding(AuditVerdict.NOT_PROVABLE, f"batch {entry.moment}: {words}")


def missed(batches: Sequence[AuditEntry], given_up: Iterable[GivenUp]) -> list[GivenUp]:
    """Return the batches that were given up between these, and have no entry."""
    times = [entry.time_ms for entry in batches if entry.is_batch]
    return [gone for gone in given_up if times and times[0] < gone.time_ms < times[-1] and gone.time_ms not in times]


def given_up_finding(batch: GivenUp) -> AuditFinding:
    """Return the finding about a batch that no driver runs any more, after `--forget-batch`."""
    words = f"batch {batch.time_ms} ms was given up: {count(batch.num_records, 'record')} of it are written, and nobody writes the others"
    return AuditFinding(AuditVerdict.NOT_PROVABLE, words)


def with_given_up(batches: Sequence[AuditEntry], given_up: Iterable[GivenUp]) -> list[AuditEntry]:
    """Return the entries, each with the records added to its digests that batches given up before it have written.

    A batch that was given up has no entry. What it has written to a topic is before the end that the next entry has there.
    """
    found = list(batches)
    for gone in given_up:
        for topic, digest in gone.digests.items():
            later = (n for n, entry in enumerate(found) if entry.is_batch and entry.time_ms > gone.time_ms and topic in entry.ends)
            place = next(later, None)
            if place is not None:
                found[place] = replace(found[place], digests=sum_of([found[place].digests, {topic: digest}]))
    return found


def input_findings(batches: Sequence[AuditEntry], given_up: Sequence[GivenUp] = ()) -> list[AuditFinding]:
    """Return the input offsets that are in no batch or in more than one.

    Args:
        batches: one entry a batch, oldest first.
        given_up: the batches between them that were given up. Their offsets are in no batch.
    """
    ends: dict[tuple[str, str, int], tuple[int, AuditEntry]] = {}
    findings: list[AuditFinding] = []
    for entry in batches:
        for stream, ranges in entry.inputs.items():
            for topic, partition, begin, end in ranges:
                reached, by = ends.get((stream, topic, partition), (begin, entry))
                place = f"stream {stream}, {topic}-{partition}"
                if begin > reached:
                    between = any(by.time_ms < gone.time_ms < entry.time_ms for gone in given_up)
                    verdict = AuditVerdict.NOT_PROVABLE if between else AuditVerdict.DIFFERS
                    words = f"{place}: offsets {reached} to {begin - 1} are in no batch, between {by.moment} and {entry.moment}"
                    findings.append(AuditFinding(verdict, f"{words}, where a batch was given up" if between else words))
                elif begin < reached:
                    last = min(reached, end) - 1
                    findings.append(_differs(f"{place}: offsets {begin} to {last} are in two batches, {by.moment} and {entry.moment}"))
                ends[stream, topic, partition] = (max(reached, end), entry)
    return findings


class TopicCheck:
    """Sums up the records of an output topic by batch, as they are read, and compares them with the entries. One thread."""

    def __init__(self, topic: str, batches: Sequence[AuditEntry], is_shared: bool = False) -> None:
        """
        Args:
            topic: the topic.
            batches: one entry a batch, oldest first. The first one that names the topic only says where the others begin.
            is_shared: whether another output has written to it, too. Then records too many are no difference.
        """
        self._topic = topic
        self._is_shared = is_shared
        self._batches = [entry for entry in batches if topic in entry.ends]
        partitions = max((len(entry.ends[topic]) for entry in self._batches), default=0)
        self._ends = [[_end(entry.ends[topic], partition) for entry in self._batches] for partition in range(partitions)]
        self._sums = [DigestSum() for _ in self._batches]

    @property
    def first(self) -> str | None:
        """The first batch that is compared, for people; None without one."""
        return self._batches[1].moment if len(self._batches) > 1 else None

    @property
    def num_records(self) -> int:
        """How many records the entries name."""
        return sum(self._told(entry).records for entry in self._batches[1:])

    def ranges(self) -> dict[int, tuple[int, int]]:
        """Return partition → the offsets [from, until) that are to be read. Empty if the topic has another log now than it had."""
        if any(later < earlier for ends in self._ends for earlier, later in pairwise(ends)):
            return {}
        return {partition: (ends[0], ends[-1]) for partition, ends in enumerate(self._ends) if ends[-1] > ends[0]}

    def add(self, partition: int, offset: int, key: bytes | None, value: bytes | None) -> None:
        """Add a record of `ranges` to the sum of its batch, which its offset tells."""
        self._sums[bisect_right(self._ends[partition], offset)].add((self._topic, key, value, (), None, None))

    def findings(self) -> list[AuditFinding]:
        """Return the batches that the topic has otherwise than the entries say. All records of the ranges must have been added."""
        there = [found.digests.get(self._topic, Digest()) for found in self._sums]
        both = zip(self._batches[1:], there[1:], strict=True)
        return [self._finding(entry, digest) for entry, digest in both if digest != self._told(entry)]

    def _finding(self, entry: AuditEntry, there: Digest) -> AuditFinding:
        """Return the finding about a batch whose records in the topic, summed up in `there`, are not those of its entry."""
        if self._is_shared and there.records > self._told(entry).records:
            words = f"topic {self._topic}, batch {entry.moment}: another output writes to the topic, too"
            return AuditFinding(AuditVerdict.NOT_PROVABLE, words)
        return _differs(self._compared(entry, there))

    def _told(self, entry: AuditEntry) -> Digest:
        """Return the digest that the entry of a batch has for this topic; an empty one if it has none."""
        return entry.digests.get(self._topic, Digest())

    def _compared(self, entry: AuditEntry, there: Digest) -> str:
        """Return in words how the records in the topic differ from those of the entry: more, fewer, or others."""
        told, batch = self._told(entry), f"topic {self._topic}, batch {entry.moment}"
        if there.records > told.records:
            more = there.records - told.records
            return f"{batch}: {count(more, 'record')} more than the receipts say, written twice or by another program"
        if there.records < told.records:
            return f"{batch}: {count(told.records - there.records, 'record')} less than the receipts say"
        return f"{batch}: keys or values are not those of the receipts ({count(told.records, 'record')})"


def inputs_of(batches: Iterable[AuditEntry]) -> dict[str, tuple[int, int]]:
    """Return the first offset and the offset behind the last one of each input partition, by its name: `stream 0, orders-1`."""
    found: dict[str, tuple[int, int]] = {}
    for entry in batches:
        for stream, ranges in entry.inputs.items():
            for topic, partition, begin, end in ranges:
                place = f"stream {stream}, {topic}-{partition}"
                first, last = found.get(place, (begin, end))
                found[place] = (min(first, begin), max(last, end))
    return dict(sorted(found.items()))


def topics_of(batches: Iterable[AuditEntry]) -> list[str]:
    """Return the topics that these batches have written to."""
    return sorted({topic for entry in batches for topic in (*entry.ends, *entry.digests)})


def _end(ends: Sequence[int], partition: int) -> int:
    """Return the end of a partition; 0 before the topic had it."""
    return ends[partition] if partition < len(ends) else 0


def _differs(words: str) -> AuditFinding:
    return AuditFinding(AuditVerdict.DIFFERS, words)
