"""Which missed batches are planned late: after a restart, and after a clock jumped or planning was held up. Pure.

PostponedBatches: the missed batches that a restart does not plan yet, because an earlier batch that has failed before runs again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from kstream.batch_time import Duration, Time

MOST = 1000
"""The number of missed batches above which batches of a downtime are coalesced."""
OVERDUE = 10
"""The number of overdue ticks above which they are handled as missed batches. A slow answer of a broker or a long pause of the process
leaves fewer. A suspended machine or a clock that jumped leaves more."""
GRACE_MS = 10_000
"""How long postponed batches stay unplanned after the failing batch has failed again. A program that ends by that error has then ended, on
a busy machine, too."""


class PostponedBatches:
    """The missed batches and ticks that wait, unplanned, while batches that have failed before run again.

    A program whose batch fails at each start ends by that error. If each start planned the batches of the downtime, the pending batches
    would pile up start by start. Unplanned, the batches lose nothing.

    Only the JobGenerator's thread uses it.

    Attributes:
        since: the oldest missed batch.
        until: the first batch time that has not passed yet.
    """

    def __init__(self, since: Time, until: Time, failing: Collection[Time], hold: bool) -> None:
        """
        Args:
            since, until: see the class.
            failing: the pending batches that have failed before.
            hold: whether later batches wait until the failing ones have succeeded.
        """
        self.since = since
        self.until = until
        self._failing = frozenset(failing)
        self._hold = hold
        self._ended_ms: int | None = None

    def are_due(self, unfinished: Collection[Time], open_batches: Collection[Time], now_ms: int) -> bool:
        """Return whether the batches can be planned now.

        That is when the failing batches have succeeded. Without hold it is also some time after they have failed again, because the program
        lives on.

        Args:
            unfinished: the batches that have not succeeded.
            open_batches: those of them that run, or wait for a retry.
            now_ms: a monotonic clock in ms.
        """
        if self._failing.isdisjoint(unfinished):
            return True
        if self._hold:
            return False
        if not self._failing.isdisjoint(open_batches):
            self._ended_ms = None
            return False
        if self._ended_ms is None:
            self._ended_ms = now_ms
        return now_ms - self._ended_ms >= GRACE_MS


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
