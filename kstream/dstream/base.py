"""DStreamBase: what a stream is apart from its operators – its node in the graph, its name, its storage, its past RDDs."""

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

if TYPE_CHECKING:
    from pyspark import RDD

T_co = TypeVar("T_co", covariant=True)
D = TypeVar("D", bound="DStreamBase[Any]")


class DStreamBase(RecordedStream, Generic[T_co]):
    """A handle on a node of the graph. DStream adds the operators."""

    def __init__(self, node: DStreamNode) -> None:
        self._node = node
        self.is_cached = False
        """Whether `persist` or `cache` has been called; that a window or a state is stored does not count, as in pyspark."""
        self.is_checkpointed = False
        """Whether `checkpoint` has been called; an interval that is the default does not count, as in pyspark."""

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
        """The StreamingContext this stream belongs to."""
        return self._node.ssc.context

    @recorded
    def setName(self: D, name: str) -> D:
        """Name the stream. An input with a name finds its stored offsets after any change of code; without one, by its position.

        Args:
            name: some text without commas.

        Returns:
            This stream.

        Raises:
            ValueError: the name is empty or has a comma.
        """
        self._node.ssc.check_can_add("names")
        if not name or "," in name:
            raise ValueError(f"a stream's name is some text without commas, it is {name!r}")
        self._node.given_name = name
        return self

    def name(self) -> str | None:
        """The name given by `setName`; None without one."""
        return self._node.given_name

    @recorded
    def persist(self: D, storageLevel: StorageLevel) -> D:
        """Persist each RDD of this stream until the stream forgets it.

        Args:
            storageLevel: where Spark keeps the RDDs.

        Returns:
            This stream.
        """
        self._node.ssc.check_can_add("storage levels")
        self.is_cached = True
        self._node.set_storage_level(storageLevel)
        return self

    @recorded
    def cache(self: D) -> D:
        """Persist each RDD at MEMORY_ONLY. Returns this stream."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    @recorded
    def checkpoint(self: D, interval: float | Duration) -> D:
        """Set how often the state of this stream is written under the checkpoint directory.

        If only the SparkContext has a checkpoint directory, Spark checkpoints the RDD of the state so often. A stream without state writes
        nothing, because its RDDs are made again from the plans. But it remembers them for two intervals, as every stream with one does.

        Args:
            interval: seconds or a Duration, a multiple of the slide duration. Default for a stream with state: the least multiple of the
                slide duration from 10 s on; for mapWithState ten slide durations.

        Returns:
            This stream.

        Raises:
            ConfigurationError: the interval is not a multiple of the slide duration.
        """
        self._node.set_checkpoint_interval(as_duration(interval))
        self.is_checkpointed = True
        return self

    def slice(self, begin: datetime | float | Time, end: datetime | float | Time) -> list[RDD[T_co]]:
        """Return the RDDs of past batches. Any thread; blocks while a batch is being made.

        A moment between two batches counts as the batch before it. Left out are times before the first batch, those not planned yet
        and those older than this stream remembers (`ssc.remember`).

        Args:
            begin: the first batch: a datetime (naive ones are local), seconds since 1970, or a Time.
            end: the last batch, in the same forms.

        Returns:
            The RDDs, oldest first.

        Raises:
            IllegalStateError: the context has not started, or no output depends on this stream.
        """
        return self._node.remembered_rdds(as_time(begin), as_time(end))


def node_of(stream: DStreamBase[Any]) -> DStreamNode:
    """The node of a stream in the graph, for other rooms of kstream. Users do not see it."""
    return stream._node  # pyright: ignore[reportPrivateUsage]
