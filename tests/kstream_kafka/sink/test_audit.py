"""The stored form of an entry of the audit: bytes that other versions, and other programs, read."""

from __future__ import annotations

import pytest
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.sink.audit import AuditEntry, audit_key, decode_entry, encode_entry, output_of
from kstream_kafka.sink.audit_topic import input_ranges
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
    assert output_of(audit_key("job", "totals")) == ("job", "totals")
    assert [output_of(key) for key in (None, b"", b"[]", receipt_key("job", "totals", 1))] == [None] * 4


@pytest.mark.parametrize("damaged", [b"", FORM.replace(b'"ends"', b'"e"'), FORM.replace(b'["orders",1,10,12]', b"7")])
def test_a_record_that_is_no_entry_is_an_error_with_its_place(damaged: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="the record at audit-0 offset 7 is none of kstream"):
        decode_entry("job", "totals", damaged, "audit-0 offset 7")


def test_an_entry_names_the_ranges_of_kafka_that_have_records() -> None:
    plan = KafkaPlan([OffsetRange("a", 0, 5, 5), OffsetRange("a", 1, 5, 9)], [None, None], [None, None])
    empty = KafkaPlan([OffsetRange("a", 0, 5, 5)], [None], [None])
    assert input_ranges({1: plan, 0: JsonPlan({"files": 2}, 2, False), 2: empty}) == {"1": [("a", 1, 5, 9)]}
