"""The interfaces of higher rooms that streams use: the context, the receivers, Spark. So streams need not import those rooms."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstream.batch import BatchInfo, RDDScope
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.conf import Settings
from kstream.dstream.received_blocks import NoReceivedBlocks, ReceivedBlocks
from kstream.dstream.recipe import CallSite, Recorder
from kstream.listener import StreamingListenerEvent
from kstream.rdd.map_with_state import MapWithState

if TYPE_CHECKING:
    from pyspark import RDD, SparkContext

R = TypeVar("R")


class StreamHost(Protocol):
    """The object on which a user makes a stream: a StreamingContext."""

    @property
    def sparkContext(self) -> SparkContext:
        """The SparkContext on which the streams run."""
        ...


class StreamServices(StreamHost, Protocol):
    """The services of a context for its streams, which users do not see. Implemented by `ContextServices`, and by the simulator's host."""

    @property
    def context(self) -> StreamHost:
        """The StreamingContext itself."""
        ...

    @property
    def settings(self) -> Settings: ...

    @property
    def state_rdds(self) -> StateRDDs:
        """The maker of RDDs of states, for mapWithState."""
        ...

    @property
    def graph(self) -> StreamGraph: ...

    def check_can_add(self, what: str) -> None:
        """Raise IllegalStateError if the context has started or stopped; the message says which.

        Args:
            what: the kind of object that would be added, for the message.
        """
        ...


def services_of(host: StreamHost) -> StreamServices:
    """Return the services of a StreamingContext. If `host` is a services object already, return it."""
    return getattr(host, "_services", host)  # pyright: ignore[reportReturnType]


class StreamGraph(Protocol):
    """The DStreamGraph as its streams use it. The graph imports the classes of streams, so streams cannot import the graph."""

    @property
    def batch_duration(self) -> Duration: ...

    @property
    def recorder(self) -> Recorder:
        """The recorder of the calls that built the graph."""
        ...

    @property
    def input_streams(self) -> Sequence[Any]:
        """Return the inputs, in the order in which they were made."""
        ...

    @property
    def newest_generated(self) -> Time | None:
        """The newest batch that was generated; None before the first. Any thread."""
        ...

    @property
    def keeps_layout(self) -> bool:
        """Whether each try of a batch must divide its records in the same way."""
        ...

    def parallelism_of(self, time: Time) -> int | None:
        """Return the default parallelism of the driver that planned a batch; None if it is not kept."""
        ...

    def required(self, time: Time, remember: Duration) -> RequiredBatches:
        """Return the batches whose RDDs and plans a stream keeps when those up to `time` have ended."""
        ...

    @property
    def placement(self) -> Placement:
        """The Placement of Spark from the start on; one that only runs its functions before."""
        ...

    def add_input_stream(self, stream: Any) -> int:
        """Add an input. Return its id."""
        ...

    def add_state_stream(self, stream: Any) -> int:
        """Add a stream with state. Return its number."""
        ...

    def add_output_stream(self, stream: Any) -> None: ...

    def inputs_of(self, stream: Any) -> Sequence[Any]: ...


def _to_nobody(event: StreamingListenerEvent) -> None: ...


@dataclass(frozen=True, slots=True)
class InputServices:
    """The driver's services for an input, passed to `InputDStream.start`. The defaults hold before the start."""

    post_event: Callable[[StreamingListenerEvent], None] = _to_nobody
    """Posts an event to the listeners. Any thread; returns at once."""
    is_fenced: Callable[[], bool] = lambda: False
    """Whether another driver has taken over. If so, `stop` must not report to the source what this driver did. Any thread."""
    received_blocks: ReceivedBlocks | NoReceivedBlocks = field(default_factory=NoReceivedBlocks)
    """The blocks that the receivers of this driver have stored."""
    open_batches: Callable[[], Collection[Time]] = tuple
    """The batches that run, or wait for an earlier one. A batch between two tries is not among them. Any thread."""
    last_batches: Callable[[int], Sequence[BatchInfo]] = lambda _: ()
    """Returns how fast the last batches of a stream were that earlier drivers have completed, oldest first, by the id of the stream.

    They are without outputs and facts, and none at a first start. Blocks on the store.
    """
    tolerate_loss: bool = False
    """Whether losses are reported in the outcome and never raised. A replay sets this, to run on the data that is left."""


class Placement:
    """The places in the user's code that Spark's pages show for RDDs and jobs. This class sets none: it only runs `body`.

    So it serves without Spark, and before the start. `spark.rdd_placement.SparkPlacement` sets the places.
    """

    def place(self, site: CallSite, scope: RDDScope | None, open_to_inner: bool, body: Callable[[], R]) -> R:
        """Run `body` on this thread. The RDDs that it makes get this call site and scope.

        Args:
            site: the user's call of the operator.
            scope: the box on Spark's pages in which the RDDs are drawn; None for no box.
            open_to_inner: `body` runs a function of the user; its own RDD calls are shown at their own call sites, within the scope.
            body: makes RDDs.

        Returns:
            The result of `body`.
        """
        return body()

    def called_at(self, site: CallSite, body: Callable[[], R]) -> R:
        """Run `body` on this thread, and return its result. The Spark jobs that it runs get this call site."""
        return body()

    def name(self, rdd: RDD[Any], name: str) -> None:
        """Name an RDD that will be persisted, for Spark's storage page. An RDD that has a name keeps it."""


class StateRDDs(Protocol):
    """Makes and computes RDDs of states. Each partition has one record, the bytes of its StateMap.

    On the driver. The thread that makes RDDs calls all methods but `compute` and `remove_checkpoint`; they compute nothing.
    """

    def initial(self, pairs: RDD[Any] | list[tuple[Any, Any]], partitions: int, time_ms: int) -> RDD[bytes]:
        """Return an RDD of states made of (key, state) pairs.

        Args:
            pairs: an RDD, or a list, of (key, state).
            partitions: the number of partitions.
            time_ms: the update time of all states.
        """
        ...

    def compute(self, state: RDD[Any]) -> None:
        """Compute every partition of a state. Its checkpoint then cuts the lineage. Called in a job thread; blocks on a Spark job.

        Any error of the job is raised.
        """
        ...

    def updated(self, data: RDD[Any] | None, states: RDD[bytes], partitions: int, update: MapWithState) -> RDD[bytes]:
        """Return an RDD of the states after a batch. Its attribute `mapped` is the RDD of the results of the mapping function.

        Args:
            data: the (key, value) pairs of the batch; None for no data.
            states: the states before the batch, in any number of partitions. States that this object made are not shuffled.
            partitions: the number of partitions.
            update: the mapping function and the time of the batch.
        """
        ...

    def remove_checkpoint(self, path: str) -> None:
        """Remove the files of a Spark RDD checkpoint. Blocks on the file system. A missing path is not an error."""
        ...
