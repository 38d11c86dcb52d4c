"""What a DStream asks of the context it belongs to; filled by StreamingContext."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kstream.batch.rdd_scope import RDDScope
from kstream.conf import Settings

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
    def graph(self) -> DStreamGraph: ...

    def check_can_add(self, what: str) -> None:
        """IllegalStateError if the context has started (message says start) or stopped (message says stop)."""
        ...


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
