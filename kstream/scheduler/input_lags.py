"""InputLags: the lag of each input that reads logs, from the plans of this driver and from the batches that have not succeeded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import replace

from kstream.batch import InputProgress, LogLag, StreamInputInfo, completed_offsets, lag_after
from kstream.batch_time import Time


class InputLags:
    """The JobGenerator's thread tells of plans, and any thread reads.

    For each batch it keeps references, until the batch has succeeded: the work for a batch grows neither with the number of partitions nor
    with the past.

    Args:
        unfinished: returns the planned batches that have not succeeded. Any thread.
        before: the newest batch of an earlier driver; None if there was none.
    """

    def __init__(self, unfinished: Callable[[], Set[Time]], before: Time | None) -> None:
        self._unfinished = unfinished
        self._before_ms = None if before is None else before.milliseconds
        self._lock = threading.Lock()
        self._after_plans: dict[int, LogLag] = {}
        self._progress: dict[Time, dict[int, InputProgress]] = {}

    def planned(self, time: Time, infos: Iterable[StreamInputInfo], at_ms: int) -> None:
        """Note where a batch begins and ends, and the ends of the logs. Its plan is durable.

        Args:
            time: the batch time.
            infos: what its inputs report.
            at_ms: the moment, in milliseconds since the Unix epoch.
        """
        progress, unfinished = {info.stream_id: info.progress for info in infos}, self._unfinished()
        with self._lock:
            self._progress = {known: of_inputs for known, of_inputs in self._progress.items() if known in unfinished}
            self._progress[time] = progress
            for number, of_input in progress.items():
                lag = lag_after(self._after_plans.get(number), of_input, at_ms, self._before_ms)
                if lag is not None:
                    self._after_plans[number] = lag

    def lags(self) -> dict[int, LogLag]:
        """Return the lag of each input of this moment, by stream id. Any thread; never blocks for long."""
        unfinished = self._unfinished()
        with self._lock:
            after_plans = sorted(self._after_plans.items())
            waiting = [of_inputs for time, of_inputs in sorted(self._progress.items()) if time in unfinished]
        return {
            number: replace(lag, completed=completed_offsets(lag.completed, (each[number] for each in waiting if number in each)))
            for number, lag in after_plans
        }
