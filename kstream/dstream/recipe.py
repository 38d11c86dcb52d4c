"""Recorder: records each operator call, so that a graph can be stored, and restored by repeating the calls (Replay).

A record has one entry for each public call: the stream that was called, the operator's name, its arguments, and the call's place in the
user's code, for Spark's pages. Numbers among the arguments are JSON; functions and streams are indexes. Calls inside another operator are
not recorded, because the outer call repeats them. The record uses the public API only, so later versions of kstream can read it.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar, cast

from pyspark.storagelevel import StorageLevel

from kstream.batch import RDDScope
from kstream.batch_time import Duration
from kstream.dstream.arguments import check_body_runs, check_function
from kstream.dstream.reference import RecordedStream
from kstream.public_call import end_at_the_call
from kstream.user_code import Owner, owner_of

F = TypeVar("F", bound=Callable[..., Any])
_ON_WORKERS = "__kstream_on_workers__"
_CHECKED = "__kstream_checked__"
_BELOW_A_CALL = (Owner.KSTREAM, Owner.PYTHON)


@dataclass(frozen=True, slots=True)
class CallSite:
    """A place in the user's code: `file`:`line`, where kstream's `function` was called."""

    function: str
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"

    @property
    def short_form(self) -> str:
        """`<function> at <file>:<line>`, as on Spark's pages."""
        return f"{self.function} at {self.file}:{self.line}"


def user_call_site() -> CallSite:
    """Return the call site of this thread: the innermost frame outside kstream and Python, and the kstream function that it called."""
    frame = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
    function = frame.f_code.co_name
    while frame.f_back is not None and owner_of(frame.f_code.co_filename, frame.f_globals.get("__name__", "")) in _BELOW_A_CALL:
        if frame.f_code.co_name != "__init__" and frame.f_code.co_name != "wrapper":
            function = frame.f_code.co_name
        frame = frame.f_back
    return CallSite(function, frame.f_code.co_filename, frame.f_lineno)


@dataclass(frozen=True, slots=True)
class Recipe:
    """The stored description from which an input is restored. An input that needs a secret has no recipe, and its graph cannot be stored.

    Attributes:
        kind: the name of the connector (`kafka-direct`).
        args: JSON values, without secrets.
        functions: the user's functions, by name.
    """

    kind: str
    args: Mapping[str, Any]
    functions: Mapping[str, Callable[..., Any]] = field(default_factory=dict[str, Callable[..., Any]])


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function, or another value that is not JSON, which the user passed to an operator."""

    value: Any
    site: str
    """The operator and the user's line, for messages; not stored."""


