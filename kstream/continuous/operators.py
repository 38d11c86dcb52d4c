"""The operators of a continuous stream, as a task runs them on each chunk. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from kstream.continuous.ports import Chunk
from kstream.worker.current_record import RecordAt, hand_out


def _flat_map(f: Callable[[Any], Iterable[Any]], records: Iterable[Any]) -> Iterator[Any]:
    return chain.from_iterable(map(f, records))


def _map_values(f: Callable[[Any], Any], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    return ((key, f(value)) for key, value in pairs)


def _flat_map_values(f: Callable[[Any], Iterable[Any]], pairs: Iterable[tuple[Any, Any]]) -> Iterator[Any]:
    return ((key, made) for key, value in pairs for made in f(value))


def _on_chunk(f: Callable[[Iterator[Any]], Iterable[Any]], records: Iterable[Any]) -> Iterable[Any]:
    return f(iter(records))


OPERATORS: dict[str, Callable[[Any, Iterable[Any]], Iterable[Any]]] = {
    "map": map,
    "flatMap": _flat_map,
    "filter": filter,
    "mapValues": _map_values,
    "flatMapValues": _flat_map_values,
    "mapPartitions": _on_chunk,
}
"""What each operator makes of the user's function and an iterator of records, by the names of DStream."""


@dataclass(frozen=True, slots=True)
class Operator:
    """One call of an operator.

    Attributes:
        name: that of the operator, a key of `OPERATORS`.
        function: the user's.
    """

    name: str
    function: Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The operators of a stream in their order. Pickled into the tasks.

    Attributes:
        operators: the calls.
    """

    operators: tuple[Operator, ...] = ()

    def then(self, name: str, function: Callable[..., Any]) -> Pipeline:
        """Return this pipeline with one more operator."""
        return Pipeline((*self.operators, Operator(name, function)))

    def compiled(self) -> Callable[[Iterable[Any]], Iterable[Any]]:
        """Return the function that runs all operators on an iterator of records, lazily, one record at a time."""
        steps = [partial(OPERATORS[operator.name], operator.function) for operator in self.operators]

        def run(records: Iterable[Any]) -> Iterable[Any]:
            for step in steps:
                records = step(records)
            return records

        return run


def run_on(chunk: Chunk, run: Callable[[Iterable[Any]], Iterable[Any]], record_at: RecordAt) -> Iterable[Any]:
    """Return what the operators make of a chunk. While the result is read, `current_record` finds the record at work.

    Args:
        chunk: the chunk.
        run: the compiled operators.
        record_at: position in the chunk → its record.
    """
    return run(hand_out(list(chunk.records), record_at))
