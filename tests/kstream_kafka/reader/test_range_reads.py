"""RangeReads: who runs a task lends the consumers and gets the report. It works in a program without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import reader
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import RecordsRemovedError
from kstream_kafka.planning.packing import Packing, RangeSplit
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads

from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReportData
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

RANGE = OffsetRange("t", 0, 0, 3)
READ = {"counts": {("t", 0, 0): (3, 3)}, "bytes": {("t", 0, 0): (3, 3)}, "oldest": {("t", 0, 0): 1000}}
"""The report of a read of RANGE."""
WITH_SPARK = {"data_frame", "kafka_rdd", "location_strategy", "range_task", "value_columns"}
"""The modules of the room that are for Spark's driver or its tasks."""


def reads(reports: list[ReportData] | None, tolerate_loss: bool = False, wanted: OffsetRange = RANGE) -> RangeReads:
    context = BatchReadContext(tolerate_loss=tolerate_loss, report_to=None if reports is None else reports.append)
    return RangeReads.of([RangeSplit(wanted)], {}, 1000, read_context=context)


def offsets(made: RangeReads, consumer: FakeConsumer) -> list[int]:
    return [m.offset() for _, messages in made.chunks(0, lambda _settings: nullcontext(consumer)) for m in messages]


def test_the_report_of_a_task_goes_where_it_is_told_once_at_the_end() -> None:
    reports: list[ReportData] = []
    assert offsets(reads(reports), FakeConsumer([records([0, 1]), records([2])])) == [0, 1, 2]
    assert reports == [READ]


def test_a_report_that_nobody_wants_goes_nowhere() -> None:
    assert offsets(reads(None), FakeConsumer([records([0, 1, 2])])) == [0, 1, 2]


def test_a_task_that_read_nothing_has_nothing_to_report() -> None:
    reports: list[ReportData] = []
    assert offsets(reads(reports, wanted=OffsetRange("t", 0, 3, 3)), FakeConsumer()) == [] and reports == []


def test_a_task_that_is_closed_early_reports_what_it_has_read_and_one_that_fails_reports_nothing() -> None:
    reports: list[ReportData] = []
    chunks = reads(reports).chunks(0, lambda _settings: nullcontext(FakeConsumer([records([0, 1]), records([2])])))
    next(chunks)
    assert reports == []
    chunks.close()  # pyright: ignore[reportAttributeAccessIssue]
    assert reports == [{"bytes": {("t", 0, 0): (2, 2)}, "oldest": {("t", 0, 0): 1000}}]
    gone = Message(0, problem=FetchErrorKind.OUT_OF_RANGE)
    with pytest.raises(RecordsRemovedError):
        offsets(reads(reports), FakeConsumer([[gone]], log_range=(2, 9)))
    assert len(reports) == 1
    assert offsets(reads(reports, tolerate_loss=True), FakeConsumer([[gone], records([2])], log_range=(2, 9))) == [2]
    assert list(reports[1]["lost"]) == [("t", 0, 0)] and reports[1]["counts"] == {("t", 0, 0): (3, 1)}


def test_the_consumers_of_a_task_are_lent_with_fetch_sizes_for_its_ranges() -> None:
    lent: list[Any] = []

    def lend(settings: Any) -> Any:
        lent.append(settings["max.partition.fetch.bytes"])
        return nullcontext(FakeConsumer([records([0, 1, 2])] if len(lent) == 1 else [records(range(2000), where=("t", 1))]))

    whole = [RangeSplit(RANGE), RangeSplit(OffsetRange("t", 1, 0, 2000))]
    made = RangeReads.of(whole, {}, 1000, Packing(max_tasks=1))
    assert [len(messages) for _, messages in made.chunks(0, lend)] == [3, 2000]
    assert len(lent) == 2 and int(lent[0]) < int(lent[1])


PROGRAM = """
import importlib, json, sys


class NoSpark:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ImportError(f"{name} is refused")


sys.meta_path.insert(0, NoSpark())
for module in sys.argv[1:]:
    importlib.import_module(f"kstream_kafka.reader.{module}")

from contextlib import nullcontext
from kstream.offsets.offset_range import OffsetRange
from kstream_kafka.planning.packing import Packing, RangeSplit
from kstream_kafka.reader.arrow import record_batches
from kstream_kafka.reader.decoding import TEXT
from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads
from tests.kstream_kafka.fakes import FakeConsumer, records

wanted, reports = OffsetRange("t", 0, 0, 3), []
reads = RangeReads.of([RangeSplit(wanted)], {}, 1000, read_context=BatchReadContext(report_to=reports.append))
chunks = lambda: reads.chunks(0, lambda _settings: nullcontext(FakeConsumer([records([0, 1, 2])])))
pairs = [pair for where, messages in chunks() for pair in TEXT.of_chunk(where)(messages)]
values = [value.decode() for batch in record_batches(chunks()) for value in batch.column("value").to_pylist()]
print(json.dumps({"pairs": pairs, "values": values, "counts": [list(report["counts"].values()) for report in reports]}))
"""


def test_records_are_read_decoded_and_put_into_record_batches_in_a_program_without_Spark() -> None:
    modules = sorted({path.stem for path in Path(reader.__file__).parent.glob("[a-z]*.py")} - WITH_SPARK)
    root = Path(__file__).resolve().parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (root, root / "connectors")))}
    command = [sys.executable, "-c", PROGRAM, *modules]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout) == {
        "pairs": [[None, "0"], [None, "1"], [None, "2"]],
        "values": ["0", "1", "2"],
        "counts": [[[3, 3]], [[3, 3]]],
    }
