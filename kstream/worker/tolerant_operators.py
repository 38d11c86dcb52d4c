"""Operators on records under an errors policy: a record for which the user's function fails is left out.

Each takes one record at a time from the iterator before it, so the failed record is the one that the task is handing out. A function that
makes several elements makes all of them or none. An error of the iterator itself is no record error, and goes through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kstream.worker.record_errors import leave_out_current
from kstream.worker.record_failure import RecordStep


def map_records(f: Callable[[Any], Any], step: RecordStep, records: Iterable[Any]) -> Iterator[Any]:
    """Yield f(record) of each record, without those for which `f` fails: the errors policy of the task gets them."""
    for record in records:
        try:
            made = f(record)
        except Exception as e:
            leave_out_current(e, step)
        else:
            yield made


def flat_map_records(f: Callable[[Any], Iterable[Any]], step: RecordStep, records: Iterable[Any]) -> Iterator[Any]:
    """Yield all elements of f(record) of each record, as `map_records`. A record whose elements fail half-way gives none."""
    for record in records:
        try:
            made = list(f(record))
        except Exception as e:
            leave_out_current(e, step)
        else:
            yield from made


def filter_records(f: Callable[[Any], Any], step: RecordStep, records: Iterable[Any]) -> Iterator[Any]:
    """Yield the records for which f(record) is true, without those for which `f` fails; see `map_records`."""
    for record in records:
        try:
            is_kept = bool(f(record))
        except Exception as e:
            leave_out_current(e, step)
        else:
            if is_kept:
                yield record


def map_values(f: Callable[[Any], Any], step: RecordStep, records: Iterable[Any]) -> Iterator[Any]:
    """Yield (key, f(value)) of each pair, as `map_records`."""
    return map_records(lambda pair: (pair[0], f(pair[1])), step, records)


def flat_map_values(f: Callable[[Any], Iterable[Any]], step: RecordStep, records: Iterable[Any]) -> Iterator[Any]:
    """Yield (key, each element of f(value)) of each pair, as `flat_map_records`."""

    def elements(pair: Any) -> Iterator[Any]:
        key, values = pair[0], f(pair[1])
        return ((key, value) for value in values)

    return flat_map_records(elements, step, records)


OPERATORS: dict[str, Callable[[Any, RecordStep, Iterable[Any]], Iterator[Any]]] = {
    "map": map_records,
    "flatMap": flat_map_records,
    "filter": filter_records,
    "mapValues": map_values,
    "flatMapValues": flat_map_values,
    "saveToKafka": map_records,
}
"""The operators on records, by the names of DStream. `saveToKafka` encodes records before it writes them."""
