"""LateBatches: one warning, when batches wait longer and longer and a setting would help. It names the setting and a value.

`advice` and `are_ever_later` are pure. They only claim what holds: a setting is named where the figures of the batches show its cause.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence

from kstream.batch import BatchInfo
from kstream.batch_time import Duration
from kstream.conf import ConfigEntry, Settings
from kstream.listener import StreamingListener, StreamingListenerBatchCompleted

logger = logging.getLogger(__name__)
IN_A_ROW = 5
_TASKS_PER_CORE = 4
_FEW_RECORDS = 1000
"""Records of a task below which its fixed cost (milliseconds, as for any Python task) is more than that of its records."""


class LateBatches(StreamingListener):
    """Logs one warning in the life of a context, at most. Called on the listeners' thread.

    Args:
        interval: the batch interval.
        settings: those of the context.
        cores: cores() returns how many tasks Spark runs at a time. Called when batches are late, and not before.
        tasks_settings: stream id → the setting by which small ranges of the input share tasks, for the inputs that have one.
    """

    def __init__(
        self, interval: Duration, settings: Settings, cores: Callable[[], int], tasks_settings: Mapping[int, ConfigEntry[int]]
    ) -> None:
        self._tasks_settings = tasks_settings
        self._interval = interval
        self._settings = settings
        self._cores = cores
        self._delays: deque[int] = deque(maxlen=IN_A_ROW)
        self._warned = False

    def onBatchCompleted(self, batchCompleted: StreamingListenerBatchCompleted) -> None:
        """Keep the delay of a batch that has ended; warn if it is time."""
        info = batchCompleted.info
        delay = info.scheduling_delay_ms
        if self._warned or delay is None or info.tries > 1:
            return
        self._delays.append(delay)
        if not are_ever_later(self._delays, self._interval):
            return
        for (system, setting), tasks in tasks_of(info, self._tasks_settings).items():
            said = None if self._settings[setting] else advice(system, setting, tasks, info.numRecords(), self._cores())
            if said is not None:
                self._warned = True
                logger.warning("batches wait ever longer, the last one %.1f s: %s", delay / 1000, said)
                return


def are_ever_later(delays: Sequence[int], interval: Duration) -> bool:
    """Return whether batches are late and do not catch up: IN_A_ROW of them, each later than the one before. Pure.

    Args:
        delays: the scheduling delays of the last batches in milliseconds, in the order of their ends.
        interval: the batch interval. The first of the batches must have waited longer than that.
    """
    rising = all(before < after for before, after in zip(delays, list(delays)[1:], strict=False))
    return len(delays) == IN_A_ROW and rising and delays[0] > interval.milliseconds


def tasks_of(info: BatchInfo, tasks_settings: Mapping[int, ConfigEntry[int]]) -> Mapping[tuple[str, ConfigEntry[int]], int]:
    """Return the number of ranges of a batch by system and setting. Each is a task, unless ranges share tasks. Pure.

    Args:
        info: the batch.
        tasks_settings: stream id → the setting by which ranges share tasks.
    """
    tasks = Counter[tuple[str, ConfigEntry[int]]]()
    for source in info.inputs.values():
        setting = tasks_settings.get(source.stream_id)
        if setting is not None:
            system = source.progress.description.partition("[")[0]
            tasks[system, setting] += len(source.facts.get("offsets", ()))
    return tasks


def advice(system: str, setting: ConfigEntry[int], tasks: int, records: int, cores: int) -> str | None:
    """Return what to set, as a sentence; None if no setting is known to help. Pure.

    Args:
        system: the system that the batch reads.
        setting: the setting that limits the tasks.
        tasks: the tasks by which a batch reads it.
        records: the records of the batch.
        cores: how many tasks run at a time.
    """
    if tasks <= _TASKS_PER_CORE * cores or records >= _FEW_RECORDS * tasks:
        return None
    return (
        f"a batch reads {system} by {tasks} tasks of {records / tasks:.0f} records on average, and {cores} tasks run at a time. "
        f"Set {setting}={cores * 2}: small ranges then share tasks"
    )
