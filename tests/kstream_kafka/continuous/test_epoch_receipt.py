"""Receipts of epochs: their stored form, and that nobody takes them for another one."""

from __future__ import annotations

import pytest
from kstream_kafka.continuous.epoch_receipt import (
    KafkaEpochReceipt,
    decode_epoch_receipt,
    encode_epoch_receipt,
    epoch_key,
    epoch_place,
    input_partition_of,
    is_epoch,
    marker_key,
)
from kstream_kafka.sink.query_receipt import query_key
from kstream_kafka.sink.receipt import Digest, is_fence, is_given_up, partition_of, receipt_key
from kstream_kafka.sink.receipts import is_control

from kstream.errors import CorruptRecordError

RECEIPT = KafkaEpochReceipt(120, 7, 2, 3, {"totals": Digest(2, 11, 4_000_000_000, 9_000_000_000)})
FORM = b'{"driver":3,"generation":7,"position":120,"task":2,"topics":{"totals":[2,11,4000000000,9000000000]},"version":1}'


def test_the_bytes_of_a_receipt_of_an_epoch_are_these() -> None:
    assert encode_epoch_receipt(RECEIPT) == FORM
    assert decode_epoch_receipt(FORM, "receipts-1 offset 0") == RECEIPT
    assert epoch_key("job", "totals", ("orders", 4)) == b'["job","totals","epoch","orders",4]'
    assert marker_key("job", "totals") == b'["job","totals","epoch-marker"]'


def test_an_epoch_that_has_written_nothing_has_a_receipt() -> None:
    empty = KafkaEpochReceipt(120, 7, 2, 3, {})
    assert encode_epoch_receipt(empty) == b'{"driver":3,"generation":7,"position":120,"task":2,"topics":{},"version":1}'
    assert decode_epoch_receipt(encode_epoch_receipt(empty), "receipts-1 offset 0") == empty


@pytest.mark.parametrize("value", [b'{"version":2}', b'{"position":1,"version":1}', b"[]", b"text"])
def test_a_record_of_another_program_is_an_error_with_its_place(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="receipts-1 offset 0"):
        decode_epoch_receipt(value, "receipts-1 offset 0")


def test_a_key_tells_the_partition_of_the_input_of_this_output_only() -> None:
    assert input_partition_of(epoch_key("job", "totals", ("orders", 4)), "job", "totals") == ("orders", 4)
    others = [
        None,
        b"",
        b"text",
        epoch_key("job", "o", ("orders", 4)),
        epoch_key("j", "totals", ("orders", 4)),
        marker_key("job", "totals"),
    ]
    others += [receipt_key("job", "totals", 4), query_key("job")]
    assert [input_partition_of(key, "job", "totals") for key in others] == [None] * len(others)
    assert is_epoch(epoch_key("job", "totals", ("orders", 4)), "job", "totals")
    assert not any(is_epoch(key, "job", "totals") for key in others)


@pytest.mark.parametrize(
    "key", [epoch_key("job", "totals", ("orders", 4)), marker_key("job", "totals"), epoch_key("fence", "job", ("o", 1))]
)
def test_the_sink_of_batches_and_of_queries_takes_it_for_nothing_of_its_own(key: bytes) -> None:
    assert partition_of(key, "job", "totals") is None and not is_control(key, "job", "totals")
    assert not is_fence(key, "job", "totals") and not is_given_up(key, "job", "totals") and key != query_key("job")


def test_partitions_that_follow_each_other_have_places_that_do_and_keep_them_when_the_topic_gets_more() -> None:
    places = [epoch_place("totals", ("orders", number), 16) for number in range(16)]
    assert set(places) == set(range(1, 17))
    assert places == [epoch_place("totals", ("orders", number), 40) for number in range(16)]
    assert epoch_place("totals", ("orders", 4), 1) == 1
