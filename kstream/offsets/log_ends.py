"""Log ends in the past: where each log ended at the times of missed batches. Pure, except for the requests that the caller makes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from kstream.offsets.offset_range import Partition

OffsetsForTime: TypeAlias = Mapping[Partition, "int | None"]
"""partition → the first offset with a timestamp or a later one; None if there is no such record."""
RequestOffsets: TypeAlias = Callable[[Sequence[int]], Sequence[OffsetsForTime]]
"""A function that asks the brokers: times in ms → the answer for each time. It blocks."""
Ends: TypeAlias = dict[Partition, int]
"""partition → end of its log."""


def ends_at_times(request: RequestOffsets, times_ms: Sequence[int], latest: Mapping[Partition, int]) -> dict[int, Ends]:
    """Find where each log ended at each of the times, by a binary search. Blocks for the answers.

    The search asks for the first and the last time, then for the middle of each interval whose ends have different answers. If both ends
    have the same answer, all times between have it too, because the offset never falls when the time rises. So an idle night costs a few
    requests, and a busy one a request for each time.

    Args:
        request: asks the brokers.
        times_ms: the times, in ms, rising.
        latest: the ends of the logs now. No answer is after them.

    Returns:
        time in ms → (partition → end of its log).
    """
    found: dict[int, Ends] = {}

    def ask(indices: Sequence[int]) -> None:
        times = [times_ms[i] for i in indices]
        for ms, answer in zip(times, request(times), strict=True):
            found[ms] = {p: end if (at := answer.get(p)) is None else min(at, end) for p, end in latest.items()}

    if not times_ms:
        return found
    ask(sorted({0, len(times_ms) - 1}))
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
        ask([middle for _, middle, _ in halves])
        open_gaps = [gap for low, middle, high in halves for gap in ((low, middle), (middle, high))]
    return found


def times_with_records(times_ms: Sequence[int], ends: Mapping[int, Ends], current: Mapping[Partition, int]) -> list[int]:
    """Return the times at which a log had grown since the time before. Pure.

    Args:
        times_ms: the times, in ms, rising.
        ends: time → ends of the logs.
        current: the next offset of each partition. The first time is compared with these.
    """
    busy: list[int] = []
    position = dict(current)
    for ms in times_ms:
        moved = {p: at for p, at in ends[ms].items() if at > position.get(p, 0)}
        if moved:
            position.update(moved)
            busy.append(ms)
    return busy