class Recorder:
    """The calls that built one graph. Used on the driver, before the start; each thread has its own `scope` and `site`."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.functions: list[UserFunction] = []
        """The functions in the arguments of the calls, which refer to them by index."""
        self.worker_functions: list[UserFunction] = []
        """The functions that tasks will run. Most of them are in `functions`, too."""
        self._streams: list[RecordedStream] = []
        self._local = threading.local()
        self._scope_ids = itertools.count()
        self.why_not: str | None = None
        """Why the graph cannot be stored; None if it can."""

    @property
    def nested(self) -> bool:
        """Whether this thread is inside a call of an operator."""
        return self.scope is not None

    @property
    def scope(self) -> RDDScope | None:
        """The scope of the outermost operator call on this thread, which is the user's call; None outside a call."""
        return getattr(self._local, "scope", None)

    @property
    def site(self) -> CallSite | None:
        """The call site of that operator call, of now or of when the graph was stored; None outside a call."""
        return getattr(self._local, "site", None)

    def new_scope(self, name: str) -> RDDScope:
        """Return a scope of this name with the next free id."""
        return RDDScope(str(next(self._scope_ids)), name)

    @contextmanager
    def calling(self, operator: str) -> Generator[None]:
        """Set `scope` and `site` of this thread during the outermost call of an operator."""
        with self.at(self.site or replace(user_call_site(), function=operator)):
            self._local.scope = self.new_scope(operator)
            try:
                yield
            finally:
                self._local.scope = None

    @contextmanager
    def at(self, site: CallSite | None) -> Generator[None]:
        """Set `site` of this thread: streams made inside this context get it as their creation site."""
        before = self.site
        self._local.site = site
        try:
            yield
        finally:
            self._local.site = before

    def add_input(self, stream: RecordedStream, recipe: Recipe | None, reason: str) -> None:
        """Record an input stream. Without a recipe the graph cannot be stored.

        Args:
            stream: the input.
            recipe: how to restore the input; None for no recipe.
            reason: why there is no recipe.
        """
        if recipe is None:
            self.why_not = self.why_not or reason
            self._add(stream, {"input": None})
            return
        functions = {name: self._encode(f) for name, f in recipe.functions.items()}
        self._add(stream, {"input": recipe.kind, "args": dict(recipe.args), "functions": functions})

    def add_call(self, target: RecordedStream | None, operator: str, args: Any, kwargs: Any, result: RecordedStream | None) -> None:
        """Record one operator call.

        Args:
            target: the stream that was called; None for the context.
            operator: the name of the method.
            args: its positional arguments, without the stream.
            kwargs: its keyword arguments.
            result: the stream that it returned; None for another result.
        """
        call = {
            "on": None if target is None else self.index_of(target),
            "call": operator,
            "args": [self._encode(a) for a in args],
            "kwargs": {k: self._encode(v) for k, v in kwargs.items()},
        }
        self._add(result, call)

    def for_workers(self, function: Any) -> None:
        """Record a function that tasks will run, whether or not it is an argument of a call. start() tries to pickle it."""
        self.worker_functions.append(UserFunction(function, self._here()))

    def runs_on_workers(self, function: Any) -> bool:
        """Return whether this very object was recorded as a function that tasks run."""
        return any(noted.value is function for noted in self.worker_functions)

    def _here(self) -> str:
        """Return the place of the operator call, or else of the user's line, for messages."""
        return (self.site or user_call_site()).short_form

    def _add(self, stream: RecordedStream | None, call: dict[str, Any]) -> None:
        """Append a call with its call site. A stream that is new to the record gets the next index."""
        if stream is not None and not self.knows(stream):
            call["stream"] = len(self._streams)
            self._streams.append(stream)
        site = self.site or (None if stream is None else _creation_site(stream))
        if site is not None:
            call["at"] = [site.function, site.file, site.line]
        self.calls.append(call)

    def knows(self, stream: RecordedStream) -> bool:
        return any(known is stream for known in self._streams)

    def index_of(self, stream: RecordedStream) -> int:
        """Return the index of a stream in the record. An input that is not in it is registered now.

        Another stream that is not in the record is added without a recipe, so the graph cannot be stored.
        """
        if not self.knows(stream):
            register = getattr(stream, "register_recipe", None)
            if register is not None:
                register()
        if not self.knows(stream):
            self.add_input(stream, None, f"{stream!r} was not made by a public operator of this context")
        return next(index for index, known in enumerate(self._streams) if known is stream)

    def _encode(self, value: Any) -> Any:
        """Return the JSON form of an argument. Values that have none are appended to `functions`. Inverse: `Replay._decode`.

        An RDD has no form at all: the graph cannot be stored then.
        """
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, RecordedStream):
            return {"stream": self.index_of(value)}
        if isinstance(value, Duration):
            return {"ms": value.milliseconds}
        if isinstance(value, StorageLevel):
            parts = [value.useDisk, value.useMemory, value.useOffHeap, value.deserialized, value.replication]
            return {"level": parts}
        if isinstance(value, (list, tuple)) and value and all(isinstance(v, RecordedStream) for v in value):
            return {"streams": [self.index_of(v) for v in value]}
        if hasattr(value, "ctx"):  # an RDD, which is lost with its driver
            self.why_not = self.why_not or f"{value} was made by the driver, outside the graph"
            return None
        self.functions.append(UserFunction(value, self._here()))
        return {"function": len(self.functions) - 1}


