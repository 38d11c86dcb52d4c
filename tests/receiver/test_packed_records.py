"""Records pickled as they come: which bytes they become, and that reading gives them back."""

from __future__ import annotations

import io
import pickle
from typing import Any

import pytest

from kstream.receiver.block_reading import records_of
from kstream.receiver.block_writer import PackedLines, RecordPacker, chunks_of, dumps_plain
from kstream.receiver.socket_receiver import line_chunks_of
from kstream.worker.current_record import current_record
from kstream.worker.pickled_chunks import CHUNK_BYTES


def packed(*calls: Any) -> list[Any]:
    packer = RecordPacker(dumps_plain)
    return [pack for records in calls for pack in packer.pack(records)]


def test_a_block_gives_back_packs_and_single_records_in_the_order_they_came() -> None:
    block = [1, *packed([2, 3], (n for n in (4, 5))), 6, 7, *packed([], [8]), *packed(PackedLines("a\nb"))]
    count, chunks = chunks_of(block, dumps_plain)
    assert count == 10 and list(records_of(chunks, "b")) == [1, 2, 3, 4, 5, 6, 7, 8, "a", "b"]


def test_many_small_packs_become_few_chunks() -> None:
    count, chunks = chunks_of(packed(*([n, -n] for n in range(20_000))), dumps_plain)
    assert count == 40_000 and len(chunks) <= 3
    assert list(records_of(chunks, "b")) == [value for n in range(20_000) for value in (n, -n)]


def test_a_pack_is_not_huge_however_many_records_come_at_once() -> None:
    packs = packed([n.to_bytes(4, "big") * 2_500 for n in range(5_000)])
    assert sum(pack.count for pack in packs) == 5_000
    assert max(len(pack.pickled) for pack in packs[10:]) <= 4 * CHUNK_BYTES


def test_packs_of_small_records_grow() -> None:
    assert len(packed(list(range(1_000_000)))) < 100


def test_what_cannot_be_pickled_is_told_to_whoever_brings_it() -> None:
    with pytest.raises(Exception, match="pickle"):
        packed([1, lambda: None])


def test_lines_are_pickled_as_one_text_and_need_nothing_of_ours_to_be_read() -> None:
    [pack] = packed(PackedLines("é\n\nb"))
    assert pack.count == 3 and pickle.loads(pack.pickled) == ["é", "", "b"]
    assert b"kstream" not in pack.pickled and len(list(PackedLines("é\n\nb"))) == 3


def test_the_stored_form_of_lines() -> None:
    assert chunks_of(packed(PackedLines("a\nb"), PackedLines("c")), dumps_plain)[1] == [GOLDEN]
    assert list(records_of([GOLDEN], "b")) == ["a", "b", "c"]


def test_records_that_change_after_they_were_packed_are_stored_as_they_were() -> None:
    record = {"n": 1}
    packs = packed([record])
    record["n"] = 2
    assert list(records_of(chunks_of(packs, dumps_plain)[1], "b")) == [{"n": 1}]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_lines_of_a_connection_come_together_and_only_whole(end: str) -> None:
    text = end.join(f"line {n} é" for n in range(1000))
    chunks = list(line_chunks_of(io.BufferedReader(io.BytesIO(text.encode()), 100)))
    assert [line for lines in chunks for line in lines] == text.split(end)
    assert sum(map(len, chunks)) == 1000


GOLDEN = bytes.fromhex(
    "80059545000000000000008c086275696c74696e73948c07676574617474729493948c086275696c74696e73948c037374729493948c0573706c6974"
    "94869452948c03610a62948c010a94869452942e80059543000000000000008c086275696c74696e73948c07676574617474729493948c086275696c74696e73948c037374729493948c0573706c697494869452948c0163948c010a94869452942e"
)


def test_each_record_of_a_block_finds_its_position_over_the_borders_of_chunks() -> None:
    _, chunks = chunks_of([1, *packed([2, 3]), 4], dumps_plain)
    found = [(record, str(current_record())) for record in records_of(chunks, "input-0-7")]
    assert found == [(n, f"received block input-0-7, position {n - 1}") for n in (1, 2, 3, 4)]
    assert current_record() is None
