"""The elements of a Kafka task, and the record that each is of."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kstream_kafka import OffsetRange, value_only
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_task import RangeReads, RangeTask

from kstream.worker.current_record import begin_task, current_record
from tests.kstream_kafka.fakes import Message, records


class Chunks(RangeReads):
    """The chunks of two ranges, the first with a gap in its offsets."""

    def chunks(self, index: int) -> Iterator[tuple[OffsetRange, list[Any]]]:
        yield OffsetRange("t", 0, 0, 6), records((0, 1, 4))
        yield OffsetRange("t", 0, 0, 6), records((5,))
        yield OffsetRange("u", 3, 7, 9), records((7, 8), where=("u", 3))


def task(decoder: Callable[[Any], Any] | None = None, decoding: Decoding | None = None) -> RangeTask:
    begin_task()
    return RangeTask(Chunks((), {}, 1000), decoding or Decoding(None, decoder, value_only))


def test_each_element_is_of_its_record_over_chunks_and_ranges_and_gaps() -> None:
    found = [(value, str(current_record())) for value in task()(0)]
    assert found == [(b"0", "t-0@0"), (b"1", "t-0@1"), (b"4", "t-0@4"), (b"5", "t-0@5"), (b"7", "u-3@7"), (b"8", "u-3@8")]


def test_the_record_has_its_timestamp_and_the_message_untouched() -> None:
    elements = iter(task()(0))
    next(elements)
    record = current_record()
    assert record is not None and record.timestamp == 1000 and isinstance(record.raw, Message) and record.raw.value() == b"0"


@pytest.mark.parametrize(
    "decoding",
    [
        Decoding(None, lambda v: 1 // (v != b"4"), value_only),
        Decoding(None, lambda v: 1 // (v != b"4")),
        Decoding(message_handler=lambda m: 1 // (m.offset != 4)),
    ],
)
def test_a_decoder_or_handler_that_fails_is_run_record_by_record_to_name_the_record(decoding: Decoding) -> None:
    with pytest.raises(ZeroDivisionError):
        list(task(decoding=decoding)(0))
    assert str(current_record()) == "t-0@4"


def test_a_decoder_that_fails_only_once_names_no_record() -> None:
    calls: list[bytes] = []

    def moody(value: bytes) -> bytes:
        calls.append(value)
        if len(calls) == 2:
            raise ValueError("not now")
        return value

    with pytest.raises(ValueError, match="not now"):
        list(task(moody)(0))
    assert current_record() is None


def test_the_elements_of_a_chunk_are_gone_when_the_next_one_is_decoded() -> None:
    """Otherwise two chunks would be alive at a time, and reading takes a quarter longer."""
    alive: weakref.WeakSet[Element] = weakref.WeakSet()
    most: list[int] = []

    def decode(value: bytes) -> Element:
        element = Element(value)
        alive.add(element)
        most.append(len(alive))
        return element

    for element in task(decode)(0):
        del element
    assert max(most) == 3, "the first chunk has three records, the others fewer"


class Element:
    """An element to which a weak reference can be made."""

    def __init__(self, value: bytes) -> None:
        self.value = value
