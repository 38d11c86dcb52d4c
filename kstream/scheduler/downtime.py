"""Which batch times are made up for: after a restart, and after a clock jumped or planning was held up. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kstream.batch_time import Duration, Time
from kstream.errors import PlanFailedError, StorageError

MOST = 1000
"""Downtimes of more batches than this are coalesced."""
OVERDUE = 10
"""More overdue ticks than this are treated as missed batches. A slow answer of a broker or a long pause of the process leaves fewer. A
suspended machine or a clock that jumped leaves more."""


def batches_during_downtime(
    missed: Sequence[Time], interval: Duration, remember: Duration, busy: Sequence[Collection[Time] | None] = (), most: int = MOST
) -> list[Time]:
    """Which of the `missed` batch times (rising, without gaps) are planned, oldest first: all, if they are no more than `most`.

    Of more than that, batches that could only be empty are left out where no window reaches them; nothing is ever lost. `busy` has
    an entry for each input: the times at which it has records (by-timestamp), or None for one that catches up – the first batches
    drain its backlog, under the rate cap, and the later ones take what the cap left over. `remember` is how far back a batch may
    look: an empty batch so close behind a full one still shows it in its windows, and the last ones fill the windows of the first
    batch that is on time.
    """
    if len(missed) <= most:
        return list(missed)
    reach = -(-remember.milliseconds // interval.milliseconds)
    tail = min(most - 1, reach)
    kept = set(missed[len(missed) - tail :])
    if not busy or any(times is None for times in busy):
        kept.update(missed[: most - tail])
    for times in busy:
        for time in times or ():
            kept.update(time + interval * i for i in range(reach + 1))
    return [time for time in missed if time in kept]


def overdue(tick: Time, now_ms: int, interval: Duration, most: int = OVERDUE) -> list[Time]:
    """Return the batch times from `tick` up to now if there are more than `most`, else an empty list.

    Args:
        tick: the oldest tick that has not made its batch.
        now_ms: milliseconds since the Unix epoch.
    """
    count = (now_ms - tick.milliseconds) // interval.milliseconds + 1
    return [tick + interval * n for n in range(count)] if count > most else []


def unplanned(time: Time, error: StorageError | PlanFailedError) -> PlanFailedError:
    """What is told of a batch whose plan could not be stored, or whose predecessor's fate is unknown."""
    return PlanFailedError(f"batch {time} was not planned: {error}. Its records go to the next batch.", time=time.milliseconds)


def listed(times: Sequence[Time], most: int = 20) -> str:
    """For the log: the first of them, and the last."""
    text = ", ".join(str(t) for t in times[:most])
    return text if len(times) <= most else f"{text}, … {times[-1]}"
