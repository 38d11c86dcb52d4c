"""What must hold of states and windows: what outputs read is what a recount from the plans gives, and no task misses what it needs."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.errors import MissingFileError, StateLostError
from tests.simulator.history import History

KEYS = 4
"""Number n has the key n modulo this."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Which streams a job has besides its state by key. Windows are in batches; 0 for none."""

    states_window: int
    totals_window: int
    window: int
    mapped: bool

    @staticmethod
    def drawn(rng: random.Random) -> Shape:
        return Shape(rng.choice([0, 2, 3]), rng.choice([0, 2, 4]), rng.choice([0, 3]), rng.random() < 0.4)


@dataclass(frozen=True, slots=True)
class Reading:
    """What an output has read of a batch. `is_whole`: of all partitions."""

    driver: int
    time: int
    stream: str
    records: Sequence[Any]
    is_whole: bool


@dataclass(frozen=True, slots=True)
class TaskError:
    """An error of a task of a driver without a successor."""

    driver: int
    error: Exception


class Plans:
    """The batches that stand, from what jobs ran with and what is pending; a range of numbers each."""

    def __init__(self, history: History) -> None:
        self.interval = history.interval_ms
        found = {time: (data["from"], data["until"]) for time, data in history.pending_data.items()}
        found |= {a.time: (a.data["from"], a.data["until"]) for a in history.attempts}
        self.ranges = dict(sorted(found.items()))

    def until(self, time: int) -> range:
        """All numbers of batches up to this one."""
        return range(self.ranges[time][1])

    def of(self, time: int) -> range:
        return range(*self.ranges[time])

    def window(self, time: int, batches: int) -> list[int]:
        """The batches of a window that stand."""
        return [t for t in range(time - (batches - 1) * self.interval, time + 1, self.interval) if t in self.ranges]

    def numbers(self, time: int, batches: int) -> range:
        """The numbers of a window. Batches follow one another without a gap."""
        return range(self.ranges[self.window(time, batches)[0]][0], self.ranges[time][1])


def expected(shape: Shape, plans: Plans, stream: str, time: int) -> list[Any]:
    """What a stream has of a batch, in any order, by a recount."""
    recount: Mapping[str, Callable[[], list[Any]]] = {
        "state": lambda: _by_key(plans.until(time)),
        "states in a window": lambda: [pair for t in plans.window(time, shape.states_window) for pair in _by_key(plans.until(t))],
        "totals": lambda: _by_key(plans.numbers(time, shape.totals_window)),
        "window": lambda: list(plans.numbers(time, shape.window)),
        "mapped": lambda: [(n % KEYS, n, n // KEYS + 1) for n in plans.of(time)],
        "snapshots": lambda: [(key, len(numbers)) for key, numbers in _by_key(plans.until(time))],
    }
    return recount[stream]()


def _by_key(numbers: range) -> list[tuple[int, tuple[int, ...]]]:
    pairs = ((key, tuple(n for n in numbers if n % KEYS == key)) for key in range(KEYS))
    return [pair for pair in pairs if pair[1]]


def _sorted(records: Sequence[Any]) -> list[Any]:
    """The records, and the numbers within each, in order."""
    pairs = (r if isinstance(r, tuple) else (r,) for r in records)
    tidy = ((key, tuple(sorted(rest[0]))) if rest and isinstance(rest[0], tuple) else (key, *rest) for key, *rest in pairs)
    return sorted(tidy, key=repr)


def outputs_read_what_a_recount_gives(history: History, shape: Shape, readings: Sequence[Reading]) -> list[str]:
    """All records, if all partitions were read; else some of them."""
    plans, wrong = Plans(history), list[str]()
    for reading in readings:
        if reading.time not in plans.ranges:
            continue  # no job of the first output has begun
        found, right = _sorted(reading.records), _sorted(expected(shape, plans, reading.stream, reading.time))
        if found != right if reading.is_whole else any(record not in right for record in found):
            wrong.append(f"{reading.stream} of batch {reading.time} was {_short(found)} in driver {reading.driver}, not {_short(right)}")
    return wrong


def no_task_misses_a_state_file(errors: Sequence[TaskError]) -> list[str]:
    """The files of a state stay as long as any task of their driver may read them."""
    return [f"a task of driver {e.driver} misses it: {e.error}" for e in errors if isinstance(e.error, MissingFileError)]


def lineage_is_cut_where_states_are_written(local_checkpoints: int, hindered: int) -> list[str]:
    """Spark cuts lineage by a local checkpoint, which a lost executor takes away, only where states could not be written."""
    return [f"{local_checkpoints} states got a local checkpoint, and every state was written"] if local_checkpoints and not hindered else []


def lost_states_are_repaired(history: History, hindered: int) -> list[str]:
    """No batch fails because blocks or files of a state are gone, unless states could not be written, so that no repair helps."""
    words = ("Checkpoint block", "MissingFileError", StateLostError.__name__)
    lines = [line for line in history.trouble if any(word in line for word in words)]
    return [line for line in lines if not hindered or StateLostError.__name__ not in line]


def violations(
    history: History, shape: Shape, readings: Sequence[Reading], errors: Sequence[TaskError], local_checkpoints: int, hindered: int
) -> list[str]:
    """Everything that is broken, each line with the name of its invariant.

    `local_checkpoints`: how many states got one. `hindered`: how often the write of a state failed, or an output.
    """
    broken = {
        outputs_read_what_a_recount_gives: outputs_read_what_a_recount_gives(history, shape, readings),
        no_task_misses_a_state_file: no_task_misses_a_state_file(errors),
        lineage_is_cut_where_states_are_written: lineage_is_cut_where_states_are_written(local_checkpoints, hindered),
        lost_states_are_repaired: lost_states_are_repaired(history, hindered),
    }
    return [f"{check.__name__}: {line}" for check, lines in broken.items() for line in lines]


def _short(records: list[Any], most: int = 6) -> str:
    return f"{records[:most]}{f' … {len(records)} in all' if len(records) > most else ''}"
