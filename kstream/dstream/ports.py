"""What a DStream asks of the context it belongs to; filled by StreamingContext."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstream.batch.rdd_scope import RDDScope
from kstream.batch_time import Time
from kstream.conf import Settings
from kstream.errors import IllegalStateError
from kstream.rdd.map_with_state import MapWithState
from kstream.receiver.block_reading import BlockPlace
from kstream.receiver.received_block_events import ReceivedBlockInfo

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

    from kstream.dstream.call_site import CallSite
    from kstream.dstream.graph import DStreamGraph

R = TypeVar("R")


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


class ReceivedBlocks(Protocol):
    """What receivers have stored; filled by `scheduler.ReceivedInput`. Called by the thread that makes batches, but for `lost`."""

    def waiting(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        """The blocks that no batch has taken, in the order of arrival."""
        ...

    def allocate(self, stream_id: int, names: Iterable[str]) -> None:
        """A plan with these blocks is durable."""
        ...

    def places(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockPlace]:
        """Where they can be read now, as far as the driver knows: one without replicas and without a handle is lost."""
        ...

    def rdd(self, places: Sequence[BlockPlace], tolerant: bool) -> RDD[Any]:
        """One partition a block. `tolerant`: one that turns out to be lost is empty, and `lost` names it then."""
        ...

    def lost(self) -> Mapping[str, str]:
        """Blocks that tolerant tasks have not found: name → who was asked. Any thread."""
        ...

    def forget(self, time: Time, names: Iterable[str]) -> None:
        """No batch and no window needs these any more, of the plan of this time."""
        ...


class NoReceivedBlocks:
    """Before the start, and where nothing is received: a replay."""

    def waiting(self, stream_id: int) -> Sequence[ReceivedBlockInfo]:
        return ()

    def allocate(self, stream_id: int, names: Iterable[str]) -> None: ...

    def places(self, blocks: Iterable[ReceivedBlockInfo]) -> list[BlockPlace]:
        return [BlockPlace(block.block_id, block.num_records, ()) for block in blocks]

    def rdd(self, places: Sequence[BlockPlace], tolerant: bool) -> RDD[Any]:
        raise IllegalStateError("nothing is received before the context has been started", state="initialized")

    def lost(self) -> Mapping[str, str]:
        return {}

    def forget(self, time: Time, names: Iterable[str]) -> None: ...


class Placement(Protocol):
    """Where Spark's pages say that RDDs come from; filled by `spark.rdd_placement` when the context starts."""

    def place(self, site: CallSite, scope: RDDScope | None, open_to_inner: bool, body: Callable[[], R]) -> R:
        """What `body` returns; the RDDs it makes have this call site and scope.

        `open_to_inner`: a function of the user's runs in there, whose own calls show where they stand, nested in the scope.
        """
        ...

    def called_at(self, site: CallSite, body: Callable[[], R]) -> R:
        """What `body` returns; the Spark jobs it runs have this call site."""
        ...

    def name(self, rdd: RDD[Any], name: str) -> None:
        """Names an RDD that is to be stored, unless it has a name."""
        ...


class NoPlacement:
    """Without Spark, and before the start."""

    def place(self, site: CallSite, scope: RDDScope | None, open_to_inner: bool, body: Callable[[], R]) -> R:
        return body()

    def called_at(self, site: CallSite, body: Callable[[], R]) -> R:
        return body()

    def name(self, rdd: RDD[Any], name: str) -> None:
        """There is no page to read it on."""


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

    def remove_checkpoint(self, path: str) -> None:
        """Removes the files of an RDD checkpoint of Spark's. Blocks; a path that is not there is no error."""
        ...
