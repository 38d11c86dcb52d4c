"""What a DStream asks of the context it belongs to; filled by StreamingContext."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kstream.conf import Settings

if TYPE_CHECKING:
    from pyspark import SparkContext

    from kstream.dstream.graph import DStreamGraph


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
