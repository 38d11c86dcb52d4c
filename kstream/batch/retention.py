"""RequiredBatches: the batches whose plans a restart or the living driver still needs. Pure."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from operator import itemgetter

from kstream.batch_time import Duration, Time

_MOMENT = Duration(1)


@dataclass(frozen=True, slots=True)
class RequiredBatches:
    """The clean-up line, above which every batch is required, and the batches below it that unfinished batches need.

    Attributes:
        line: every batch that is newer than this time is required.
        spans: pairs (after, until) in milliseconds, oldest first and apart: each batch with after < time ≤ until is required.
        oldest_unfinished: the oldest batch that has not succeeded; None if all have.
    """

    line: Time
    spans: tuple[tuple[int, int], ...] = ()
    oldest_unfinished: Time | None = None

    def __contains__(self, time: Time) -> bool:
        """Return whether the batch of this time is required."""
        if time > self.line:
            return True
        index = bisect_left(self.spans, time.milliseconds, key=itemgetter(1))
        return index < len(self.spans) and self.spans[index][0] < time.milliseconds


@dataclass(frozen=True, slots=True)
class NeededForStates:
    """The plans that the states of a restart are made from.

    Attributes:
        new: the oldest batch that the next batch to be planned needs; None without state.
        unfinished: unfinished batch → the oldest batch that it needs.
    """

    new: Time | None = None
    unfinished: Mapping[Time, Time] = field(default_factory=dict[Time, Time])


NO_STATES = NeededForStates()


def required_batches(
    unfinished: Iterable[Time], ended_up_to: Time, remember: Duration, states: NeededForStates = NO_STATES
) -> RequiredBatches:
    """Return the batches that are required. Pure.

    A batch T that still has to run, now or after a restart, needs the plans of (T − remember, T] for its windows. The next batch to be
    planned needs those after `ended_up_to` − remember. One failed batch keeps nothing else.

    Args:
        unfinished: batches that have been planned and have not succeeded.
        ended_up_to: the newest time up to which no batch runs: each older batch has succeeded or failed.
        remember: how far back the longest window reaches.
        states: the plans from which the states before these batches are made.
    """
    times = sorted(time.milliseconds for time in unfinished)  # numbers: there may be thousands, at the end of each batch
    needed = {time.milliseconds: oldest.milliseconds - 1 for time, oldest in states.unfinished.items()}
    line = ended_up_to - remember
    if states.new is not None:
        line = min(line, states.new - _MOMENT)
    spans: list[tuple[int, int]] = []
    for time in times:
        after = min(time - remember.milliseconds, needed.get(time, time))
        while spans and after <= spans[-1][1]:
            after = min(after, spans.pop()[0])
        spans.append((after, time))
    return RequiredBatches(line, tuple(spans), Time(times[0]) if times else None)
