"""Ways to break the sink of queries on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from kstream_kafka.client.ports import Encoded
from kstream_kafka.errors import CommitUnknownError
from kstream_kafka.sink import query_batches
from kstream_kafka.sink.query_batches import QueryBatches
from kstream_kafka.sink.query_receipt import QueryReceipt
from kstream_kafka.structured import writers

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.simulation.clients import SimulatedKafka, TransactionOnTurns

from .driver import QueryDriver, SimulatedSpool
from .stage import STAGE

Newest = tuple[QueryReceipt | None, int]


def _nobody_misses_receipts(patch: pytest.MonkeyPatch) -> None:
    """So that a receipt that is not seen is no error."""
    patch.setattr(QueryBatches, "_remember_receipt", lambda *_: None)


def the_receipt_is_ignored(patch: pytest.MonkeyPatch) -> None:
    newest = QueryBatches._newest
    patch.setattr(QueryBatches, "_newest", lambda *given: (None, newest(*given)[1]))
    _nobody_misses_receipts(patch)


def nobody_looks_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    newest = QueryBatches._newest

    def looked(self: QueryBatches, partition: int, begin: int, until: int | None = None) -> Newest:
        return newest(self, partition, begin) if until is None else (None, until)

    patch.setattr(QueryBatches, "_newest", looked)
    _nobody_misses_receipts(patch)


def a_later_batch_in_kafka_is_no_reason_to_stop(patch: pytest.MonkeyPatch) -> None:
    write, newest, batches = QueryBatches.write, QueryBatches._newest, dict[QueryBatches, int]()

    def written(self: QueryBatches, batch: int, *given: Any, **options: Any) -> bool:
        batches[self] = batch
        return write(self, batch, *given, **options)

    def earlier(self: QueryBatches, *given: Any) -> Newest:
        found, end = newest(self, *given)
        return (replace(found, batch=batches[self] - 1) if found is not None and found.batch > batches[self] else found), end

    patch.setattr(QueryBatches, "write", written)
    patch.setattr(QueryBatches, "_newest", earlier)


class _Apart(TransactionOnTurns):
    """Records of one topic are in no transaction: they are written once it is committed."""

    topic = ""

    def __init__(self, kafka: SimulatedKafka, *given: Any) -> None:
        super().__init__(kafka, *given)
        self._apart: list[Encoded] = []

    def send(self, record: Encoded, on_stored: Callable[[int, int], None] | None = None) -> None:
        if record[0] != self.topic:
            super().send(record, on_stored)
            return
        self._apart.append(record)
        if on_stored is not None:
            log = self._kafka.broker.log((record[0], record[4] or 0))
            assert log is not None
            on_stored(record[4] or 0, log.end)

    def commit(self) -> None:
        super().commit()
        for topic, key, value, _, place, _ in self._apart:
            self._turns.point(f"writes to {topic}, outside of the transaction")
            if (log := self._kafka.broker.log((topic, place or 0))) is not None:
                log.append(key, value)


class _ReceiptApart(_Apart):
    topic = "k-receipts"


class _EntryApart(_Apart):
    topic = "k-audit"


def the_receipt_is_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedKafka, "transaction", lambda self, _s, name, timeout_ms, _t: _ReceiptApart(self, name, timeout_ms))


def the_entry_of_the_audit_is_outside_of_the_transaction(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(SimulatedKafka, "transaction", lambda self, _s, name, timeout_ms, _t: _EntryApart(self, name, timeout_ms))


def spools_of_other_attempts_are_written_too(patch: pytest.MonkeyPatch) -> None:
    """As if the commit took all files of the batch that it finds."""
    tasks = QueryDriver._tasks

    def all_of_the_batch(self: QueryDriver, batch: int) -> list[SimulatedSpool]:
        tasks(self, batch)
        return list(self.spooled[batch])

    patch.setattr(QueryDriver, "_tasks", all_of_the_batch)


def a_commit_without_an_answer_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    def once(write: Callable[[], bool]) -> bool:
        try:
            return certainly(write)
        except CommitUnknownError:
            return True

    def certainly(write: Callable[[], bool]) -> bool:
        return writers.patiently(write, writers.SystemClock())

    patch.setattr(writers, "_certainly", once)


def each_process_has_an_id_of_its_own(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(query_batches, "query_id", lambda prefix, query: f"{prefix}-query-{query}-{STAGE.turns.current.number}")


def nobody_reads_which_topic_had_the_receipt(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(query_batches, "read_topic", lambda *_: None)


def all_that_could_be_written_twice_is_refused(patch: pytest.MonkeyPatch) -> None:
    def refused(found: QueryReceipt | None, batch: QueryReceipt, _keeps: bool) -> bool:
        if found is not None:
            raise OutputChangedError("something is there", output=batch.query)
        return False

    patch.setattr(query_batches, "check_written", refused)
