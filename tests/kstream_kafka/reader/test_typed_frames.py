"""The tasks of a DataFrame with fields of the values: what does not fit goes to the errors policy of the stream, and no record is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from kstream_kafka.errors import MalformedValueError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader import consumer_cache
from kstream_kafka.reader.consumer_cache import ConsumerCache
from kstream_kafka.reader.data_frame import read_tasks
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads
from kstream_kafka.reader.typed_columns import TypedColumns
from kstream_kafka.reader.value_formats import Mode, ValueSchema

from kstream.errors import TooManyRecordErrorsError
from kstream.offsets.offset_range import OffsetRange
from kstream.worker.record_errors import DeadLetterWriter, ErrorLimit, ErrorsPolicy
from kstream.worker.record_failure import RecordFailure
from tests.kstream_kafka.fakes import FakeConsumer, Message

BODIES = [b'{"id":0}', b"poison", None, b'{"id":"x"}', b'{"id":4}']


@dataclass
class Letters:
    """Dead letters of this process."""

    written: list[RecordFailure] = field(default_factory=list[RecordFailure])
    flushed: int = 0

    def open(self, task: int) -> DeadLetterWriter:
        return self

    def write(self, failure: RecordFailure) -> None:
        self.written.append(failure)

    def flush(self) -> None:
        self.flushed = len(self.written)


@pytest.fixture(autouse=True)
def consumer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeConsumer]:
    """The consumer of this process: a partition has the offsets 0 to 4, and so has the next one."""
    script = [[Message(at, body, where=("t", partition)) for at, body in enumerate(BODIES)] for partition in (0, 1)]
    fake = FakeConsumer(script)
    monkeypatch.setattr(consumer_cache, "_cache", ConsumerCache(lambda _: fake))
    yield fake


def rows(mode: Mode, letters: Letters, told: list[Any], ratio: float = 1.0) -> list[Any]:
    """The rows of two tasks that Spark runs in one, and what they report."""
    columns = TypedColumns(("id", "partition", "offset"), ValueSchema("json", pa.schema([("id", pa.int64())]), mode))
    context = BatchReadContext(report_to=told.append, errors=ErrorsPolicy(ErrorLimit(ratio, 10), letters))
    reads = RangeReads(tuple((RangeSplit(OffsetRange("t", p, 0, 5)),) for p in (0, 1)), {}, 10_000, context)
    ids = iter([pa.RecordBatch.from_pydict({"id": [0]}), pa.RecordBatch.from_pydict({"id": [1]})])
    return [tuple(row.values()) for batch in read_tasks(reads, ids, columns) for row in batch.to_pylist()]


def test_a_record_whose_value_does_not_fit_is_left_out_and_its_letter_is_durable_before_the_task_ends() -> None:
    letters, told = Letters(), list[Any]()
    assert rows("dead-letter", letters, told) == [(0, 0, 0), (None, 0, 2), (4, 0, 4), (0, 1, 0), (None, 1, 2), (4, 1, 4)]
    found = [(failure.record.partition, failure.record.offset, failure.step.operator, failure.message) for failure in letters.written]
    one, three = "the value is no JSON: Expecting value at character 0", "the value has in the field 'id' a string, not a whole number"
    assert found == [(p, at, "value_format", words) for p in (0, 1) for at, words in ((1, one), (3, three))]
    assert letters.flushed == 4
    assert [list(report["errors"].values()) for report in told] == [
        [{("value_format", "ValueError"): (2, f"t-{p}@1: {one}")}] for p in (0, 1)
    ]


def test_too_many_records_that_do_not_fit_end_the_task() -> None:
    with pytest.raises(TooManyRecordErrorsError):
        rows("dead-letter", Letters(), [], ratio=0.001)


def test_the_mode_permissive_keeps_every_record_and_writes_no_letter() -> None:
    letters = Letters()
    assert len(rows("permissive", letters, [])) == 10 and letters.written == []


def test_the_mode_fail_ends_the_task_and_writes_no_letter() -> None:
    letters = Letters()
    with pytest.raises(MalformedValueError, match="t-0, offset 1: the value is no JSON"):
        rows("fail", letters, [])
    assert letters.written == []
