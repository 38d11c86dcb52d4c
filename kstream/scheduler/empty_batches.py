"""EmptyBatches: the batches that end without the user's functions, under `spark.streaming.kstream.skipEmptyBatches`.

A batch is empty if each of its inputs says so by its plan (`PlannedInput.is_empty`). An empty batch gets a plan and a completion, and no
job. If an output depends on a state, or on a window over more than one batch, no batch is skipped.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping, Sequence

from kstream.batch import PlannedInput
from kstream.batch_time import Time
from kstream.dstream.node import DStreamNode
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.scheduler.settings import SKIP_EMPTY_BATCHES

logger = logging.getLogger(__name__)


class EmptyBatches:
    """Says which batches are skipped, and which missed batches need not even a plan.

    Missed batches are planned to work off a backlog. The first plan that is empty shows that there is none: the catching-up inputs have no
    data left. So the missed batches after it are left out, except those for which an input has data of their own, and the last one.

    Threads: as BatchPlanner and BatchSubmitter.
    """

    def __init__(self, enabled: bool) -> None:
        self._enabled = enabled
        self._inputs: Sequence[int] = ()
        self._for_backlog: frozenset[Time] = frozenset()
        """Missed batches that are planned only for data that an input catches up on."""
        self._left_out: frozenset[Time] = frozenset()

    def begin(self, streams: Iterable[DStreamNode], inputs: Sequence[int]) -> None:
        """Take the streams on which outputs depend. Skip nothing if one of them needs every batch, and log a warning.

        Args:
            streams: the streams.
            inputs: the ids of the inputs among them.
        """
        self._inputs = inputs
        needing = streams_of_every_batch(streams) if self._enabled else []
        if needing:
            self._enabled = False
            logger.warning("%s has no effect: %s needs also the batches without data", SKIP_EMPTY_BATCHES, ", ".join(map(repr, needing)))

    def is_skipped(self, inputs: Mapping[int, PlannedInput]) -> bool:
        """Return whether a batch with these plans, by input, runs without the user's functions."""
        return self._enabled and all(number in inputs and inputs[number].is_empty for number in self._inputs)

    def missed(self, times: Sequence[Time], busy: Sequence[Collection[Time] | None]) -> list[Time]:
        """Return the missed batches to plan.

        Args:
            times: those that are planned without this setting, oldest first.
            busy: for each input the times at which it has records (by-timestamp), or None (catch-up).
        """
        if not self._enabled or not times:
            return list(times)
        needed = {times[-1]}.union(*(known for known in busy if known is not None))
        if all(known is not None for known in busy):
            return [time for time in times if time in needed]
        self._for_backlog = frozenset(times) - needed
        return list(times)

    def planned(self, time: Time, inputs: Mapping[int, PlannedInput]) -> None:
        """Note a new plan, which is durable. If it is empty, leave out the missed batches that were meant for a backlog."""
        if self._for_backlog and self.is_skipped(inputs):
            self._left_out, self._for_backlog = frozenset(t for t in self._for_backlog if t > time), frozenset()
            if self._left_out:
                logger.info("%d missed batches after %s are left out: the inputs have no more data", len(self._left_out), time)

    def needs_no_plan(self, time: Time) -> bool:
        return time in self._left_out


def streams_of_every_batch(streams: Iterable[DStreamNode]) -> list[DStreamNode]:
    """Return the streams that need also the batches without data: those with a state, and windows over more than one batch. Pure."""
    at = Time(0)
    return [stream for stream in streams if isinstance(stream, StatefulDStream) or stream.reaches_back_to(at) < at]
