"""What a task has of a batch until it is committed."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from kstream_kafka.errors import KafkaError, SourceOptionError
from kstream_kafka.structured.spools import SpooledPartition, query_of, remove_spools, spooled

from kstream.storage import StorePlace

VALUES = [b"%03d" % i * 100 for i in range(100)]


@pytest.fixture
def place(tmp_path: Path) -> StorePlace:
    return StorePlace(str(tmp_path / "spools"), exclusive=False)


def batch(*values: bytes) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values, pa.binary())], names=["value"])


def values_of(spool: SpooledPartition, place: StorePlace | None = None) -> list[bytes]:
    return [value for part in spool.read(place) for value in part.column(0).to_pylist()]


def large(place: StorePlace | None, query: str | None = "q", number: int | None = 7) -> SpooledPartition:
    """A spool of 30 kB: two files of about 12 kB, and the rest in a third one or in the message."""
    return spooled([batch(value) for value in VALUES], (query, number), place, message_bytes=4_000, file_bytes=12_000)


def test_a_small_spool_goes_to_the_commit_in_the_message_and_has_all_records_in_order(place: StorePlace) -> None:
    spool = pickle.loads(pickle.dumps(spooled([batch(b"1", b"2"), batch(), batch(b"3")], ("q", 7), place)))
    assert values_of(spool) == [b"1", b"2", b"3"] and spool.files == ()
    assert (spool.query, spool.batch, spool.num_records) == ("q", 7, 3) and spool.num_bytes >= 3


def test_a_task_without_rows_has_an_empty_spool(place: StorePlace) -> None:
    for batches in ([], [batch()]):
        spool = spooled(batches, ("q", 7), place)
        assert spool.num_records == 0 and spool.data == b"" and values_of(spool) == []


def test_a_large_spool_goes_into_files_and_has_all_records_in_order(place: StorePlace) -> None:
    spool = pickle.loads(pickle.dumps(large(place)))
    assert len(spool.files) >= 2 and len(spool.data) < 4_500 and spool.num_records == 100
    assert all(name.startswith("q/7-") for name in spool.files)
    assert values_of(spool, place) == VALUES


def test_a_file_is_a_stream_of_arrow_and_no_code_that_a_reader_would_run(place: StorePlace) -> None:
    spool = large(place)
    with pa.ipc.open_stream(place.open().read(spool.files[0])) as reader:
        assert reader.schema.names == ["value"]
    place.write(spool.files[1] + "x", pickle.dumps(spool))
    with pytest.raises(pa.ArrowInvalid):
        values_of(SpooledPartition("q", 7, files=(spool.files[1] + "x",)), place)


def test_a_large_spool_without_a_place_says_what_to_do() -> None:
    with pytest.raises(KafkaError, match="spoolLocation"):
        large(None)


def test_a_task_that_fails_leaves_no_file(place: StorePlace) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield batch(*VALUES)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        spooled(failing(), ("q", 7), place, message_bytes=4_000, file_bytes=12_000)
    assert place.open().list("q") == []


def test_a_place_that_the_driver_does_not_share_is_one_clear_error(place: StorePlace) -> None:
    spool = large(place)
    remove_spools(place, [spool], 7)
    with pytest.raises(SourceOptionError, match="that driver and executors share"):
        values_of(spool, place)


def test_a_commit_removes_its_spools_and_what_was_left_by_earlier_batches_and_tries_but_nothing_else(place: StorePlace) -> None:
    left = [large(place, number=6), large(place, number=7)]
    kept = [large(place, number=8), large(place, query="p", number=7), large(place, query=None, number=None)]
    place.write("q/notes", b"")
    remove_spools(place, [large(place, number=7)], 7)
    assert not any(place.open().exists(name) for spool in left for name in spool.files)
    assert all(place.open().exists(name) for spool in kept for name in [*spool.files, "q/notes"])


def test_the_first_commit_of_a_process_looks_for_what_was_left_though_its_spools_are_small(place: StorePlace) -> None:
    large(place, number=6)
    for _ in range(2):
        remove_spools(place, [SpooledPartition("q", 7)], 7)
        assert place.open().list("q") == []


def test_the_spools_of_a_frame_are_removed_by_name(place: StorePlace) -> None:
    other, mine = large(place, None, None), large(place, None, None)
    remove_spools(place, [mine], None)
    assert sorted(place.open().list("frames")) == sorted(name.partition("/")[2] for name in other.files)


def test_the_query_of_a_batch_is_the_one_that_all_its_tasks_were_told_of() -> None:
    assert query_of([SpooledPartition("q", 7), SpooledPartition("q", 7)], 7) == "q"
    for told in ([("q", 6)], [(None, None)], [("q", 7), ("p", 7)], [("q", 7), ("q", 6)]):
        with pytest.raises(KafkaError, match="batch 7 cannot be written exactly once"):
            query_of([SpooledPartition(*one) for one in told], 7)
