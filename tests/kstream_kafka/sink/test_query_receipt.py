"""Receipts of queries: their stored form, and what a receipt means for a batch."""

from __future__ import annotations

import pytest
from kstream_kafka.sink.query_receipt import (
    QueryReceipt,
    check_lineage,
    check_written,
    decode_query_receipt,
    encode_query_receipt,
    query_key,
    query_place,
)
from kstream_kafka.sink.receipt import Digest, partition_of

from kstream.errors import CorruptRecordError, OutputChangedError

DIGESTS = {"totals": Digest(2, 11, 4_000_000_000, 9_000_000_000)}
OTHER = {"totals": Digest(3, 11, 4_000_000_000, 9_000_000_000)}
FORM = b'{"batch":7,"records":2,"topics":{"totals":[2,11,4000000000,9000000000]},"version":1}'


WITH_SOURCES = (
    b'{"batch":7,"records":2,"sources":{"0":{"orders":{"0":5,"1":9}}},"topics":{"totals":[2,11,4000000000,9000000000]},"version":1}'
)


def receipt(batch: int, digests: dict[str, Digest] = DIGESTS, **ends: int) -> QueryReceipt:
    return QueryReceipt("q", batch, digests, {"0": {"orders": {place.strip("p"): end for place, end in ends.items()}}} if ends else {})


def test_the_bytes_of_a_receipt_of_a_query_are_these() -> None:
    assert encode_query_receipt(receipt(7)) == FORM
    assert decode_query_receipt("q", FORM, "receipts-1 offset 0") == receipt(7)
    assert encode_query_receipt(receipt(7, p0=5, p1=9)) == WITH_SOURCES
    assert decode_query_receipt("q", WITH_SOURCES, "receipts-1 offset 0") == receipt(7, p0=5, p1=9)
    assert query_key("q") == b'["query","q"]'
    with pytest.raises(CorruptRecordError, match="receipts-1 offset 0"):
        decode_query_receipt("q", b'{"version":2}', "receipts-1 offset 0")


def test_a_receipt_of_a_query_is_none_of_an_output() -> None:
    assert partition_of(query_key("q"), "q", "q") is None


def test_a_query_keeps_its_partition_when_the_topic_gets_more() -> None:
    assert {query_place(f"q{i}", 16) for i in range(200)} == set(range(1, 17))
    assert all(query_place(f"q{i}", 16) == query_place(f"q{i}", 40) for i in range(200))
    assert query_place("q", 1) == 1


def test_a_batch_without_a_receipt_of_its_own_is_to_be_written() -> None:
    assert not check_written(None, receipt(0))
    assert not check_written(receipt(6), receipt(7))
    assert not check_written(receipt(2, OTHER), receipt(7))  # batches without records leave none


def test_a_batch_with_its_receipt_and_the_same_records_is_written() -> None:
    assert check_written(receipt(7), receipt(7))


def test_a_receipt_with_other_records_is_an_error_with_both_and_never_done() -> None:
    with pytest.raises(OutputChangedError) as raised:
        check_written(receipt(7), receipt(7, OTHER))
    for digests in (DIGESTS, OTHER):
        assert f"{digests['totals'].records} records of 11 bytes for totals (keys ee6b2800, values 218711a00)" in str(raised.value)
    assert check_written(receipt(7), receipt(7, OTHER), keeps=True)


def test_a_receipt_with_other_sources_is_an_error_with_both_whatever_is_kept() -> None:
    """Somebody has edited the checkpoint. Equal digests do not make it the same batch."""
    for keeps in (False, True):
        with pytest.raises(OutputChangedError, match="source 0 ended at offset 9 of orders-1 then, and ends at offset 8 now"):
            check_written(receipt(7, p0=5, p1=9), receipt(7, p0=5, p1=8), keeps)
        with pytest.raises(OutputChangedError, match="source 0 ended without an offset of orders-1 then, and ends at offset 8 now"):
            check_written(receipt(7, p0=5), receipt(7, p0=5, p1=8), keeps)
    assert check_written(receipt(7, p0=5, p1=9), receipt(7, p0=5, p1=9))


def test_a_receipt_of_an_earlier_batch_that_is_not_of_this_checkpoint_is_an_error() -> None:
    """Two copies of a checkpoint have gone their own ways, and one of them had a batch without records where the other one wrote."""
    check_lineage(receipt(7, p0=5), receipt(7, p0=5).sources)
    check_lineage(receipt(7), receipt(7, p0=5).sources)
    check_lineage(receipt(7, p0=5), {})
    with pytest.raises(OutputChangedError, match="batch 7 of another copy of its checkpoint: source 0 ended at offset 5 of orders-0 then"):
        check_lineage(receipt(7, p0=5), receipt(7, p0=4).sources)


def test_where_a_checkpoint_was_out_of_reach_the_digests_alone_are_compared() -> None:
    assert check_written(receipt(7), receipt(7, p0=5))
    assert check_written(receipt(7, p0=5), receipt(7))


def test_a_receipt_of_a_later_batch_says_that_the_checkpoint_is_too_old() -> None:
    for keeps in (False, True):
        with pytest.raises(OutputChangedError, match="has its batch 8, and the query writes batch 7: its checkpoint is older"):
            check_written(receipt(8), receipt(7), keeps)
