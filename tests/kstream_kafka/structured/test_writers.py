"""What the writers do with the messages of their tasks. On FakeKafka."""

from __future__ import annotations

import pickle
from pathlib import Path

import pyarrow as pa
import pytest
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.sink.frame_columns import arrow_schema
from kstream_kafka.structured import writers
from kstream_kafka.structured.sink_options import SinkOptions
from kstream_kafka.structured.spools import SpooledPartition, spooled
from kstream_kafka.structured.writers import KafkaBatchWriter
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import StringType, StructField, StructType

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.fake_kafka import FakeKafka, installed

SCHEMA = StructType([StructField("value", StringType())])
TOTALS, RECEIPTS = "totals", "kstream-receipts"


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    fake = installed(monkeypatch)
    fake.create(TOTALS, 3)
    return fake


def write(*values: bytes, told: tuple[str | None, int | None] = ("4f1e", 0), **options: str) -> None:
    """A frame of one task is written, in a process of its own."""
    parsed = SinkOptions.parse({"kafka.bootstrap.servers": "fake:1", "topic": TOTALS, **options})
    frame = pa.RecordBatch.from_pylist([{"value": value} for value in values], arrow_schema(["value"]))
    KafkaBatchWriter(parsed, SCHEMA).commit([spooled([frame], told, parsed.place, message_bytes=1)])


def test_a_frame_of_foreachBatch_with_a_name_is_written_once(kafka: FakeKafka, tmp_path: Path) -> None:
    place = str(tmp_path)
    for batch in (0, 0, 1):
        write(b"a", b"b", told=("4f1e", batch), name="totals", spoolLocation=place)
        write(b"c", told=("4f1e", batch), name="alerts", spoolLocation=place)
    assert kafka.values(TOTALS) == [b"a", b"a", b"b", b"b", b"c", b"c"]
    assert {entry.key() for place in range(17) for entry in kafka.committed(RECEIPTS, place)} == {
        b'["query","4f1e/totals"]',
        b'["query","4f1e/alerts"]',
    }
    with pytest.raises(OutputChangedError, match="query 4f1e/totals: batch 1 is written with 2 records"):
        write(b"a", told=("4f1e", 1), name="totals", spoolLocation=place)


def test_a_frame_with_a_name_leaves_the_spools_of_the_others_of_its_batch(kafka: FakeKafka, tmp_path: Path) -> None:
    """Two threads of foreachBatch may write at once."""
    for name in ("3-of-another-frame", "2-left-by-an-earlier-batch"):
        (tmp_path / "4f1e").mkdir(exist_ok=True)
        (tmp_path / "4f1e" / name).touch()
    write(b"a", told=("4f1e", 3), name="totals", spoolLocation=str(tmp_path))
    assert sorted(path.name for path in (tmp_path / "4f1e").iterdir()) == ["3-of-another-frame", "receipts-kstream-receipts-totals"]


def test_without_a_name_a_frame_leaves_no_receipt_and_is_there_again(kafka: FakeKafka, tmp_path: Path) -> None:
    for _ in range(2):
        write(b"a", spoolLocation=str(tmp_path))
    assert kafka.values(TOTALS) == [b"a", b"a"] and RECEIPTS not in kafka.topics


@pytest.mark.parametrize("is_committed", [True, False])
def test_a_frame_removes_what_its_killed_tasks_have_spooled_and_leaves_other_frames_alone(
    kafka: FakeKafka, tmp_path: Path, is_committed: bool
) -> None:
    """The rows of a task are more than a message may have."""
    options = {"kafka.bootstrap.servers": "fake:1", "topic": TOTALS, "spoolLocation": str(tmp_path)}
    mine, other = (KafkaBatchWriter(SinkOptions.parse(options), SCHEMA) for _ in range(2))
    values = [b"v" * 900_000] * 5
    rows = pa.RecordBatch.from_pylist([{"value": value} for value in values], arrow_schema(["value"]))
    kept = [pickle.loads(pickle.dumps(writer)).write(iter([rows])) for writer in (mine, mine, other)]
    if is_committed:
        mine.commit(kept[:1])
    else:
        mine.abort([None, None])
    assert [f"frames/{path.name}" for path in (tmp_path / "frames").iterdir()] == list(kept[2].files)
    assert kafka.values(TOTALS) == values * is_committed


@pytest.mark.parametrize("is_committed", [True, False])
@pytest.mark.parametrize("named", [{}, {"name": "totals"}])
def test_a_frame_of_foreachBatch_removes_what_earlier_batches_and_its_own_killed_tasks_have_left(
    kafka: FakeKafka, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named: dict[str, str], is_committed: bool
) -> None:
    options = {"kafka.bootstrap.servers": "fake:1", "topic": TOTALS, "spoolLocation": str(tmp_path), **named}
    rows = pa.RecordBatch.from_pylist([{"value": b"v" * 900_000}] * 5, arrow_schema(["value"]))

    def task(writer: KafkaBatchWriter, batch: int) -> WriterCommitMessage:
        monkeypatch.setattr(writers, "batch_of_task", lambda: ("4f1e", batch))
        return pickle.loads(pickle.dumps(writer)).write(iter([rows]))

    earlier, mine, other = (KafkaBatchWriter(SinkOptions.parse(options), SCHEMA) for _ in range(3))
    task(earlier, 2)
    task(mine, 3)
    message, kept = task(mine, 3), task(other, 3)
    assert isinstance(kept, SpooledPartition)
    if is_committed:
        mine.commit([message])
    else:
        mine.abort([message, None])
    left = [f"4f1e/{path.name}" for path in (tmp_path / "4f1e").iterdir() if not path.name.startswith("receipts")]
    assert left == list(kept.files)


def test_a_name_outside_of_a_query_is_refused(kafka: FakeKafka, tmp_path: Path) -> None:
    with pytest.raises(SourceOptionError, match="is 'totals', and this frame belongs to no batch of a query"):
        write(b"a", told=(None, None), name="totals", spoolLocation=str(tmp_path))
    with pytest.raises(SourceOptionError, match="belongs to no batch of a query"):
        options = SinkOptions.parse({"kafka.bootstrap.servers": "fake:1", "topic": TOTALS, "name": "totals"})
        KafkaBatchWriter(options, SCHEMA).commit([SpooledPartition(None, None)])
    assert kafka.values(TOTALS) == []
