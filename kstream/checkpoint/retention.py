"""Which plans may go. Pure.

A batch T that still has to run, now or after a restart, needs the plans of (T − remember, T] for its windows. Nothing newer than that
of the oldest unfinished batch is removed either: while its plan stands, a stray plan that a fenced driver left for the same batch
time is known to be superseded. State needs more: see `needed_from`.
"""

from __future__ import annotations

from collections.abc import Iterable

from kstream.batch_time import Duration, Time

_MOMENT = Duration(1)


def removable_up_to(unfinished: Iterable[Time], done_up_to: Time, remember: Duration, needed_from: Time | None = None) -> Time:
    """Plans at this time and older may go; a plan exactly `remember` older than a batch is not needed by it.

    `done_up_to` is the newest batch that has ended. `needed_from`: where state is carried, the plans of the batches after the state that a
    restart would go on from, and of the batch that left it, which names it. The newest plans are kept whatever this says.
    """
    limit = min([*unfinished, done_up_to]) - remember
    return limit if needed_from is None else min(limit, needed_from - _MOMENT)
