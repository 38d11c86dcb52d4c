"""Ways to break the sink on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kstream_kafka.client.topic_reader import ReadLog, TopicReader
from kstream_kafka.errors import CommitUnknownError
from kstream_kafka.sink import kafka_output, receipts_topic
from kstream_kafka.sink.kafka_output import KafkaOutput
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter
from kstream_kafka.sink.producer_record import Encoded
from kstream_kafka.sink.receipt import Fence, fence_key
from kstream_kafka.sink.receipts import Control, FoundReceipt, FoundReceipts, Receipts
from kstream_kafka.sink.receipts_topic import ReceiptsTopic

from kstream.batch import Json
from kstream.output import OutputBatch, Writer
from kstream.sinks.receipt import Receipt, changed, check_hashing, to_write

from .clients import ReaderOnTurns, TransactionOnTurns
from .stage import STAGE


def keys_are_hashed_anew_and_that_is_seen_after_the_commit(patch: pytest.MonkeyPatch) -> None:
    call = KafkaPartitionWriter.__call__

    def late(self: KafkaPartitionWriter, partition: int, records: Iterable[Encoded]) -> Iterator[FoundReceipt | None]:
        yield from call(replace(self, hashing=None), partition, records)
        check_hashing(self.hashing, self.receipts.output, self.time_ms)

    patch.setattr(KafkaPartitionWriter, "__call__", late)


def a_topic_that_was_made_anew_is_taken_for_the_first_one(patch: pytest.MonkeyPatch) -> None:
    restore = KafkaOutput.restore

    def restored(self: KafkaOutput, writer: Writer, stored: Json) -> None:
        restore(self, writer, None)

    patch.setattr(KafkaOutput, "restore", restored)


def an_older_checkpoint_is_as_good_as_the_newest(patch: pytest.MonkeyPatch) -> None:
    """Neither a fence nor the plan of a batch tells that a checkpoint is older than what was written."""

    def by_any_plan(receipts: Sequence[Receipt], time_ms: int, nonce: str, number: int, _knows: Any, *given: Any) -> list[int] | None:
        these = [replace(receipt, nonce=nonce) for receipt in receipts]
        return to_write(these, time_ms, nonce, number, lambda _time, _nonce: True, *given)

    patch.setattr(receipts_topic, "check_is_of_checkpoint", lambda *_: None)
    patch.setattr(kafka_output, "to_write", by_any_plan)


def receipts_belong_to_the_position_of_an_output(patch: pytest.MonkeyPatch) -> None:
    make = ReceiptsTopic.__init__

    def made(self: ReceiptsTopic, params: Any, prefix: str, output: str) -> None:
        make(self, params, prefix, f"output {STAGE.position()}")

    patch.setattr(ReceiptsTopic, "__init__", made)


def the_receipt_of_a_later_batch_is_ignored(patch: pytest.MonkeyPatch) -> None:
    def ignoring(receipts: Sequence[Receipt], time_ms: int, *given: Any) -> list[int] | None:
        return to_write([receipt for receipt in receipts if receipt.time_ms <= time_ms], time_ms, *given)

    look = KafkaPartitionWriter._look

    def looked(self: KafkaPartitionWriter, *given: Any, **options: Any) -> FoundReceipt | None:
        there = look(self, *given, **options)
        return None if there is None or there.receipt.time_ms != self.time_ms else there

    patch.setattr(kafka_output, "to_write", ignoring)
    patch.setattr(KafkaPartitionWriter, "_look", looked)


def the_receipt_of_an_earlier_batch_is_one_of_this_batch(patch: pytest.MonkeyPatch) -> None:
    def renamed(receipts: Sequence[Receipt], time_ms: int, nonce: str, number: int, *given: Any) -> list[int] | None:
        these = [r if r.time_ms >= time_ms else replace(r, time_ms=time_ms, nonce=nonce, num_partitions=number) for r in receipts]
        return to_write(these, time_ms, nonce, number, *given)

    patch.setattr(kafka_output, "to_write", renamed)


def a_read_of_receipts_ends_at_an_open_transaction(patch: pytest.MonkeyPatch) -> None:
    look = Receipts.look

    def short(self: Receipts, reader: TopicReader, begins: Mapping[int, int], seconds: float, *_: Any, **__: Any) -> FoundReceipts:
        return look(self, reader, begins, seconds, None, False)

    patch.setattr(Receipts, "look", short)


def an_id_is_not_taken(patch: pytest.MonkeyPatch) -> None:
    """That of the last partition. What is open there holds the driver up."""
    take = KafkaOutput._fence_tasks
    patch.setattr(KafkaOutput, "_fence_tasks", lambda self, receipts, number: take(self, receipts, number - 1))


def a_driver_writes_its_fence_after_it_has_read_the_receipts(patch: pytest.MonkeyPatch) -> None:
    append, prepare = ReceiptsTopic._append, KafkaOutput.prepare

    def later(self: ReceiptsTopic, receipts: Receipts, places: Iterable[int]) -> dict[int, int]:
        wanted = waiting.setdefault(self, (receipts, set()))[1]
        wanted |= set(places)
        return {place: STAGE.kafka.broker.topics[self.name].logs[place].end for place in wanted}

    def prepared(self: KafkaOutput, batch: OutputBatch, rdd: Any) -> Sequence[int] | None:
        missing = prepare(self, batch, rdd)
        if self._topic in waiting:
            append(self._topic, *waiting.pop(self._topic))
        return missing

    waiting = dict[ReceiptsTopic, tuple[Receipts, set[int]]]()
    patch.setattr(ReceiptsTopic, "_append", later)
    patch.setattr(KafkaOutput, "prepare", prepared)


def no_task_looks_before_it_commits(patch: pytest.MonkeyPatch) -> None:
    look = KafkaPartitionWriter._look

    def looked(self: KafkaPartitionWriter, partition: int, seconds: float, until: int | None = None, **options: Any) -> FoundReceipt | None:
        return look(self, partition, seconds, **options) if until is None else None

    patch.setattr(KafkaPartitionWriter, "_look", looked)


def nobody_looks_for_fences(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Receipts, "check_driver", lambda *_: None)


def a_commit_without_an_answer_is_taken_for_done(patch: pytest.MonkeyPatch) -> None:
    commit = TransactionOnTurns.commit

    def hopeful(self: TransactionOnTurns) -> None:
        try:
            commit(self)
        except CommitUnknownError:
            pass

    patch.setattr(TransactionOnTurns, "commit", hopeful)


def all_that_could_be_written_twice_is_refused(patch: pytest.MonkeyPatch) -> None:
    def refusing(receipts: Sequence[Receipt], time_ms: int, *given: Any) -> list[int] | None:
        if any(receipt.time_ms >= time_ms for receipt in receipts):
            raise changed("totals", "something is there")
        return to_write(receipts, time_ms, *given)

    patch.setattr(kafka_output, "to_write", refusing)


def an_empty_partition_is_missed(patch: pytest.MonkeyPatch) -> None:
    lost = kafka_output.lost_partition
    patch.setattr(kafka_output, "lost_partition", lambda found, n: lost(found, None if n is None else replace(n, empty=frozenset())))


def a_driver_that_saw_no_fence_looks_no_more(patch: pytest.MonkeyPatch) -> None:
    """The simulation has found this one: an old answer has no fence, so a half-written batch seems to be the first one of all."""

    def look_again(self: ReceiptsTopic, driver: Writer, reader: TopicReader, receipts: Receipts, _seen: Any) -> Control:
        for fence in self._control(driver, reader)[0]:
            receipts.check_driver(fence)
        return Control([], frozenset(), frozenset())

    patch.setattr(ReceiptsTopic, "_look_again", look_again)


def all_fences_have_one_key(patch: pytest.MonkeyPatch) -> None:
    """The simulation has found this one: the fence of an earlier driver comes late, and compaction removes that of the later one."""
    patch.setattr(receipts_topic, "fence_key", lambda job, output, _fence: fence_key(job, output, Fence(0, "", 0)))


def a_read_tells_of_an_end_beyond_what_it_has_returned(patch: pytest.MonkeyPatch) -> None:
    """The simulation has found this one: the client has read on in a partition, while others were not at their ends."""
    read = ReaderOnTurns.read

    def beyond(self: ReaderOnTurns, topic: str, *given: Any, **options: Any) -> ReadLog:
        found = read(self, topic, *given, **options)
        logs = STAGE.kafka.broker.topics[topic].logs
        return ReadLog(found.messages, {place: max(end, logs[place].stable_end) for place, end in found.ends.items()})

    patch.setattr(ReaderOnTurns, "read", beyond)
