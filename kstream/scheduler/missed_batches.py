"""Which missed batches are planned late: after a restart, and after a clock jumped or planning was held up. Pure.

MissedBatches: the missed batches that are not planned yet, and the ticks that wait behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Sequence

from kstream.batch_time import Duration, Time

MOST = 1000
"""The number of missed batches above which batches of a downtime are coalesced."""
OVERDUE = 10
"""The number of overdue ticks above which they are handled as missed batches. A slow answer of a broker or a long pause of the process
leaves fewer. A suspended machine or a clock that jumped leaves more."""
GRACE_MS = 10_000
"""How long postponed batches stay unplanned after the failing batch has failed again. A program that ends by that error has then ended, on
a busy machine, too."""


class MissedBatches:
    """The missed batches that are not planned yet, and the ticks that have come meanwhile and wait behind them.

    Each is planned when it comes to run, with as many records as the job can then process. Planned all at once, only the first one would
    have records: nothing would be measured yet. The ticks are missed batches, too: when all earlier ones are planned, the inputs are asked
    about them. This ends when no tick has come meanwhile.

    While batches that have failed before run again, none is planned. A program whose batch fails at each start ends by that error. If each
    start planned the batches of the downtime, the pending batches would pile up start by start. Unplanned, the batches lose nothing.

    Only the JobGenerator's thread uses it, and before it the thread that starts.

    Attributes:
        since: the oldest batch time that the inputs have not been asked about.
        until: the first batch time that has not passed yet.
        rounds: how often the inputs have been asked.
    """

    def __init__(self, since: Time, until: Time, interval: Duration, failing: Collection[Time], hold: bool) -> None:
        """
        Args:
            since, until: see the class.
            interval: the batch interval.
            failing: the pending batches that have failed before.
            hold: whether later batches wait until the failing ones have succeeded.
        """
        self.since = since
        self.until = until
        self.rounds = 0
        self._interval = interval
        self._selected: deque[Time] = deque()
        self._failing = frozenset(failing)
        self._hold = hold
        self._ended_ms: int | None = None

    def add_tick(self, time: Time) -> None:
        """Let a tick wait."""
        self.until = max(self.until, time + self._interval)

    def passed(self) -> list[Time]:
        """Return the batch times that have passed and that the inputs have not been asked about, oldest first."""
        return self.since.until(self.until, self._interval)

    def select(self, times: Sequence[Time]) -> None:
        """Take the batches to plan of those that `passed` returned."""
        self.since = self.until
        self._selected.extend(times)
        self.rounds += 1

    @property
    def next(self) -> Time | None:
        """The batch that is planned next; None if none is selected."""
        return self._selected[0] if self._selected else None

    def planned(self) -> None:
        self._selected.popleft()

    def are_due(self, unfinished: Callable[[], Collection[Time]], open_batches: Callable[[], Collection[Time]], now_ms: int) -> bool:
        """Return whether the batches may be planned now.

        That is when the failing batches have succeeded. Without hold it is also some time after they have failed again, because the program
        lives on.

        Args:
            unfinished: returns the batches that have not succeeded.
            open_batches: returns those of them that run, or wait for a retry.
            now_ms: a monotonic clock in ms.
        """
        if not self._failing:
            return True
        if self._failing.isdisjoint(unfinished()):
            self._failing = frozenset[Time]()
            return True
        if self._hold:
            return False
        if not self._failing.isdisjoint(open_batches()):
            self._ended_ms = None
            return False
        if self._ended_ms is None:
            self._ended_ms = now_ms
        if now_ms - self._ended_ms < GRACE_MS:
            return False
        self._failing = frozenset[Time]()
        return True


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
