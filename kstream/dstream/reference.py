"""StreamReference: a stream inside a user's function, when that function is stored with the graph.

`stream.commitAsync(…)` inside `stream.foreachRDD(…)` is how Spark's users commit offsets, so such a function must survive a restart.
Stored is the stream's place in the graph; the function gets a stand-in, which is the new stream once the graph has been made again.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from kstream.errors import IllegalStateError

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream
    from kstream.dstream.recipe import Recorder

_dumping: ContextVar[Recorder | None] = ContextVar("_dumping", default=None)
_loading: ContextVar[list[StreamReference] | None] = ContextVar("_loading", default=None)


class StreamReference:
    """Stands for the stream at `index` of the graph's record, and passes every attribute on to it."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._stream: DStream | None = None
        loading = _loading.get()
        if loading is not None:
            loading.append(self)

    def bind(self, streams: list[Any]) -> None:
        """The graph has been made again."""
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
    """How a stream is pickled: by its place while a graph is stored, and not at all otherwise."""
    recorder = _dumping.get()
    if recorder is None:
        raise TypeError(f"{stream!r} cannot be used inside a function that runs on the workers: streams live on the driver")
    return StreamReference, (recorder.index_of(stream),)


@contextmanager
def dumping(recorder: Recorder) -> Generator[None]:
    """In here streams of this recorder's graph can be pickled."""
    token = _dumping.set(recorder)
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
