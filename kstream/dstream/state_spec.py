"""StateSpec: the mapping function of mapWithState and its options."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Duration
from kstream.dstream.arguments import as_duration, takes_time
from kstream.public_call import public_call, refused

if TYPE_CHECKING:
    from pyspark import RDD

Pairs = list[tuple[Any, Any]]


def check_spec(spec: object) -> None:
    """Raise TypeError for what is no StateSpec, such as the mapping function itself."""
    if not isinstance(spec, StateSpec):
        raise refused(TypeError(f"mapWithState takes a StateSpec, this is {spec!r}. Give StateSpec.function(your function)"))


class StateSpec:
    """The mapping function of `mapWithState` and its options, named as in Spark. Each option method returns the spec itself.

        def count(key, value, state):
            total = (state.getOption() or 0) + 1
            state.update(total)
            return key, total

        stream.mapWithState(StateSpec.function(count).timeout(Minutes(30)).initialState([("a", 1)]))

    Made and used on the driver. A stored graph contains its pickled form. If the initial state is an RDD, the graph is not stored, and
    `setup` makes it at a restart.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.mapping_function = function
        self.pass_time = takes_time(function)
        self.initial: RDD[Any] | Pairs = []
        self.timeout_duration: Duration | None = None
        self.partitions: int | None = None

    @staticmethod
    @public_call
    def function(mappingFunction: Callable[..., Any]) -> StateSpec:
        """Make a spec of a mapping function.

        Args:
            mappingFunction: called in the workers once for each record, with (key, value, state). A function with four required parameters
                is called with (time, key, value, state). It returns a record of the resulting stream, or None for no record. `state` is a
                State. `value` is None for a key that is timing out. `time` is the BatchTime, as in `transform`.

        Returns:
            The spec, with no option set.

        Raises:
            TypeError: the function takes neither form.
        """
        return StateSpec(mappingFunction)

    def initialState(self, state: RDD[Any] | Iterable[tuple[Any, Any]]) -> StateSpec:
        """Set the states before the first batch. For a timeout they count as updated at that batch.

        Args:
            state: an RDD, or an iterable, of (key, state).

        Returns:
            The spec itself.
        """
        self.initial = list(state) if isinstance(state, Iterable) else state
        return self

    @public_call
    def timeout(self, idleDuration: float | Duration) -> StateSpec:
        """Forget keys that had no data for longer than a duration: at batch T, the keys last updated before T − `idleDuration`.

        The function is called once more for such a key, with the value None, and `state.isTimingOut()` is true. Spark does this at the next
        checkpoint of the state; kstream does it in the first batch that finds the key idle for too long.

        Args:
            idleDuration: seconds or a Duration, above zero.

        Returns:
            The spec itself.

        Raises:
            ValueError: the duration is not above zero.
        """
        duration = as_duration(idleDuration)
        if duration.milliseconds <= 0:
            raise refused(ValueError(f"the timeout of a state must be above zero, it is {duration}"))
        self.timeout_duration = duration
        return self

    def numPartitions(self, numPartitions: int) -> StateSpec:
        """Set the number of partitions of the state (default: spark.default.parallelism). It may be changed at a restart.

        Args:
            numPartitions: one or more.

        Returns:
            The spec itself.

        Raises:
            ValueError: the number is below one.
        """
        if numPartitions < 1:
            raise refused(ValueError(f"a state needs one partition or more, not {numPartitions}"))
        self.partitions = numPartitions
        return self

    @property
    def needs_setup(self) -> bool:
        """Whether the spec cannot be stored with the graph, because its initial state is an RDD."""
        return not isinstance(self.initial, list)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "initial": [] if self.needs_setup else self.initial}
