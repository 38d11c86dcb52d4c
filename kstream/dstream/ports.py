"""What streams ask of higher rooms: of their context, of the receivers, of Spark. Each port turns an import round."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstream.batch.events import StreamingListenerEvent
from kstream.batch.rdd_scope import RDDScope
from kstream.batch_time import Duration
from kstream.conf import Settings
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.dstream.recipe import CallSite, Recorder
from kstream.rdd.map_with_state import MapWithState

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

R = TypeVar("R")


class StreamHost(Protocol):
    """What a stream is made on: a StreamingContext."""

    @property
    def sparkContext(self) -> SparkContext: ...


class StreamServices(StreamHost, Protocol):
    """What streams hold of their context and its user does not see. Filled by StreamingContext, and by the simulator's host."""

    @property
    def context(self) -> StreamHost:
        """The StreamingContext itself."""
        ...

    @property
    def settings(self) -> Settings: ...

    @property
    def state_rdds(self) -> StateRDDs: ...

    @property
    def graph(self) -> StreamGraph: ...

    def check_can_add(self, what: str) -> None:
        """IllegalStateError if the context has started (message says start) or stopped (message says stop)."""
        ...


def services_of(host: StreamHost) -> StreamServices:
    """The services behind a StreamingContext. Services themselves are returned as they are."""
    return getattr(host, "_services", host)  # pyright: ignore[reportReturnType]


class StreamGraph(Protocol):
    """The DStreamGraph as its streams see it. It knows their classes, so they do not know its class."""

    @property
    def batch_duration(self) -> Duration: ...

    @property
    def recorder(self) -> Recorder: ...

    @property
    def input_streams(self) -> Sequence[Any]: ...

    @property
    def placement(self) -> Placement: ...

    def add_input_stream(self, stream: Any) -> int: ...

    def add_state_stream(self, stream: Any) -> int: ...

    def add_output_stream(self, stream: Any) -> None: ...

    def inputs_of(self, stream: Any) -> Sequence[Any]: ...


def _to_nobody(event: StreamingListenerEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class InputServices:
    """What an input may use. The driver gives it to `InputDStream.start`; as it is here it holds before the start."""

    post_event: Callable[[StreamingListenerEvent], None] = _to_nobody
    """Posts an event to the listeners. Any thread; returns at once."""
    is_fenced: Callable[[], bool] = lambda: False
    """Whether another driver has taken over: `stop` must tell the outside nothing of what this one did. Any thread."""
    received_blocks: ReceivedBlocks | NoReceivedBlocks = field(default_factory=NoReceivedBlocks)
    """What the receivers of this driver have stored."""
    tolerant: bool = False
    """Losses are told with the outcome, and not raised: a replay looks at what is left of the past."""


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
