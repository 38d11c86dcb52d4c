"""What a task has encoded comes out as it came in, whether it fits into memory or not; its digest does not depend on the order."""

from __future__ import annotations

import zlib

import pytest
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import Digest
from kstream_kafka.sink.spool import Spool, digests_of

RECORDS: list[Encoded] = [
    ("totals", b"%d" % n if n % 3 else None, b"v%d" % n if n % 5 else None, [("h", b"%d" % n)], n % 2, n) for n in range(5000)
]


def spooled(records: list[Encoded], held_bytes: int) -> Spool:
    spool = Spool(held_bytes)
    for record in records:
        spool.add(record)
    return spool


@pytest.mark.parametrize("held_bytes", [0, 10_000, 1_000_000_000])
def test_records_come_out_in_their_order_however_few_fit_into_memory(held_bytes: int) -> None:
    spool = spooled(RECORDS, held_bytes)
    assert list(spool.records()) == RECORDS
    assert list(spool.records()) == RECORDS, "a second time"
    spool.close()


def test_the_digest_does_not_depend_on_the_order() -> None:
    assert spooled(RECORDS, 10_000).digests == spooled(RECORDS[::-1], 1_000_000_000).digests


def test_the_digest_is_the_sum_over_keys_and_values() -> None:
    records: list[Encoded] = [("t", b"a", b"bc", (), None, None), ("t", None, b"", (), None, None), ("t", b"", None, (), None, None)]
    keys, values = zlib.crc32(b"a") + 1 + 1, zlib.crc32(b"bc") + 1 + 1
    assert spooled(records, 1000).digests == digests_of(records) == {"t": Digest(3, 3, keys, values)}


def test_another_value_or_one_that_is_missing_changes_the_digest() -> None:
    one: list[Encoded] = [("t", b"a", b"b", (), None, None)]
    digests = {
        spooled(records, 1000).digests["t"]
        for records in (one, one * 2, [("t", b"a", None, (), None, None)], [("t", b"b", b"a", (), None, None)])
    }
    assert len(digests) == 4


def test_each_topic_has_a_digest_of_its_own() -> None:
    records: list[Encoded] = [("a", None, b"x", (), None, None), ("b", None, b"y", (), None, None), ("a", None, b"z", (), None, None)]
    of_each = {topic: digests_of(record for record in records if record[0] == topic)[topic] for topic in ("a", "b")}
    assert digests_of(records) == of_each and of_each["a"].records == 2
    assert digests_of([]) == {} and spooled([], 1000).digests == {}
