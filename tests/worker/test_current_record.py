"""Which record a reader has handed out, found without work for each record."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import pytest

from kstream.worker.current_record import (
    CurrentRecord,
    begin_task,
    between_chunks,
    current_record,
    hand_out,
    last_record,
    note,
    note_decoding,
    reading,
    was_abandoned,
)


class Chunk(list[Any]):
    """A list to which a weak reference can be made."""


@pytest.fixture(autouse=True)
def task() -> Iterator[None]:
    begin_task()
    yield
    begin_task()


def at(offset: int) -> CurrentRecord:
    return CurrentRecord("orders", 0, offset)


def reader(*chunks: list[int]) -> Iterator[Iterator[int]]:
    """Hand out chunks of offsets as Kafka's reader does."""
    with reading():
        for chunk in chunks:
            yield hand_out(chunk, lambda i, chunk=chunk: CurrentRecord("orders", 0, chunk[i], raw=chunk))
            between_chunks()


def test_each_element_finds_its_own_record_over_the_borders_of_chunks() -> None:
    found = [(element, current_record()) for element in chain.from_iterable(reader([3, 4], [7], [8, 9]))]
    assert found == [(offset, at(offset)) for offset in (3, 4, 7, 8, 9)]


def test_there_is_no_current_record_before_the_first_one_and_after_the_end() -> None:
    elements = chain.from_iterable(reader([3, 4]))
    assert current_record() is None and last_record() is None
    assert list(elements) == [3, 4]
    assert current_record() is None and last_record() == at(4)


def test_a_reader_that_works_itself_hands_out_no_record() -> None:
    seen: list[CurrentRecord | None] = []

    def chunks() -> Iterator[Iterator[int]]:
        yield hand_out([1], at)
        between_chunks()
        seen.append(current_record())

    assert list(chain.from_iterable(chunks())) == [1] and seen == [None]


def test_no_chunk_lives_on_after_a_task_that_takes_a_few_records() -> None:
    chunk = Chunk([1, 2, 3])
    there = weakref.ref(chunk)
    elements = chain.from_iterable(reader(chunk))
    del chunk
    assert list(islice(elements, 2)) == [1, 2] and current_record() == at(2) and there() is not None
    del elements
    gc.collect()
    assert there() is None and current_record() is None and last_record() == at(2) and was_abandoned()


def failing(error: Exception, decodes: bool) -> Iterator[Iterator[int]]:
    """Hand out a record, then fail: while the next record is decoded, or in the reader's own work."""
    with reading():
        yield hand_out([1], at)
        if decodes:
            note_decoding(2, at)
        raise error


@pytest.mark.parametrize(("decodes", "blamed"), [(True, at(2)), (False, None)])
def test_an_error_of_the_reader_is_that_of_no_record_unless_the_reader_was_decoding_one(
    decodes: bool, blamed: CurrentRecord | None
) -> None:
    with pytest.raises(OSError, match="broken"):
        list(chain.from_iterable(failing(OSError("broken"), decodes)))
    assert current_record() == blamed and not was_abandoned()


def test_a_reader_at_its_end_was_not_abandoned() -> None:
    assert list(chain.from_iterable(reader([1, 2]))) == [1, 2]
    assert last_record() == at(2) and not was_abandoned()


def test_the_raw_object_of_the_reader_is_there_while_the_record_is_current_and_not_afterwards() -> None:
    elements = chain.from_iterable(reader([5]))
    next(elements)
    record = current_record()
    assert record is not None and record.raw == [5]
    assert list(elements) == []
    last = last_record()
    assert last is not None and last.raw is None and last == at(5)


def test_a_reader_without_lists_says_its_position_itself() -> None:
    count = 0
    note(lambda: count - 1, at)
    assert current_record() is None
    count = 3
    assert current_record() == at(2)


def test_a_reader_that_cannot_name_its_record_hides_no_other_error() -> None:
    list(hand_out([1], lambda position: [][position]))
    assert current_record() is None


def test_the_next_task_knows_nothing_of_this_one() -> None:
    list(hand_out([1], at))
    begin_task()
    assert current_record() is None and last_record() is None


def test_a_record_is_written_as_topic_partition_and_offset_or_as_its_place() -> None:
    assert str(CurrentRecord("orders", 3, 17)) == "orders-3@17"
    assert str(CurrentRecord(place="received block input-0-1, position 3")) == "received block input-0-1, position 3"
