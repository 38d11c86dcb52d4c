"""Conversion and checks of the arguments of operators: user functions by their parameters, durations and times by their types.

A call of a generator function or of a coroutine function runs nothing of its body. So such a function is refused where it is given, and the
object that its call makes is no result of an output.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import AsyncGeneratorType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

from kstream.batch_time import Duration, Seconds, Time
from kstream.public_call import refused

Update = Callable[[Time, Any, list[Any], Any], Any]
"""(batch time, key, the key's values of this batch, its state or None) → its new state; None drops the key."""
_NOT_RUN = (GeneratorType, CoroutineType, AsyncGeneratorType, map, filter)
"""The types of objects that stand for work which nobody has done yet."""


def as_duration(value: float | Duration) -> Duration:
    """Return a Duration from seconds or a Duration. TypeError for another type."""
    try:
        return value if isinstance(value, Duration) else Seconds(value)
    except TypeError as e:
        raise refused(e) from None


def as_time(moment: datetime | float | Time) -> Time:
    """Return a Time from a Time, seconds since 1970, or a datetime (local time if it has no zone, as those that foreachRDD passes)."""
    if isinstance(moment, Time):
        return moment
    return Time.of(moment) if isinstance(moment, datetime) else Time(round(moment * 1000))


def check_inverse(name: str, inverse: object, order: str) -> None:
    """Raise TypeError for an inverse that is neither a function nor None, such as a window length in the order of Scala's arguments.

    Args:
        name: the name of the parameter, for the message.
        inverse: the argument.
        order: the signature of the operator, for the message.
    """
    if inverse is not None and not callable(inverse):
        raise refused(
            TypeError(f"{name} must be a function or None, it is {inverse!r}. The order is {order}; without an inverse give {name}=None")
        )


def check_function(operator: str, name: str, function: object, *, may_yield: bool = False) -> None:
    """Raise TypeError for an argument that is not a function, or one that `check_body_runs` refuses.

    Args:
        operator: the operator that was called, for the message.
        name: the name of its parameter.
        function: the argument.
        may_yield: as for `check_body_runs`.
    """
    if not callable(function):
        raise refused(
            TypeError(f"{operator}: {name} must be a function, it is {function!r}. Give the function itself, not the result of a call")
        )
    check_body_runs(operator, name, function, may_yield=may_yield)


def check_body_runs(operator: str, name: str, function: object, *, may_yield: bool = False) -> None:
    """Raise TypeError for a coroutine function, and for a generator function where it may not yield. Anything else passes.

    A partial, a bound method and an object with `__call__` are the function that they call. A lambda that calls such a function passes:
    see `check_output_has_run`.

    Args:
        operator: the operator that was called, for the message.
        name: the name of its parameter.
        function: the argument.
        may_yield: whether the operator iterates over what the function returns, as `flatMap` does.
    """
    body = _called_by(function)
    if inspect.iscoroutinefunction(body) or inspect.isasyncgenfunction(body):
        kind, remedy = "an async function, which nobody awaits", "Give a plain function; it may call asyncio.run"
    elif inspect.isgeneratorfunction(body) and not may_yield:
        kind = "a generator function, which nobody iterates over"
        remedy = "Give a function without yield; flatMap, mapPartitions and their like take one with it"
    else:
        return
    raise refused(TypeError(f"{operator}: {name} is {kind}: a call runs nothing of its body. {remedy}"))


def check_output_has_run(output: str, result: object) -> None:
    """Raise TypeError if an output function has returned a generator, a coroutine, or a `map` or `filter` that nobody iterates over.

    Args:
        output: the output and its place, for the message.
        result: what the function has returned.
    """
    if not isinstance(result, _NOT_RUN):
        return
    if isinstance(result, CoroutineType):
        result.close()  # Python would warn of it without a place
    raise TypeError(
        f"{output}: the function returned a {type(result).__name__}, so nothing of its work has been done. An output is a plain function "
        "that has done its work when it returns: without yield, with a for loop in place of map, with asyncio.run for a coroutine"
    )


def _called_by(function: Any) -> Any:
    """Return the function whose body a call runs: that of a partial, of a bound method, of an object with `__call__`."""
    while True:
        if isinstance(function, partial):
            function = function.func
        elif inspect.ismethod(function):
            function = function.__func__
        else:
            call = type(function).__call__ if callable(function) else None
            return call if inspect.isfunction(call) else function


def takes_one_argument(func: Callable[..., Any]) -> bool:
    """Return whether `func` takes (rdd) and not (time, rdd). TypeError if it takes neither."""
    return takes_only_rdds(func, 1)


def takes_only_rdds(func: Callable[..., Any], rdds: int) -> bool:
    """Return whether `func` takes only RDDs, and not the batch time before them.

    The number of its required positional parameters decides; if it is too low for either form, the number of all positional parameters.
    So `lambda rdd, name=name: …` takes (rdd). A builtin without a readable signature counts as one that takes only RDDs.

    Args:
        func: the user's function.
        rdds: the number of RDDs.

    Raises:
        TypeError: `func` cannot be called either way, or is not a function.
    """
    given = ", ".join(["rdd"] if rdds == 1 else [f"rdd{n + 1}" for n in range(rdds)])
    if not callable(func):
        raise refused(
            TypeError(
                f"func must be a function of ({given}) or (time, {given}), it is {func!r}. "
                "Give the function itself, not the result of a call"
            )
        )
    parameters = _positional(func)
    if parameters is None:
        return True
    if parameters.required > rdds + 1 or not (parameters.takes_all or parameters.named >= rdds):
        raise refused(TypeError(f"{func!r} must take ({given}) or (time, {given}), it takes {parameters.required} arguments"))
    return parameters.required == rdds or (parameters.required < rdds and parameters.named == rdds)


def with_batch_time(func: Callable[..., Any], rdds: int) -> Callable[..., Any]:
    """Return a user's function of (RDDs) or (time, RDDs) as a function of (Time, RDDs). The user's function gets a BatchTime.

    Raises:
        TypeError: as `takes_only_rdds`.
    """
    if takes_only_rdds(func, rdds):
        return lambda _time, *given: func(*given)
    return lambda time, *given: func(time.to_datetime(), *given)


def takes_time(function: Callable[..., Any]) -> bool:
    """Return whether a mapping function takes (time, key, value, state) and not (key, value, state). TypeError if it takes neither.

    A builtin without a readable signature counts as one that takes (key, value, state).
    """
    check_function("StateSpec.function", "mappingFunction", function)
    parameters = _positional(function)
    if parameters is None:
        return False
    if parameters.required > 4 or not (parameters.takes_all or parameters.named >= 3):
        raise refused(TypeError(f"{function!r} must take (key, value, state) or (time, key, value, state)"))
    return parameters.required == 4


def with_time_and_key(function: Callable[..., Any]) -> Update:
    """Return the user's update function as a function of (time, key, values, state).

    pyspark's form takes (values, state). A function with four required parameters also gets the batch `Time` and the key, as in the
    fullest form of Spark's Scala API.

    Raises:
        TypeError: `function` has three required parameters, or more than four.
    """
    parameters = _positional(function)
    required = 0 if parameters is None else parameters.required
    if required == 4:
        return function
    if required > 2:
        raise refused(TypeError(f"{function!r} must take (values, state) or (time, key, values, state), it takes {required} arguments"))
    return lambda _time, _key, values, state: function(values, state)


class _Positional(NamedTuple):
    """The positional parameters of a function: the number of required ones, the number of named ones, and whether it has `*args`."""

    required: int
    named: int
    takes_all: bool


def _positional(function: Callable[..., Any]) -> _Positional | None:
    """Return the positional parameters of a function; None for a builtin without a readable signature."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    takes_all = any(p.kind is p.VAR_POSITIONAL for p in parameters)
    return _Positional(sum(p.default is p.empty for p in named), len(named), takes_all)
