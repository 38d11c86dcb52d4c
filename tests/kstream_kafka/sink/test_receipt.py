"""The stored form of receipts and fences: bytes that other versions read."""

from __future__ import annotations

import pytest
from kstream_kafka.sink.receipt import (
    FENCES,
    Digest,
    Fence,
    GivenUp,
    KafkaReceipt,
    acceptance_key,
    decode_acceptance,
    decode_fence,
    decode_given_up,
    decode_receipt,
    encode_acceptance,
    encode_fence,
    encode_given_up,
    encode_receipt,
    fence_key,
    given_up_key,
    is_fence,
    partition_of,
    place_of,
    receipt_key,
    sum_of,
)

from kstream.errors import CorruptRecordError

RECEIPT = KafkaReceipt(3, 4, 1_700_000_000_000, "plan", 2, -7, 5, "driver", {"totals": Digest(2, 11, 4_000_000_000, 9_000_000_000)})
FORM = (
    b'{"batch":1700000000000,"epoch":5,"hashing":-7,"partitions":4,"plan":"plan","records":2,'
    b'"topics":{"totals":[2,11,4000000000,9000000000]},"version":1,"writer":"driver"}'
)


def test_the_bytes_of_a_receipt_are_these() -> None:
    assert encode_receipt(RECEIPT) == FORM
    assert decode_receipt(3, FORM, "receipts-1 offset 0") == RECEIPT
    assert receipt_key("job", "totals", 3) == b'["receipt","job","totals",3]'


def test_the_bytes_of_a_fence_are_these() -> None:
    fence, form = Fence(5, "driver", 16), b'{"epoch":5,"partitions":16,"version":1,"writer":"driver"}'
    assert encode_fence(fence) == form and decode_fence(form, "receipts-0 offset 0") == fence
    assert fence_key("job", "totals", fence) == b'["fence","job","totals",5,"driver"]'


def test_fences_are_those_of_an_output_whatever_their_driver() -> None:
    key = fence_key("job", "totals", Fence(5, "driver", 16))
    assert is_fence(key, "job", "totals")
    assert not any(is_fence(key, *other) for other in [("job", "total"), ("job", "totals 2"), ("jo", "totals")])
    assert not any(is_fence(other, "job", "totals") for other in [None, b"", receipt_key("job", "totals", 5)])


def test_the_bytes_of_an_acceptance_are_these() -> None:
    form = b'{"batch":1700000000000,"version":1}'
    assert encode_acceptance(1_700_000_000_000) == form and decode_acceptance(form, "receipts-0 offset 0") == 1_700_000_000_000
    assert acceptance_key("job", "totals") == b'["accept","job","totals"]'


def test_the_bytes_of_a_batch_that_was_given_up_are_these() -> None:
    batch = GivenUp(1_700_000_000_000, {"totals": Digest(2, 11, 4_000_000_000, 9_000_000_000)})
    form = b'{"batch":1700000000000,"topics":{"totals":[2,11,4000000000,9000000000]},"version":1}'
    assert encode_given_up(batch) == form and decode_given_up(form, "receipts-0 offset 0") == batch
    assert given_up_key("job", "totals", 1_700_000_000_000) == b'["given-up","job","totals",1700000000000]'


DAMAGED = [
    b"",
    b"[]",
    b"{}",
    FORM.replace(b'"version":1', b'"version":2'),
    FORM.replace(b'"batch"', b'"b"'),
    FORM.replace(b'{"totals":[2,11,4000000000,9000000000]}', b"7"),
    FORM.replace(b"[2,11,4000000000,9000000000]", b"[2,11,4,9,8]"),
]


@pytest.mark.parametrize("damaged", DAMAGED)
def test_a_record_that_is_no_receipt_is_an_error_with_its_place(damaged: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="the record at receipts-1 offset 7 is none of kstream"):
        decode_receipt(3, damaged, "receipts-1 offset 7")


def test_a_newer_field_of_a_receipt_is_passed_over() -> None:
    assert decode_receipt(3, FORM[:-1] + b',"more":1}', "") == RECEIPT


@pytest.mark.parametrize(
    "key", [None, b"", b"text", b'["fence","job","totals",5,"driver"]', receipt_key("other", "totals", 3), receipt_key("job", "o", 3)]
)
def test_receipts_of_other_outputs_and_fences_are_passed_over(key: bytes | None) -> None:
    assert partition_of(key, "job", "totals") is None
    assert partition_of(receipt_key("job", "totals", 3), "job", "totals") == 3


def test_receipts_are_spread_over_all_partitions_but_that_of_the_fences() -> None:
    assert {place_of("totals", partition, 16) for partition in range(16)} == set(range(FENCES + 1, FENCES + 17))


def test_digests_add_up_by_topic_and_modulo_2_to_the_64() -> None:
    most = (1 << 64) - 1
    both = sum_of([{"a": Digest(1, 2, most, 4)}, {"a": Digest(10, 20, 1, most), "b": Digest(1, 1, 1, 1)}, {}])
    assert both == {"a": Digest(11, 22, 0, 3), "b": Digest(1, 1, 1, 1)}
