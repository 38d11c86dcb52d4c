"""Recorder: writes down each operator call, so that a graph can be stored on request and made again by the same calls.

One line a public call: the stream it was called on, the operator's name, its arguments (numbers as JSON, functions by index,
streams by index), and where in the user's code it stands, for Spark's pages. Calls made inside another operator are not written
down, the outer one repeats them. What is stored is the public API, so it stays readable across versions of kstream.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from pyspark.storagelevel import StorageLevel

from kstream.batch.rdd_scope import RDDScope
from kstream.batch_time import Duration
from kstream.dstream.call_site import CallSite, user_call_site

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])
_ON_WORKERS = "__kstream_on_workers__"


@dataclass(frozen=True, slots=True)
class Recipe:
    """How an input is made again: `kind` names its connector (`kafka-direct`), `args` are JSON, `functions` the user's.

    `args` must hold no secret. An input that needs one offers no recipe, and its graph cannot be stored.
    """

    kind: str
    args: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function, or another value that is no JSON, which the user gave to an operator."""

    value: Any
    site: str
    """The operator, and the user's line; not stored."""


class Recorder:
    """The calls that built one graph. Driver thread only, before start."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.functions: list[UserFunction] = []
        """What the calls name by index."""
        self.worker_functions: list[UserFunction] = []
        """What tasks will run. Most of them are in `functions`, too."""
        self._streams: list[DStream] = []
        self._local = threading.local()
        self._scope_ids = itertools.count()
        self.why_not: str | None = None

    @property
    def nested(self) -> bool:
        return self.scope is not None

    @property
    def scope(self) -> RDDScope | None:
        """The operator that is being called on this thread; None outside of one. The outermost counts: it is what the user called."""
        return getattr(self._local, "scope", None)

    @property
    def site(self) -> CallSite | None:
        """Where that call stands, or stood when the graph was stored; None outside of an operator that is called for the first time."""
        return getattr(self._local, "site", None)

    def new_scope(self, name: str) -> RDDScope:
        return RDDScope(str(next(self._scope_ids)), name)

    @contextmanager
    def calling(self, operator: str) -> Generator[None]:
        """Around the outermost call of an operator."""
        with self.at(self.site or replace(user_call_site(), function=operator)):
            self._local.scope = self.new_scope(operator)
            try:
                yield
            finally:
                self._local.scope = None

    @contextmanager
    def at(self, site: CallSite | None) -> Generator[None]:
        """Streams made in here are said to be made at this place."""
        before = self.site
        self._local.site = site
        try:
            yield
        finally:
            self._local.site = before

    def add_input(self, stream: DStream, recipe: Recipe | None, reason: str) -> None:
        """Notes an input stream; without a recipe the graph cannot be restored, for `reason`."""
        if recipe is None:
            self.why_not = self.why_not or reason
            self._add(stream, {"input": None})
            return
        functions = {name: self._encode(f) for name, f in recipe.functions.items()}
        self._add(stream, {"input": recipe.kind, "args": dict(recipe.args), "functions": functions})

    def add_call(self, target: DStream | None, operator: str, args: Any, kwargs: Any, result: DStream | None) -> None:
        """Notes one operator call; `target` None stands for the context."""
        call = {
            "on": None if target is None else self.index_of(target),
            "call": operator,
            "args": [self._encode(a) for a in args],
            "kwargs": {k: self._encode(v) for k, v in kwargs.items()},
        }
        self._add(result, call)

    def for_workers(self, function: Any) -> None:
        """Notes a function that tasks will run, whether or not it is an argument of a call. start() tries to pickle it."""
        self.worker_functions.append(UserFunction(function, self._here()))

    def runs_on_workers(self, function: Any) -> bool:
        """Whether this very object was noted as one that tasks run."""
        return any(noted.value is function for noted in self.worker_functions)

    def _here(self) -> str:
        return (self.site or user_call_site()).short_form

    def _add(self, stream: DStream | None, call: dict[str, Any]) -> None:
        if stream is not None and not any(s is stream for s in self._streams):
            call["stream"] = len(self._streams)
            self._streams.append(stream)
        site = self.site or (None if stream is None else stream.creation_site)
        if site is not None:
            call["at"] = [site.function, site.file, site.line]
        self.calls.append(call)

    def index_of(self, stream: DStream) -> int:
        """Where the stream stands in the record; one that nobody noted (a class of the user's own) cannot be made again."""
        for index, known in enumerate(self._streams):
            if known is stream:
                return index
        self.add_input(stream, None, f"{stream!r} was not made by a public operator of this context")
        return len(self._streams) - 1

    def _encode(self, value: Any) -> Any:
        from kstream.dstream.dstream import DStream

        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, DStream):
            return {"stream": self.index_of(value)}
        if isinstance(value, Duration):
            return {"ms": value.milliseconds}
        if isinstance(value, StorageLevel):
            parts = [value.useDisk, value.useMemory, value.useOffHeap, value.deserialized, value.replication]
            return {"level": parts}
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, DStream) for v in value):
            return {"streams": [self.index_of(v) for v in value]}
        if hasattr(value, "ctx"):  # an RDD; those of a driver die with it
            self.why_not = self.why_not or f"{value} was made by the driver, outside the graph"
            return None
        self.functions.append(UserFunction(value, self._here()))
        return {"function": len(self.functions) - 1}


