"""What must hold of Kafka's records after a schedule. Pure: the cluster's memory and a History in, lines about what is broken out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

from kstream.offsets.offset_range import Partition
from tests.simulator.history import Attempt, History
from tests.simulator.kafka.cluster import Record, SimulatedCluster

Ranges: TypeAlias = tuple[tuple[str, int, int, int], ...]
Planned: TypeAlias = Mapping[tuple[int, Ranges], Sequence[tuple[str, ...]]]


def violations(cluster: SimulatedCluster, planned: Planned, history: History) -> list[str]:
    """Everything that is broken."""
    return [*_gaps(history), *_other_records(planned, history), *_silently_missed(cluster, history)]


def _gaps(history: History) -> list[str]:
    """Each batch that ran, or is still to run, begins in every partition where the one before ended."""
    wrong: list[str] = []
    batches = dict(history.pending_data)
    batches.update({a.time: a.data for a in history.attempts})
    for (_, before), (time, after) in pairwise(sorted(batches.items())):
        ends = {(t, p): until for t, p, _, until in _ranges(before)}
        for t, p, begin, until in _ranges(after):
            if ends.get((t, p), begin) != begin:
                wrong.append(f"batch {time} reads {t}-{p} [{begin}, {until}), the one before ended at {ends[t, p]}")
    return wrong


def _other_records(planned: Planned, history: History) -> list[str]:
    """A batch that was finished read what was there when it was planned: all of it, in its order."""
    wrong: list[str] = []
    for attempt in history.attempts:
        if not attempt.finished or attempt.read is None:
            continue
        ranges = _ranges(attempt.data)
        count = sum(until - begin for _, _, begin, until in ranges)
        if len(attempt.read) != count:
            wrong.append(f"batch {attempt.time} should have {count} records, driver {attempt.driver} read {list(attempt.read)}")
        elif count and not any(attempt.read == meant for meant in planned.get((attempt.time, ranges), [])):
            wrong.append(f"batch {attempt.time} was planned as {planned.get((attempt.time, ranges))}, "
                         f"driver {attempt.driver} read {list(attempt.read)}")  # fmt: skip
    return wrong


def _silently_missed(cluster: SimulatedCluster, history: History) -> list[str]:
    """Every record between the first offset planned and the last is in a finished batch, or somebody was told why not."""
    read = {record for a in history.attempts if a.finished for record in a.read or ()}
    begins, ends = _reach(history)
    return [
        f"record {ident} at {p[0]}-{p[1]} {offset} is in no finished batch, and no error said so "
        f"({cluster.gone.get(ident, 'it is still there')})"
        for ident, (p, offset) in cluster.written.items()
        if p in begins and begins[p] <= offset < ends[p] and ident not in read and not _explained(ident, p, offset, cluster, history)
    ]


def _reach(history: History) -> tuple[dict[Partition, int], dict[Partition, int]]:
    """From where to where each partition was planned, by the plans that ran. A partition found later begins at 0."""
    begins: dict[Partition, int] = {}
    ends: dict[Partition, int] = {}
    first = min(history.attempts, key=lambda a: a.time, default=None)
    if first is not None:
        begins.update(_start(first, history))
    for attempt in history.attempts:
        for t, p, _, until in _ranges(attempt.data):
            begins.setdefault((t, p), 0)
            ends[t, p] = max(until, ends.get((t, p), 0))
    return begins, {p: ends.get(p, 0) for p in begins}


def _start(first: Attempt, history: History) -> dict[Partition, int]:
    """Where the stream began: where its first batch did, if that was stored before as a starting point, or was one itself. Of several
    drivers that start for the first time at once, any may be the one that goes on. Else where the newest starting point was."""
    mine = {(t, p): begin for t, p, begin, _ in _ranges(first.data)}
    earlier = [s.plan for s in history.plans if not s.plan.void and s.plan.time.milliseconds < first.time]
    stored = [{(t, p): at for t, p, at, _ in _ranges(data)} for plan in earlier for data in plan.inputs.values()]
    is_start = all(begin == until for _, _, begin, until in _ranges(first.data))
    if is_start or not stored or any(at.items() <= mine.items() for at in stored):  # the first batch may have new partitions besides
        return mine
    return stored[-1]


def _explained(ident: str, p: Partition, offset: int, cluster: SimulatedCluster, history: History) -> bool:
    """Whether an error spoke of it: its batch failed, or the planner saw that the log was shorter. What was cut before it was ever
    planned, or removed before the partition was found, was lost by Kafka, not by a reader."""
    holders = [a for a in history.attempts if _covers(a, p, offset)]
    if any(a.error is not None for a in holders) and not any(a.finished for a in holders):
        return True
    if any("LogShrankError" in line and f"{p[0]}-{p[1]}" in line for line in history.trouble):
        return True
    if any("LogTruncatedError" in (a.error or "") and f"{p[0]}-{p[1]} [" in (a.error or "") for a in history.attempts):
        return True  # it says that the log was cut below its range: what took the place of what had been read is not read
    if any("TopicRecreatedError" in line for line in history.trouble):  # there is one topic
        return True
    if _waits_to_be_told(ident, p, offset, cluster, history):
        return True
    if cluster.gone.get(ident) == "retention":
        # Planned by nobody; or in the place of a record that was read and cut off, and gone before it could tell: that no finished batch
        # just left it out, `_other_records` sees.
        return not holders or any(a.finished for a in holders)
    return cluster.gone.get(ident) in ("truncation", "deletion")


def _waits_to_be_told(ident: str, p: Partition, offset: int, cluster: SimulatedCluster, history: History) -> bool:
    """Whether the record took the place of another one in a log of which nothing has been read since: the next record read will tell,
    since the cursor still has the epoch of before. Nothing new came, or the stream stands still for what happened to another log."""
    log = cluster.logs.get(p)
    record = None if log is None else next((r for r in log.records if r.ident == ident), None)
    if log is None or record is None:
        return False
    newest = max(history.attempts, key=lambda a: a.time)
    stands_still = bool(history.trouble) and "LogShrankError" in history.trouble[-1]
    mine = [(until, epoch) for t, n, _, until, epoch in _rows(newest.data) if (t, n) == p]
    if any((until == log.end or (stands_still and offset < until)) and _is_older(epoch, record) for until, epoch in mine):
        return True
    # The batch that would have told failed over another partition first, or a failed one holds it: its next run will tell.
    finished = {a.time for a in history.attempts if a.finished}
    failed = [a for a in history.attempts if a.error is not None and a.time not in finished]
    held = [history.pending_data[time] for time in history.pending_data.keys() - {a.time for a in history.attempts}]
    rows = [row for data in [*(a.data for a in failed), *held] for row in _rows(data)]
    return any((t, n) == p and offset < begin < until and _is_older(epoch, record) for t, n, begin, until, epoch in rows)


def _is_older(epoch: int | None, record: Record) -> bool:
    return epoch is not None and epoch < record.epoch


def _rows(data: Mapping[str, Any]) -> Iterable[tuple[str, int, int, int, int | None]]:
    """The ranges of a plan, each with the epoch its first record may not be newer than."""
    ranges = data["ranges"]
    for (t, p, begin, until), epoch in zip(ranges, data.get("from_epochs", [None] * len(ranges)), strict=True):
        yield t, p, begin, until, epoch


def _covers(attempt: Attempt, p: Partition, offset: int) -> bool:
    return any((t, n) == p and begin <= offset < until for t, n, begin, until in _ranges(attempt.data))


def _ranges(data: Mapping[str, Any]) -> Ranges:
    return tuple((t, p, begin, until) for t, p, begin, until in data["ranges"])