class Replay:
    """Restores a graph by repeating recorded calls. Driver thread only.

    Args:
        host: the StreamingContext.
        functions: the unpickled values of `Recorder.functions`.
        make_input: restores an input from its recipe.
    """

    def __init__(self, host: Any, functions: list[Any], make_input: Callable[[Recipe], RecordedStream]) -> None:
        self._host = host
        self._functions = functions
        self._make_input = make_input
        self._streams: list[Any] = []

    @property
    def streams(self) -> list[Any]:
        """The streams restored so far, by their index in the record."""
        return self._streams

    def run(self, calls: list[dict[str, Any]]) -> None:
        """Repeat the calls in their order, each with its stored call site. An error of a call is raised."""
        for call in calls:
            site = CallSite(*call["at"]) if "at" in call else None
            with recorder_of(self._host).at(site):
                result = self._input(call) if "input" in call else self._call(call)
            if "stream" in call:
                self._streams.append(result)

    def _input(self, call: dict[str, Any]) -> RecordedStream:
        """Make an input again from the recipe in its record."""
        functions = {name: self._decode(v) for name, v in call["functions"].items()}
        return self._make_input(Recipe(call["input"], call["args"], functions))

    def _call(self, call: dict[str, Any]) -> Any:
        """Repeat an operator call, on the stream that was called or on the context; return its result."""
        target = self._host if call["on"] is None else self._streams[call["on"]]
        args = [self._decode(a) for a in call["args"]]
        kwargs = {k: self._decode(v) for k, v in call["kwargs"].items()}
        return getattr(target, call["call"])(*args, **kwargs)

    def _decode(self, value: Any) -> Any:
        """Return the argument that `Recorder._encode` stored as this JSON value."""
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


def on_workers(*parameters: str, checked: bool = True) -> Callable[[F], F]:
    """Mark an operator's parameters that are functions for tasks. Its other functions run on the driver.

    Place this decorator below `recorded`, which reads the mark.

    Args:
        parameters: the names of the parameters.
        checked: whether the call is refused, before anything else, if one of them is no function. False for an operator that checks
            other arguments before them.
    """

    def mark(method: F) -> F:
        setattr(method, _ON_WORKERS, parameters)
        setattr(method, _CHECKED, checked)
        return method

    return mark


def parameters_on_workers(method: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of the parameters that `on_workers` has marked."""
    return getattr(method, _ON_WORKERS, ())


def recorder_of(target: Any) -> Recorder:
    """Return the recorder of the graph that a stream or a context belongs to."""
    return target._recorder


def _creation_site(stream: Any) -> CallSite:
    return stream._creation_site


def recorded(method: F) -> F:
    """Decorate a public operator: the recorder of its stream (or context) records its outermost calls.

    A function for tasks that is none is refused, and so is every function whose call runs nothing of its body. An error by which the call
    is refused ends at the user's line.
    """
    signature, of_tasks = inspect.signature(method), parameters_on_workers(method)
    checked = of_tasks if getattr(method, _CHECKED, True) else ()
    functions = {name: parameter for name, parameter in signature.parameters.items() if "Callable[" in str(parameter.annotation)}

    def record(recorder: Recorder, *args: Any, **kwargs: Any) -> Any:
        given = _arguments(signature, args, kwargs) if functions or of_tasks else {}
        for name, parameter in functions.items():
            if name in given:
                check = check_function if name in checked and _is_a_function(parameter) else check_body_runs
                check(method.__name__, name, given[name], may_yield=_may_yield(parameter))
        result = method(*args, **kwargs)
        for function in (given.get(name) for name in of_tasks):
            if function is not None:
                recorder.for_workers(function)
        on = args[0] if isinstance(args[0], RecordedStream) else None
        made = result if isinstance(result, RecordedStream) else None
        recorder.add_call(on, method.__name__, args[1:], kwargs, made)
        return result

    @functools.wraps(method)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        recorder = recorder_of(args[0])
        if recorder.nested:
            return method(*args, **kwargs)
        with recorder.calling(method.__name__):
            try:
                return record(recorder, *args, **kwargs)
            except Exception as e:
                if end_at_the_call(e):
                    raise e from e.__cause__
                raise

    return cast("F", wrapper)


def _arguments(signature: inspect.Signature, args: Any, kwargs: Any) -> dict[str, Any]:
    """Return the arguments of a call by the names of their parameters; {} for a call that raises TypeError because they do not fit."""
    try:
        return signature.bind_partial(*args, **kwargs).arguments
    except TypeError:
        return {}


def _is_a_function(parameter: inspect.Parameter) -> bool:
    """Return whether an operator's parameter takes a function and nothing else, None included."""
    annotation = str(parameter.annotation)
    return annotation.startswith("Callable") and not annotation.endswith("| None")


def _may_yield(parameter: inspect.Parameter) -> bool:
    """Return whether the function that a parameter takes returns an iterable, so that the operator iterates over what it yields."""
    return "], Iterable[" in str(parameter.annotation)
