"""What a DStream asks of the context it belongs to; filled by StreamingContext."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from kstream.conf import Settings
from kstream.rdd.map_with_state import MapWithState

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from kstream.dstream.graph import DStreamGraph


class StreamHost(Protocol):
    """The narrow view of a StreamingContext that streams hold."""

    @property
    def sparkContext(self) -> SparkContext: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def state_rdds(self) -> StateRDDs: ...

    @property
    def graph(self) -> DStreamGraph: ...

    def check_can_add(self, what: str) -> None:
        """IllegalStateError if the context has started (message says start) or stopped (message says stop)."""
        ...


class StateRDDs(Protocol):
    """Makes RDDs of states: one record a partition, the bytes of its StateMap. On the driver; nothing runs. Called at generation."""

    def initial(self, pairs: RDD[Any] | list[tuple[Any, Any]], partitions: int, time_ms: int) -> RDD[bytes]:
        """The states of (key, state) pairs, all updated at `time_ms`."""
        ...

    def updated(self, data: RDD[Any] | None, states: RDD[bytes], partitions: int, update: MapWithState) -> RDD[bytes]:
        """The states after a batch of (key, value) pairs (None: no data). Its attribute `mapped` is the RDD of what the function returned.

        `states` may come from anywhere, with any number of partitions; what this made itself costs no shuffle.
        """
        ...
