"""DStreamBase: the parts of a stream that are not operators – its node in the graph, its name, its storage, its past RDDs."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark.storagelevel import StorageLevel

from kstream.batch_time import Duration, Time
from kstream.dstream.arguments import as_duration, as_time
from kstream.dstream.node import DStreamNode
from kstream.dstream.ports import StreamHost
from kstream.dstream.recipe import CallSite, Recorder, recorded
from kstream.dstream.reference import RecordedStream
from kstream.public_call import refused

if TYPE_CHECKING:
    from pyspark import RDD

T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D", bound="DStreamBase[Any]")


class DStreamBase(RecordedStream, Generic[T_co]):
    """A handle on a node of the graph. DStream adds the operators."""

    def __init__(self, node: DStreamNode) -> None:
        self._node = node
        self.is_cached = False
        """Whether the user has called `persist` or `cache`. As in pyspark, storage that a window or a state needs does not count."""
        self.is_checkpointed = False
        """Whether the user has called `checkpoint`. As in pyspark, a default interval does not count."""

    def __repr__(self) -> str:
        return self._node.description()

    @property
    def _recorder(self) -> Recorder:
        return self._node.recorder

    @property
    def _creation_site(self) -> CallSite:
        return self._node.creation_site

    # -- the stream itself

    def context(self) -> StreamHost:
        """Return the StreamingContext of this stream."""
        return self._node.ssc.context

    @recorded
    def setName(self: D, name: str) -> D:
        """Name the stream. A named input finds its stored offsets after any change of code; an input without a name, by its position.

        Args:
            name: some text without commas.

        Returns:
            This stream.

        Raises:
            ValueError: the name is empty or has a comma.
            IllegalStateError: the context has started.
        """
        self._node.ssc.check_can_add("names")
        if not name or "," in name:
            raise refused(ValueError(f"a stream's name must be a text without commas, it is {name!r}"))
        self._node.given_name = name
        return self

    def name(self) -> str | None:
        """Return the name that `setName` has set; None without a name."""
        return self._node.given_name

    @recorded
    def persist(self: D, storageLevel: StorageLevel) -> D:
        """Persist each RDD of this stream until the stream forgets it.

        Args:
            storageLevel: where Spark keeps the RDDs.

        Returns:
            This stream.

        Raises:
            IllegalStateError: the context has started.
        """
        self._node.ssc.check_can_add("storage levels")
        self.is_cached = True
        self._node.set_storage_level(storageLevel)
        return self

    @recorded
    def cache(self: D) -> D:
        """Persist each RDD at MEMORY_ONLY, as `persist`. Return this stream."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    @recorded
    def checkpoint(self: D, interval: float | Duration) -> D:
        """Set how often the state of this stream is written under the checkpoint directory.

        If only the SparkContext has a checkpoint directory, Spark checkpoints the RDD of the state at this interval. A stream without state
        writes nothing, because its RDDs can be computed from the plans. But it remembers its RDDs for two intervals.

        Args:
            interval: seconds or a Duration, a multiple of the slide duration. Without this call a stream with state uses the least
                multiple of the slide duration that is 10 s or more; for mapWithState ten slide durations.

        Returns:
            This stream.

        Raises:
            IllegalStateError: the context has been started.
            ConfigurationError: the interval is not a multiple of the slide duration.
        """
        self._node.ssc.check_can_add("checkpoint intervals")
        self._node.set_checkpoint_interval(as_duration(interval))
        self.is_checkpointed = True
        return self

    def slice(self, begin: datetime | float | Time, end: datetime | float | Time) -> list[RDD[T_co]]:
        """Return the RDDs of past batches. Any thread. An RDD that this stream has not made yet is made now, in the calling thread.

        So functions of `transform` may run. The call blocks while another thread makes an RDD of this stream.

        A moment between two batches counts as the batch before it. Times before the first batch, times that are not planned yet, and
        times older than this stream remembers (`ssc.remember`) are left out.

        Args:
            begin: the first batch: a datetime (local time if it has no zone), seconds since 1970, or a Time.
            end: the last batch, in the same forms.

        Returns:
            The RDDs, oldest first.

        Raises:
            IllegalStateError: the context has not started, or no output depends on this stream.
            TypeError: `begin` or `end` is of another type.
        """
        return self._node.remembered_rdds(as_time(begin), as_time(end))


def node_of(stream: DStreamBase[Any]) -> DStreamNode:
    """Return the node of a stream in the graph. For other rooms of kstream, not for users.

    Raises:
        TypeError: the user gave something else than a stream, such as an RDD.
    """
    if not isinstance(stream, DStreamBase):  # pyright: ignore[reportUnnecessaryIsInstance]
        hint = ". Use transform to combine each batch with an RDD: stream.transform(lambda batch: batch.join(rdd))"
        raise refused(TypeError(f"{stream!r} is no DStream but of type {type(stream).__name__}{hint if hasattr(stream, 'ctx') else ''}"))
    return stream._node  # pyright: ignore[reportPrivateUsage]
