"""StreamReference: a stream inside a user's function, when that function is stored with the graph.

Spark's users commit offsets by `stream.commitAsync(…)` inside `stream.foreachRDD(…)`, so such a function must survive a restart. The
stream's place in the graph is stored. The restored function gets a stand-in, which is bound to the new stream when the graph is restored.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from kstream.errors import IllegalStateError

_dumping: ContextVar[Callable[[Any], int] | None] = ContextVar("_dumping", default=None)
_loading: ContextVar[list[StreamReference] | None] = ContextVar("_loading", default=None)


class RecordedStream:
    """The base of DStream for the record of a graph. It pickles a stream as its place in the record; see `reduce_stream`."""

    def __reduce__(self) -> Any:
        return reduce_stream(self)


class StreamReference:
    """A stand-in for the stream at `index` of the graph's record. It passes every attribute access on to that stream.

    Before `bind` an access to an attribute raises IllegalStateError.
    """

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream: RecordedStream | None = None
        loading = _loading.get()
        if loading is not None:
            loading.append(self)

    def bind(self, streams: list[Any]) -> None:
        """Attach this reference to its stream, when the graph has been restored.

        Args:
            streams: the streams of the restored graph, by their index in the record.
        """
        self._stream = streams[self._index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__dict__.get("_stream") is None:
            raise IllegalStateError(f"stream {self.__dict__.get('_index')} of a stored graph is not made yet", state="restoring")
        return getattr(self._stream, name)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] – isinstance gives the answer that it gives for the stream
        return StreamReference if self._stream is None else type(self._stream)

    def __reduce__(self) -> Any:
        return reduce_stream(self._stream)


def reduce_stream(stream: Any) -> Any:
    """Return the pickled form (as of `__reduce__`) of a stream: a StreamReference to its place in the record.

    Raises:
        TypeError: no graph is being stored (the call is not inside `dumping`).
    """
    index_of = _dumping.get()
    if index_of is None:
        raise TypeError(f"{stream!r} cannot be used inside a function that runs on the workers: streams live on the driver")
    return StreamReference, (index_of(stream),)


@contextmanager
def dumping(index_of: Callable[[Any], int]) -> Generator[None]:
    """Allow streams to be pickled inside this context, on this thread.

    Args:
        index_of: returns the index of a stream in the record of the graph.
    """
    token = _dumping.set(index_of)
    try:
        yield
    finally:
        _dumping.reset(token)


@contextmanager
def loading() -> Generator[list[StreamReference]]:
    """Collect the StreamReferences that this thread unpickles inside this context.

    Yields:
        The list of references so far. The caller binds them when the graph is restored.
    """
    found: list[StreamReference] = []
    token = _loading.set(found)
    try:
        yield found
    finally:
        _loading.reset(token)
