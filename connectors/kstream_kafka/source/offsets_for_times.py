"""As of a batch time: where each log ended then. The `by-timestamp` policy for batches missed while the driver was down.

Kafka tells, for one time a request, the first offset of that timestamp or a later one. Batch T then holds what was written in
[T − interval, T), and windows come out as if the driver had been up. With LogAppendTime that is exact. With CreateTime a record's
own clock decides: one that is late goes to a later batch, and one from the future pins its partition – no time up to now lies
behind it – until the first batch after the restart takes the rest of the log. Nothing is lost, and `pinned` says which.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kstream_kafka.client.ports import LogEnd, Partition

Answer: TypeAlias = Mapping[Partition, "int | None"]
Ask: TypeAlias = Callable[[Sequence[int]], Sequence[Answer]]
"""Times in ms → for each, per partition the first offset of that time or later (None: there is none)."""
Ends: TypeAlias = dict[Partition, int]


def ends_at_times(ask: Ask, times_ms: Sequence[int], latest: Mapping[Partition, LogEnd]) -> dict[int, Ends]:
    """Where each log ended at each of the times (rising), never past `latest`.

    Asks for the first and the last time, then in the middle of what differs: an idle night costs a few questions, a busy one a
    question for each time. That is sound because answers only rise with the time asked for.
    """
    found: dict[int, Ends] = {}

    def look(indices: Sequence[int]) -> None:
        times = [times_ms[i] for i in indices]
        for ms, answer in zip(times, ask(times), strict=True):
            found[ms] = {p: end.offset if (at := answer.get(p)) is None else min(at, end.offset) for p, end in latest.items()}

    if not times_ms:
        return found
    look(sorted({0, len(times_ms) - 1}))
    open_gaps = [(0, len(times_ms) - 1)]
    while open_gaps:
        halves: list[tuple[int, int, int]] = []
        for low, high in open_gaps:
            if high - low < 2:
                continue
            if found[times_ms[low]] == found[times_ms[high]]:
                found.update({times_ms[i]: found[times_ms[low]] for i in range(low + 1, high)})
            else:
                halves.append((low, (low + high) // 2, high))
        look([middle for _, middle, _ in halves])
        open_gaps = [gap for low, middle, high in halves for gap in ((low, middle), (middle, high))]
    return found


def times_with_records(times_ms: Sequence[int], ends: Mapping[int, Ends], current: Mapping[Partition, int]) -> list[int]:
    """The times at which some log ended further on than at the time before (`current` before the first)."""
    busy: list[int] = []
    position = dict(current)
    for ms in times_ms:
        moved = {p: at for p, at in ends[ms].items() if at > position.get(p, 0)}
        if moved:
            position.update(moved)
            busy.append(ms)
    return busy


def pinned(in_future: Answer, latest: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    """Partitions with a record from the future, and its offset, by the answer to a time later than now."""
    return {p: at for p, at in in_future.items() if at is not None and p in latest and at < latest[p].offset}
