"""The records of a read that wait for their permits: their order, their offsets, and what is dropped."""

from __future__ import annotations

from typing import Any

from kstream_kafka.zookeeper.group_member import WaitingRecords
from kstream_kafka.zookeeper.group_reader import GroupChunk

A, B = ("t", 0), ("t", 1)


def waiting(*places: tuple[Any, int]) -> WaitingRecords:
    offsets = {partition: at + 1 for partition, at in places}
    return WaitingRecords(GroupChunk([(None, f"{p[1]}:{at}".encode()) for p, at in places], offsets, places=lambda: places))


def taken(records: WaitingRecords, count: int) -> tuple[list[str], Any]:
    found, offsets = records.take(count)
    return [(value or b"").decode() for _, value in found], offsets


def test_all_at_once_are_the_chunk_itself_and_no_offset_of_a_record_is_asked_for() -> None:
    chunk = GroupChunk([(None, b"x")], {A: 1}, places=lambda: 1 / 0)  # type: ignore[arg-type, return-value]
    records = WaitingRecords(chunk)
    assert records.take(1) == (chunk.records, chunk.offsets) and len(records) == 0


def test_partitions_take_turns_and_each_part_has_the_offsets_of_its_records_alone() -> None:
    records = waiting((A, 5), (A, 6), (A, 7), (B, 0), (B, 1))
    assert taken(records, 3) == (["0:5", "1:0", "0:6"], {A: 7, B: 1})
    assert len(records) == 2
    assert taken(records, 1) == (["1:1"], {B: 2})
    assert taken(records, 1) == (["0:7"], {A: 8}) and len(records) == 0


def test_what_is_not_kept_is_in_no_part() -> None:
    records = waiting((A, 5), (B, 0), (A, 6))
    taken(records, 1)
    records.keep({B})
    assert taken(records, len(records)) == (["1:0"], {B: 1})
    whole = waiting((A, 5), (B, 0))
    whole.keep(())
    assert len(whole) == 0
