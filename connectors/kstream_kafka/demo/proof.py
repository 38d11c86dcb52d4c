"""The proof of exactly once. Pure.

It compares the acknowledged orders with the counted ones, and all attempts at a batch with each other.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from kstream.offsets.offset_range import PlannedRange


class CountedOrder(NamedTuple):
    """An order as the sink keeps it."""

    order_id: int
    region: str
    cents: int


class Attempt(NamedTuple):
    """A start of a batch with its ranges, by a driver (1, 2 …)."""

    batch: int
    driver: int
    ranges: tuple[PlannedRange, ...]

    @property
    def num_records(self) -> int:
        return sum(one.until - one.begin for one in self.ranges)


@dataclass(frozen=True)
class Evidence:
    """The facts from the files. Batch times, `interval` and `window` are in ms.

    Attributes:
        truth: the orders that Kafka acknowledged.
        ends: the end of each partition's log.
        batches: the orders in the sink, by batch.
        windows: by batch, region → (orders, cents).
        attempts: all attempts at batches.
        pending: the ranges of the batches that were pending when the driver was killed, by batch.
        interval: the batch interval.
        window: the length of a window.
    """

    truth: Sequence[CountedOrder]
    ends: Mapping[int, int]
    batches: Mapping[int, Sequence[CountedOrder]]
    windows: Mapping[int, Mapping[str, tuple[int, int]]]
    attempts: Sequence[Attempt]
    pending: Mapping[int, Sequence[PlannedRange]]
    interval: int
    window: int


@dataclass
class ProofResult:
    """The result of the proof. Everything is proved if `failures` is empty.

    Attributes:
        acknowledged: the number of acknowledged orders.
        counted: the number of orders in the sink.
        missing: the ids of acknowledged orders that are not in the sink.
        twice: the ids of orders that are in the sink more than once.
        changed: the ids of orders that differ in the sink.
        unknown: the ids of orders in the sink that were not acknowledged.
        re_run: the ranges of batches that ran in more than one driver, by batch.
        windows: the number of compared windows.
        failures: a sentence for each violation of "exactly once".
    """

    acknowledged: int
    counted: int
    missing: list[int] = field(default_factory=list[int])
    twice: list[int] = field(default_factory=list[int])
    changed: list[int] = field(default_factory=list[int])
    unknown: list[int] = field(default_factory=list[int])
    re_run: dict[int, tuple[PlannedRange, ...]] = field(default_factory=dict[int, tuple[PlannedRange, ...]])
    windows: int = 0
    failures: list[str] = field(default_factory=list[str])

    @property
    def proved(self) -> bool:
        return not self.failures


def prove(evidence: Evidence) -> ProofResult:
    """Check all facts and return the result. Each violation of "exactly once" is a sentence in its `failures`."""
    verdict = ProofResult(len(evidence.truth), sum(map(len, evidence.batches.values())))
    _orders(evidence, verdict)
    _attempts(evidence, verdict)
    _coverage(evidence, verdict)
    _windows(evidence, verdict)
    return verdict


def _orders(evidence: Evidence, verdict: ProofResult) -> None:
    """Check that the sink has each acknowledged order once and unchanged, and no other order."""
    truth = {order.order_id: order for order in evidence.truth}
    counted = Counter(order.order_id for orders in evidence.batches.values() for order in orders)
    verdict.missing = sorted(truth.keys() - counted.keys())
    verdict.twice = sorted(i for i, times in counted.items() if times > 1)
    verdict.unknown = sorted(counted.keys() - truth.keys())
    verdict.changed = sorted(
        {o.order_id for orders in evidence.batches.values() for o in orders if o.order_id in truth and truth[o.order_id] != o}
    )
    if not truth:
        verdict.failures.append("Kafka acknowledged no order: nothing was shown")
    for what in ("missing", "twice", "changed", "unknown"):
        ids: list[int] = getattr(verdict, what)
        if ids:
            verdict.failures.append(f"{what}: {len(ids)} orders ({', '.join(map(str, ids[:5]))}{' …' if len(ids) > 5 else ''})")


def _attempts(evidence: Evidence, verdict: ProofResult) -> None:
    """Check that all attempts at a batch had the same ranges, and that pending batches ran again with their planned ranges."""
    tried: dict[int, list[Attempt]] = defaultdict(list)
    for attempt in evidence.attempts:
        tried[attempt.batch].append(attempt)
    for batch, attempts in sorted(tried.items()):
        if len({a.ranges for a in attempts}) > 1:
            verdict.failures.append(f"batch {batch} was tried with different ranges: {[a.ranges for a in attempts]}")
        if len({a.driver for a in attempts}) > 1:
            verdict.re_run[batch] = attempts[0].ranges
    for batch, planned in sorted(evidence.pending.items()):
        again = [a for a in tried.get(batch, []) if a.driver > 1]
        if not again:
            verdict.failures.append(f"batch {batch} was pending at the kill and never ran again")
        elif any(sorted(a.ranges) != sorted(planned) for a in again):
            verdict.failures.append(f"batch {batch} ran again with other ranges than its plan")
        elif again:
            verdict.re_run.setdefault(batch, again[0].ranges)
    if not any(len({a.driver for a in attempts}) > 1 for attempts in tried.values()):
        verdict.failures.append("no batch was running when the driver was killed: nothing was shown")


def _coverage(evidence: Evidence, verdict: ProofResult) -> None:
    """Check that the ranges of each partition follow one another without gap or overlap, from 0 to the end of its log.

    Check also that each batch counted as many orders as its ranges have offsets.
    """
    ranges = {attempt.batch: attempt.ranges for attempt in evidence.attempts}
    position: dict[int, int] = dict.fromkeys(evidence.ends, 0)
    for batch in sorted(ranges):
        for _, partition, begin, end in ranges[batch]:
            if begin != position.get(partition, 0):
                verdict.failures.append(f"batch {batch} reads partition {partition} from {begin}, not {position.get(partition, 0)}")
            position[partition] = end
        records = sum(end - begin for *_, begin, end in ranges[batch])
        if len(evidence.batches.get(batch, ())) != records:
            verdict.failures.append(f"batch {batch} counted {len(evidence.batches.get(batch, ()))} orders, its ranges hold {records}")
    if position != dict(evidence.ends):
        verdict.failures.append(f"the batches end at {position}, the log at {dict(evidence.ends)}")


def _windows(evidence: Evidence, verdict: ProofResult) -> None:
    """Check that the totals of each window are the totals of its batches' orders, also across the kill."""
    for time in sorted(evidence.batches):
        totals = evidence.windows.get(time)
        if totals is None:
            verdict.failures.append(f"batch {time} has no window totals")
            continue
        expected: dict[str, tuple[int, int]] = {}
        for batch in range(time - evidence.window + evidence.interval, time + 1, evidence.interval):
            for order in evidence.batches.get(batch, ()):
                count, cents = expected.get(order.region, (0, 0))
                expected[order.region] = (count + 1, cents + order.cents)
        if dict(totals) != expected:
            verdict.failures.append(f"the window that ends at {time} has totals {dict(totals)}, its batches give {expected}")
        verdict.windows += 1
