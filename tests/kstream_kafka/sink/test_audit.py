"""The stored form of an entry of the audit: bytes that other versions, and other programs, read."""

from __future__ import annotations

from dataclasses import replace

import pytest
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.sink.audit import (
    AuditEntry,
    audit_key,
    decode_entry,
    encode_entry,
    entry_of,
    key_of,
    query_beginning,
    query_entry,
)
from kstream_kafka.sink.audit_topic import input_ranges
from kstream_kafka.sink.query_receipt import QueryReceipt
from kstream_kafka.sink.receipt import Digest, receipt_key

from kstream.batch import JsonPlan
from kstream.errors import CorruptRecordError
from kstream.offsets.offset_range import OffsetRange

ENTRY = AuditEntry(
    "job",
    "totals",
    5,
    1_700_000_000_000,
    "plan",
    4,
    {"out": Digest(2, 11, 4_000_000_000, 9_000_000_000)},
    {"out": [7, 0]},
    {"0": [("orders", 1, 10, 12)]},
    [3],
)
FORM = (
    b'{"batch":1700000000000,"ends":{"out":[7,0]},"epoch":5,"inputs":{"0":[["orders",1,10,12]]},"kept":[3],"partitions":4,"plan":"plan",'
    b'"topics":{"out":[2,11,4000000000,9000000000]},"version":1}'
)


def test_the_bytes_of_an_entry_are_these() -> None:
    assert encode_entry(ENTRY) == FORM
    assert decode_entry("job", "totals", FORM, "audit-0 offset 0") == ENTRY
    assert audit_key("job", "totals") == b'["batch","job","totals"]'


def test_the_key_of_an_entry_names_job_and_output() -> None:
    assert entry_of(key_of(ENTRY), FORM, "audit-0 offset 0") == ENTRY
    assert [entry_of(key, FORM, "") for key in (None, b"", b"[]", receipt_key("job", "totals", 1))] == [None] * 4


def test_the_entry_of_a_batch_of_a_query_has_its_id_and_the_key_of_the_query() -> None:
    entry = query_entry(QueryReceipt("4f1e", 0, ENTRY.digests), {"out": [7, 0]}, ENTRY.inputs)
    assert encode_entry(entry) == (
        b'{"batch":0,"ends":{"out":[7,0]},"epoch":0,"inputs":{"0":[["orders",1,10,12]]},"kept":[],"partitions":1,"plan":"",'
        b'"topics":{"out":[2,11,4000000000,9000000000]},"version":1}'
    )
    assert key_of(entry) == b'["query","4f1e"]'
    assert entry_of(key_of(entry), encode_entry(entry), "audit-0 offset 0") == replace(entry, kept=[])
    assert (entry.is_batch, entry.moment, ENTRY.moment) == (True, "0", "1700000000000 ms")
    assert not query_beginning("4f1e", {"out": [7, 0]}).is_batch


@pytest.mark.parametrize("damaged", [b"", FORM.replace(b'"ends"', b'"e"'), FORM.replace(b'["orders",1,10,12]', b"7")])
def test_a_record_that_is_no_entry_is_an_error_with_its_place(damaged: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="the record at audit-0 offset 7 is none of kstream"):
        decode_entry("job", "totals", damaged, "audit-0 offset 7")


def test_an_entry_names_the_ranges_of_kafka_that_have_records() -> None:
    plan = KafkaPlan([OffsetRange("a", 0, 5, 5), OffsetRange("a", 1, 5, 9)], [None, None], [None, None])
    empty = KafkaPlan([OffsetRange("a", 0, 5, 5)], [None], [None])
    assert input_ranges({1: plan, 0: JsonPlan({"files": 2}, 2, False), 2: empty}) == {"1": [("a", 1, 5, 9)]}
