"""StateSpec: what mapWithState is to do."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration, Seconds

if TYPE_CHECKING:
    from pyspark import RDD

Pairs = list[tuple[Any, Any]]


class StateSpec:
    """The mapping function of `mapWithState` and its options, named as in Spark; each option returns the spec itself.

        def count(key, value, state):
            total = (state.getOption() or 0) + 1
            state.update(total)
            return key, total

        stream.mapWithState(StateSpec.function(count).timeout(Minutes(30)).initialState([("a", 1)]))

    Kept by the driver, pickled with the graph. An initial state given as an RDD is not: such a graph is made by `setup` at a restart.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.mapping_function = function
        self.pass_time = takes_time(function)
        self.initial: RDD[Any] | Pairs = []
        self.timeout_duration: Duration | None = None
        self.partitions: int | None = None

    @staticmethod
    def function(mappingFunction: Callable[..., Any]) -> StateSpec:
        """A spec of the function: (key, value, state) or (time, key, value, state), called in the workers once for each record.

        What it returns is a record of the resulting stream, None is not. `state` is a State; `value` is None where the key is timing out;
        `time` is the batch time, a datetime as `transform` has it.
        """
        return StateSpec(mappingFunction)

    def initialState(self, state: RDD[Any] | Iterable[tuple[Any, Any]]) -> StateSpec:
        """What keys have before the first batch: an RDD, or an iterable, of (key, state). For a timeout, updated at that batch."""
        self.initial = list(state) if isinstance(state, Iterable) else state
        return self

    def timeout(self, idleDuration: float | Duration) -> StateSpec:
        """Forgets keys that had no data for longer than this (seconds or a Duration): at batch T, those last seen before T − it.

        The function is called for such a key once more, with the value None and `state.isTimingOut()`. Spark promises that at the next
        checkpoint of the state; here it is in the first batch that finds the key idle for too long.
        """
        duration = idleDuration if isinstance(idleDuration, Duration) else Seconds(idleDuration)
        if duration.milliseconds <= 0:
            raise ValueError(f"the timeout of a state must be above zero, it is {duration}")
        self.timeout_duration = duration
        return self

    def numPartitions(self, numPartitions: int) -> StateSpec:
        """The number of partitions of the state (default: spark.default.parallelism). It may be another after a restart."""
        if numPartitions < 1:
            raise ValueError(f"a state needs one partition or more, not {numPartitions}")
        self.partitions = numPartitions
        return self

    @property
    def needs_setup(self) -> bool:
        """Whether the spec cannot be stored with the graph."""
        return not isinstance(self.initial, list)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "initial": [] if self.needs_setup else self.initial}


def takes_time(function: Callable[..., Any]) -> bool:
    """Whether a mapping function takes (time, key, value, state) rather than (key, value, state). TypeError if it takes neither."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return False
    positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    required = sum(p.default is p.empty for p in positional)
    most = 4 if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(positional)
    if required > 4 or most < 3:
        raise TypeError(f"{function!r} must take (key, value, state) or (time, key, value, state)")
    return required == 4
