"""Elements of a persisted stream in the operators behind it: which record of the source each is of.

Spark's storage has the elements, and not the records that they were made from. Only an operator that fails asks for its record. Then this
module computes the partition once more, up to the element that failed: the reader of the source knows the record there. Later failures of
the task go on from that place. The computing also has the errors policy of the task, its dead letters and its report.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TypeAlias

from kstream.worker import current_record as current
from kstream.worker.current_record import CurrentRecord
from kstream.worker.process import begin_task
from kstream.worker.record_errors import without_letters

Compute: TypeAlias = Callable[[int, Iterable[Any]], Iterable[Any]]
"""(index of a partition, nothing) → its elements, read from the source."""


def behind_storage(compute: Compute) -> Callable[[int, Iterable[Any]], Iterator[Any]]:
    """Return the function (index of a partition, its elements in Spark's storage) → the same elements, for `mapPartitionsWithIndex`.

    Args:
        compute: computes a partition from its source.
    """

    def elements(index: int, stored: Iterable[Any]) -> Iterator[Any]:  # `pipeline` knows it by its name
        return from_storage(compute, index, stored)

    return elements


def from_storage(compute: Compute, index: int, elements: Iterable[Any]) -> Iterator[Any]:
    """Yield the elements of a persisted partition. Operators behind find the record of each by `current_record`. Blocks on the source then.

    Args:
        compute: computes the partition from its source.
        index: the index of the partition.
        elements: its elements in Spark's storage.
    """
    begin_task()
    again = _Again(compute, index)
    current.put_back(again.noted)
    try:
        for element in elements:
            again.position += 1
            again.element = element
            yield element
    finally:
        current.put_back(None)
        again.close()


class _Again:
    """One partition, computed again as far as somebody asks. One thread, that of the task."""

    def __init__(self, compute: Compute, index: int) -> None:
        self._compute = compute
        self._index = index
        self._elements: Iterator[Any] | None = None
        self._reader: current.Noted = None
        self._computed = -1
        self._found: CurrentRecord | None = None
        self.position = -1
        """The position of the element that an operator works on; -1 before the first one."""
        self.element: Any = None
        self.noted: current.Noted = (lambda: 0, self._record)
        """How `current_record` gets here."""

    def _record(self, _: int) -> CurrentRecord:
        """Return the record of the element at `position`, and compute the partition up to there. For `current_record`.

        LookupError if the record is not known, because the computing gives another element.
        """
        if self._computed < self.position:
            self._found = None
            current.put_back(self._reader)
            try:
                with without_letters():
                    self._found = self._at_position()
            finally:
                self._reader = current.put_back(self.noted)
        if self._found is None:
            raise LookupError("the element is not the one that the source gives")
        return self._found

    def _at_position(self) -> CurrentRecord | None:
        """Compute up to `position`; None if the element there is another one."""
        if self._elements is None:
            self._elements = iter(self._compute(self._index, iter(())))
        for element in self._elements:
            self._computed += 1
            if self._computed == self.position:
                return current.current_record() if _is_same(element, self.element) else None
        return None

    def close(self) -> None:
        """End the computing: its reader stores the dead letters of the task, and sends its report."""
        self._elements = None


def _is_same(computed: Any, stored: Any) -> bool:
    """Return whether an element is the one that went through storage. Of objects without `==` their pickled forms are compared."""
    try:
        if computed == stored:
            return True
    except Exception:  # the truth of the comparison of two arrays, for example, is an error
        pass
    return _pickled_twice(computed) == _pickled_twice(stored)


def _pickled_twice(element: Any) -> bytes:
    """Return the pickled form of an element after a way through storage."""
    return pickle.dumps(pickle.loads(pickle.dumps(element)))
