"""FreshTopicIds: topic ids that are at most about a second old, for a worker that reads many small ranges.

A worker must know that the records it has fetched are of the topic that was planned, before it gives them out. To ask for each range
would be a request per partition; so what was learnt a moment ago still counts. A topic that is deleted, made anew and filled past the
offsets of the old one within that moment would be read unseen.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

MAX_AGE_S = 1.0
SHARE = 20
"""An answer about topics of a thousand partitions takes 100 ms: it counts for SHARE times as long as it took, if that is more."""

Ask = Callable[[Collection[str]], Mapping[str, str]]


class FreshTopicIds:
    """`ask` blocks on the broker and leaves out topics that are not there. One thread."""

    def __init__(self, ask: Ask, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, str | None]] = {}

    def get(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """The ids of these topics, all of one question; `fresh`: of just now."""
        now = self._monotonic()
        if fresh or any(topic not in self._known or self._known[topic][0] <= now for topic in topics):
            found = self._ask(topics)
            answered = self._monotonic()
            until = answered + max(MAX_AGE_S, (answered - now) * SHARE)
            self._known.update({topic: (until, found.get(topic)) for topic in topics})
        return {topic: number for topic in topics if (number := self._known[topic][1]) is not None}
