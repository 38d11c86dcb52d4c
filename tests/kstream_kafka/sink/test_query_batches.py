"""Each batch of a query is in Kafka once and as a whole, whatever becomes of the processes that commit it. On FakeKafka."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import CommitUnknownError, KafkaConfigError, ProducerFencedError, ReceiptsLostError
from kstream_kafka.sink import query_batches
from kstream_kafka.sink.audit import AuditEntry, entry_of
from kstream_kafka.sink.query_batches import QueryBatches, write_at_once
from kstream_kafka.sink.query_sources import NO_SOURCES, QuerySources

from kstream.errors import OutputChangedError
from kstream.storage import StorePlace

from .fake_kafka import FakeKafka, installed

RECEIPTS, TOTALS = "kstream-receipts", "totals"
PARAMS = KafkaParams.parse({"bootstrap.servers": "fake:1"})


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    fake = installed(monkeypatch)
    fake.create(TOTALS, 3)
    return fake


def write(batch: int, *numbers: int, query: str = "q", sources: QuerySources = NO_SOURCES, **given: Any) -> bool:
    """A process of its own commits a batch of these numbers, each in the partition of its number."""

    def records() -> Iterator[Encoded]:
        return ((TOTALS, None, b"%d" % number, (), number, None) for number in numbers)

    return QueryBatches(PARAMS, "kstream", query, **given).write(batch, records, 100, sources, is_empty=not numbers)


class KilledError(Exception):
    pass


def killed() -> None:
    raise KilledError


def test_batches_are_written_one_after_the_other_each_with_its_receipt(kafka: FakeKafka) -> None:
    assert write(0, 1, 2) and write(1, 3) and write(4, 4, 5)
    assert kafka.values(TOTALS) == [b"1", b"2", b"3", b"4", b"5"]
    assert [value[:10] for value in kafka.values(RECEIPTS)] == [b'{"batch":0', b'{"batch":1', b'{"batch":4']


def test_a_batch_that_is_written_is_not_written_again_in_whatever_order_its_records_come(kafka: FakeKafka) -> None:
    assert write(0, 1, 2)
    assert not write(0, 2, 1)
    assert kafka.values(TOTALS) == [b"1", b"2"]


def test_a_query_does_not_see_the_receipts_of_another_one(kafka: FakeKafka) -> None:
    assert write(5, 1, query="p") and write(0, 1, query="q")
    assert kafka.values(TOTALS) == [b"1", b"1"]


@pytest.mark.parametrize("step", ["open", "read", "begin", "flush", "commit", "committed"])
def test_a_process_that_is_killed_at_any_step_leaves_a_batch_that_the_next_one_writes_or_finds(kafka: FakeKafka, step: str) -> None:
    assert write(0, 1)
    kafka.on[step] = killed
    with pytest.raises(KilledError):
        write(1, 2, 3)
    assert write(1, 2, 3) == (step != "committed")
    assert kafka.values(TOTALS) == [b"1", b"2", b"3"] and not kafka.open


def test_a_commit_without_an_answer_is_found_by_the_next_try(kafka: FakeKafka) -> None:
    def lost() -> None:
        raise CommitUnknownError("q", "no answer")

    kafka.on["committed"] = lost
    with pytest.raises(CommitUnknownError):
        write(0, 1)
    assert not write(0, 1)
    assert kafka.values(TOTALS) == [b"1"]


@pytest.mark.parametrize("step", ["begin", "flush", "commit"])
def test_a_process_of_an_earlier_driver_writes_nothing_once_a_later_one_has_written(kafka: FakeKafka, step: str) -> None:
    kafka.on[step] = lambda: assert_written(0, 1)
    with pytest.raises(ProducerFencedError):
        write(0, 1)
    assert kafka.values(TOTALS) == [b"1"]


def assert_written(batch: int, *numbers: int) -> None:
    assert write(batch, *numbers)


def test_a_process_that_is_late_with_its_id_finds_what_a_later_driver_has_written(kafka: FakeKafka) -> None:
    kafka.on["open"] = lambda: assert_written(0, 1)
    assert not write(0, 1)
    assert kafka.values(TOTALS) == [b"1"]


def test_an_old_answer_does_not_hide_the_receipt(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    assert write(0, 1)
    hidden, kept = kafka.topics[RECEIPTS][1], [list[object]() for _ in range(17)]
    kafka.topics[RECEIPTS] = kafka.topics[RECEIPTS][0], kept  # type: ignore[assignment]
    kafka.on["begin"] = lambda: kafka.topics.update({RECEIPTS: (kafka.topics[RECEIPTS][0], hidden)})
    monkeypatch.setattr(query_batches, "check_transactions", lambda *_: None)
    assert not write(0, 1)
    assert kafka.values(TOTALS) == [b"1"] and not kafka.open


def test_a_batch_with_other_records_than_its_receipt_writes_nothing(kafka: FakeKafka) -> None:
    assert write(0, 1)
    for numbers in ((2,), (1, 1)):
        with pytest.raises(OutputChangedError, match="batch 0 is written with 1 records of 1 bytes"):
            write(0, *numbers)
    assert not write(0, 2, keeps=True)
    assert kafka.values(TOTALS) == [b"1"]


def test_a_batch_without_records_leaves_nothing_and_is_refused_if_it_had_some_before(kafka: FakeKafka) -> None:
    assert not write(0) and kafka.values(RECEIPTS) == []
    assert write(1, 1)
    with pytest.raises(OutputChangedError, match=r"batch 1 is written with 1 records of 1 bytes .* and it has no record now"):
        write(1)
    with pytest.raises(OutputChangedError, match="Kafka has its batch 1, and the query writes batch 0"):
        write(0)
    assert not write(1, keeps=True) and not write(2) and write(3, 3)
    assert kafka.values(TOTALS) == [b"1", b"3"] and not kafka.open


def test_a_checkpoint_that_is_older_than_what_was_written_is_refused(kafka: FakeKafka) -> None:
    assert write(0, 1) and write(1, 2)
    with pytest.raises(OutputChangedError, match="Kafka has its batch 1, and the query writes batch 0"):
        write(0, 1)
    assert kafka.values(TOTALS) == [b"1", b"2"]


def test_a_topic_of_receipts_that_is_gone_is_seen_by_the_process_that_knew_it(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[object, object] = {}
    monkeypatch.setattr(query_batches, "once", lambda key, make: known[key] if key in known else known.setdefault(key, make()))
    for batch in range(3):
        assert write(batch, batch)
    kafka.create(RECEIPTS, 17)
    with pytest.raises(ReceiptsLostError, match="topic kstream-receipts was deleted and made anew"):
        write(2, 2)
    del kafka.topics[RECEIPTS]
    with pytest.raises(ReceiptsLostError, match="topic kstream-receipts is gone"):
        write(2, 2)


@pytest.mark.parametrize("batch", [1, 2])
def test_receipts_that_are_gone_are_never_taken_for_a_batch_that_is_not_written(kafka: FakeKafka, tmp_path: Path, batch: int) -> None:
    """As the next process finds them: the topic deleted, made anew, or without the record."""
    notes = StorePlace(str(tmp_path), exclusive=False)
    assert write(0, 1, notes=notes) and write(1, 2, notes=notes)
    kept = kafka.topics.pop(RECEIPTS)
    with pytest.raises(ReceiptsLostError, match="topic kstream-receipts is gone"):
        write(batch, 2, notes=notes)
    kafka.create(RECEIPTS, 17)
    with pytest.raises(ReceiptsLostError, match="topic kstream-receipts was deleted and made anew"):
        write(batch, 2, notes=notes)
    kafka.topics[RECEIPTS] = kept[0], [list[Any]() for _ in range(17)]
    with pytest.raises(ReceiptsLostError, match="topic kstream-receipts has lost its receipt"):
        write(batch, 2, notes=notes)
    kafka.topics[RECEIPTS] = kept
    assert not write(1, 2, notes=notes)
    assert kafka.values(TOTALS) == [b"1", b"2"] and not kafka.open


def test_a_query_that_found_a_receipt_without_a_note_leaves_one(kafka: FakeKafka, tmp_path: Path) -> None:
    """Its first commit was that of an earlier version, or its process died behind it."""
    notes = StorePlace(str(tmp_path), exclusive=False)
    assert write(0, 1) and not write(0, 1, notes=notes)
    del kafka.topics[RECEIPTS]
    with pytest.raises(ReceiptsLostError):
        write(1, 2, notes=notes)


def test_other_brokers_and_another_prefix_have_receipts_of_their_own(kafka: FakeKafka, tmp_path: Path) -> None:
    notes = StorePlace(str(tmp_path), exclusive=False)
    assert write(0, 1, notes=notes)
    assert QueryBatches(PARAMS, "other", "q", notes=notes).write(1, lambda: [(TOTALS, None, b"2", (), 0, None)], 1)
    kafka.cluster_id = "another"
    del kafka.topics[RECEIPTS]
    assert write(2, 3, notes=notes)


def test_a_note_that_cannot_be_stored_or_read_is_a_warning_and_the_batch_stands(
    kafka: FakeKafka, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    notes = StorePlace(str(tmp_path / "file"), exclusive=False)
    with caplog.at_level(logging.WARNING):
        assert write(0, 1, notes=notes)
    assert all(f"query q: the note about its receipts could not be {done}" in caplog.text for done in ("read", "written"))
    assert kafka.values(TOTALS) == [b"1"]


def test_brokers_that_do_not_keep_what_transactions_promise_are_refused_at_the_first_batch(kafka: FakeKafka) -> None:
    kafka.fences = False
    with pytest.raises(KafkaConfigError, match="let an earlier producer commit"):
        write(0, 1)
    kafka.cluster_id = "mockCluster1"
    for refused in (lambda: write(0, 1), lambda: write_at_once(PARAMS, "id", iter(()), 0)):
        with pytest.raises(KafkaConfigError, match="has no transactions"):
            refused()
    assert kafka.values(TOTALS) == []


def test_a_frame_outside_of_a_query_is_one_transaction_without_a_receipt(kafka: FakeKafka) -> None:
    write_at_once(PARAMS, "id", iter([(TOTALS, None, b"1", (), 0, None), (TOTALS, None, b"2", (), 1, None)]), 2)
    kafka.on["commit"] = killed
    with pytest.raises(KilledError):
        write_at_once(PARAMS, "id", iter([(TOTALS, None, b"3", (), 0, None)]), 1)
    assert kafka.values(TOTALS) == [b"1", b"2"] and RECEIPTS not in kafka.topics


def reading(ends: Mapping[int, int]) -> QuerySources:
    """A query that reads one partition. `ends`: batch → where it ends."""
    sources = QuerySources(None)
    sources._read.update({batch: {"0": {"orders": {"0": end}}} for batch, end in ends.items()})
    return sources


def entries(kafka: FakeKafka) -> list[AuditEntry]:
    found = [entry_of(record.key(), record.value() or b"", "") for record in kafka.committed("kstream-audit", 0)]
    return [entry for entry in found if entry is not None]


def test_each_batch_has_an_entry_for_the_audit_in_its_own_transaction(kafka: FakeKafka) -> None:
    kafka.append(TOTALS, 1, None, b"of before")
    assert write(3, 1, 2, topic=TOTALS)
    kafka.on["commit"] = killed
    with pytest.raises(KilledError):
        write(4, 4)
    assert write(4, 4)
    assert not write(4, 4)
    beginning, first, second = entries(kafka)
    assert (beginning.is_batch, beginning.ends) == (False, {TOTALS: [0, 1, 0]})
    assert (first.time_ms, first.ends, first.digests[TOTALS].records) == (3, {TOTALS: [0, 2, 1]}, 2)
    assert (second.time_ms, second.digests[TOTALS].records, second.is_query, second.job) == (4, 1, True, "q")


def test_an_entry_has_the_offsets_of_the_source_as_far_as_they_are_known(kafka: FakeKafka) -> None:
    assert write(3, 1, sources=reading({2: 7, 3: 9}))
    assert entries(kafka)[-1].inputs == {"0": [("orders", 0, 7, 9)]}
    with pytest.raises(OutputChangedError, match="source 0 ended at offset 9 of orders-0 then, and ends at offset 8 now"):
        write(3, 1, sources=reading({2: 7, 3: 8}))


def test_a_batch_behind_one_of_another_copy_of_the_checkpoint_is_refused(kafka: FakeKafka) -> None:
    """Its own batch of that id had no records, so it left no receipt that could differ."""
    assert write(3, 1, sources=reading({2: 7, 3: 9}))
    for numbers in ((1,), ()):
        with pytest.raises(OutputChangedError, match="Kafka has its batch 3 of another copy of its checkpoint"):
            write(4, *numbers, sources=reading({2: 7, 3: 7, 4: 9}))
    assert write(4, 2, sources=reading({2: 7, 3: 9, 4: 11}))
    assert kafka.values(TOTALS) == [b"1", b"2"]


def test_without_an_audit_no_topic_of_it_is_made(kafka: FakeKafka) -> None:
    assert write(3, 1, audit=False)
    assert "kstream-audit" not in kafka.topics


def test_a_large_batch_has_a_longer_transaction(kafka: FakeKafka) -> None:
    records: list[Encoded] = [(TOTALS, None, b"1", (), 0, None)]
    assert QueryBatches(PARAMS, "kstream", "q").write(0, lambda: records, 600_000_000)
    assert kafka.timeouts[0] == 600_000