class Replay:
    """Makes a graph again from recorded calls. `functions` are the unpickled values."""

    def __init__(self, host: Any, functions: list[Any], make_input: Callable[[Recipe], DStream]) -> None:
        self._host = host
        self._functions = functions
        self._make_input = make_input
        self._streams: list[Any] = []

    @property
    def streams(self) -> list[Any]:
        """The streams made so far, by their place in the record."""
        return self._streams

    def run(self, calls: list[dict[str, Any]]) -> None:
        for call in calls:
            site = CallSite(*call["at"]) if "at" in call else None
            with self._host.recorder.at(site):
                result = self._input(call) if "input" in call else self._call(call)
            if "stream" in call:
                self._streams.append(result)

    def _input(self, call: dict[str, Any]) -> DStream:
        functions = {name: self._decode(v) for name, v in call["functions"].items()}
        return self._make_input(Recipe(call["input"], call["args"], functions))

    def _call(self, call: dict[str, Any]) -> Any:
        target = self._host if call["on"] is None else self._streams[call["on"]]
        args = [self._decode(a) for a in call["args"]]
        kwargs = {k: self._decode(v) for k, v in call["kwargs"].items()}
        return getattr(target, call["call"])(*args, **kwargs)

    def _decode(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        ((kind, inner),) = value.items()
        if kind == "stream":
            return self._streams[inner]
        if kind == "streams":
            return [self._streams[i] for i in inner]
        if kind == "ms":
            return Duration(inner)
        if kind == "level":
            return StorageLevel(*inner)
        return self._functions[inner]


def on_workers(*parameters: str) -> Callable[[F], F]:
    """Says which parameters of an operator are functions that tasks run; all its other functions run on the driver. Below `recorded`."""

    def mark(method: F) -> F:
        setattr(method, _ON_WORKERS, parameters)
        return method

    return mark


def parameters_on_workers(method: Callable[..., Any]) -> tuple[str, ...]:
    """What `on_workers` said of a method."""
    return getattr(method, _ON_WORKERS, ())


def recorded(method: Callable[P, R]) -> Callable[P, R]:
    """Marks a public operator: its outermost calls are written down by the recorder of the stream (or context) it is on."""
    signature, of_tasks = inspect.signature(method), parameters_on_workers(method)

    @functools.wraps(method)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        from kstream.dstream.dstream import DStream

        target: Any = args[0]
        recorder: Recorder = target.recorder
        if recorder.nested:
            return method(*args, **kwargs)
        with recorder.calling(method.__name__):
            result = method(*args, **kwargs)
            given = signature.bind(*args, **kwargs).arguments if of_tasks else {}
            for function in (given.get(name) for name in of_tasks):
                if function is not None:
                    recorder.for_workers(function)
            on = target if isinstance(target, DStream) else None
            made = result if isinstance(result, DStream) else None
            recorder.add_call(on, method.__name__, args[1:], kwargs, made)
        return result

    return wrapper
