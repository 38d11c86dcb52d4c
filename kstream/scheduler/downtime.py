"""The selection of missed batches that are planned late: after a restart, and after a clock jumped or planning was held up. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kstream.batch_time import Duration, Time
from kstream.errors import PlanFailedError, StorageError

MOST = 1000
"""The number of missed batches above which batches of a downtime are coalesced."""
OVERDUE = 10
"""The number of overdue ticks above which they are handled as missed batches. A slow answer of a broker or a long pause of the process
leaves fewer. A suspended machine or a clock that jumped leaves more."""


def batches_during_downtime(
    missed: Sequence[Time], interval: Duration, remember: Duration, busy: Sequence[Collection[Time] | None] = (), most: int = MOST
) -> list[Time]:
    """Select the missed batch times that are planned: all of them, if they are no more than `most`.

    Of a longer downtime, coalesce the batches that could only be empty and that no window needs. No record is lost. Three groups are
    planned:

    - The last batches, as far back as `remember` reaches: they fill the windows of the first batch that is on time.
    - The first batches, if an input catches up: they take its backlog under the rate limit, and later batches take the rest.
    - For an input with by-timestamp, each batch that has records. So are the batches after it within `remember`, because their windows
      still show these records.

    Args:
        missed: batch times, rising, without gaps.
        interval: the batch interval.
        remember: how far back a batch may look.
        busy: for each input the times at which it has records (by-timestamp), or None (catch-up).
        most: the number of batches that are always planned.

    Returns:
        The selected times, oldest first.
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
        interval: the batch interval.
        most: the number of ticks that may be late without counting as missed.
    """
    count = (now_ms - tick.milliseconds) // interval.milliseconds + 1
    return [tick + interval * n for n in range(count)] if count > most else []


def unplanned(time: Time, error: StorageError | PlanFailedError) -> PlanFailedError:
    """Return the error about a batch that was not planned: the store refused its plan, or an earlier plan is in doubt."""
    return PlanFailedError(f"batch {time} was not planned: {error}. Its records go to the next batch.", time=time.milliseconds)


def listed(times: Sequence[Time], most: int = 20) -> str:
    """Return the times as text for the log: the first `most` of them, and the last if there are more."""
    text = ", ".join(str(t) for t in times[:most])
    return text if len(times) <= most else f"{text}, … {times[-1]}"
