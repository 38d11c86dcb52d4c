"""Which batch times a restart makes up for. Pure."""

from __future__ import annotations

from kstream.batch_time import Duration, Time

MOST = 1000
"""Downtimes of more batches than this are coalesced."""


def batches_during_downtime(last_planned: Time, restart: Time, interval: Duration, remember: Duration, most: int = MOST) -> list[Time]:
    """Batch times after `last_planned` (excluded) and before `restart` (excluded), oldest first.

    Under the catch-up policy the first takes what there is (under the rate cap) and the later ones what the cap left over. Past
    `most` batches the middle is left out: the first ones drain the backlog, the last ones fill every window that reaches back
    `remember` from `restart`; nothing is lost, a batch left out would only have been empty.
    """
    times = (last_planned + interval).until(restart, interval)
    if len(times) <= most:
        return times
    tail = min(most - 1, -(-remember.milliseconds // interval.milliseconds))
    return times[: most - tail] + times[len(times) - tail :]
