"""StreamReference: a stream inside a user's function, when that function is stored with the graph.

Spark's users commit offsets by `stream.commitAsync(…)` inside `stream.foreachRDD(…)`, so such a function must survive a restart. The
stream's place in the graph is stored. The function gets a stand-in, which is the new stream once the graph has been made again.
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
    """The base of DStream, as far as the record of a graph knows streams. A stream is pickled as its place in the record."""

    def __reduce__(self) -> Any:
        return reduce_stream(self)


class StreamReference:
    """Stands for the stream at `index` of the graph's record, and passes every attribute on to it."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream: RecordedStream | None = None
        loading = _loading.get()
        if loading is not None:
            loading.append(self)

    def bind(self, streams: list[Any]) -> None:
        """Become the new stream, once the graph has been made again."""
        self._stream = streams[self._index]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if self.__dict__.get("_stream") is None:
            raise IllegalStateError(f"stream {self.__dict__.get('_index')} of a stored graph is not made yet", state="restoring")
        return getattr(self._stream, name)

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride] – so that isinstance says what it says of the stream
        return StreamReference if self._stream is None else type(self._stream)

    def __reduce__(self) -> Any:
        return reduce_stream(self._stream)


def reduce_stream(stream: Any) -> Any:
    """Pickle a stream by its place in the record, while a graph is stored. TypeError otherwise."""
    index_of = _dumping.get()
    if index_of is None:
        raise TypeError(f"{stream!r} cannot be used inside a function that runs on the workers: streams live on the driver")
    return StreamReference, (index_of(stream),)


@contextmanager
def dumping(index_of: Callable[[Any], int]) -> Generator[None]:
    """In here streams can be pickled. `index_of` gives the place of a stream in the record of the graph."""
    token = _dumping.set(index_of)
    try:
        yield
    finally:
        _dumping.reset(token)


@contextmanager
def loading() -> Generator[list[StreamReference]]:
    """Collects the references unpickled in here, to be bound when the graph is there."""
    found: list[StreamReference] = []
    token = _loading.set(found)
    try:
        yield found
    finally:
        _loading.reset(token)
