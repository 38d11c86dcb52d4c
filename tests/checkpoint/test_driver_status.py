"""The status record of a driver: its bytes, and what follows from it for the people who ask."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace

import pytest

from kstream.batch import SlowestOutput
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import (
    BatchFigures,
    DriverStatus,
    LastError,
    Outage,
    StreamLag,
    drop_statuses_before,
    read_status,
    status_of,
    write_status,
)
from kstream.errors import CorruptRecordError
from kstream.storage import MemoryFileStore

NEW = DriverStatus("orders", 3, "host-1", 4711, 1_700_000_000_123, 1_700_000_060_456, Duration(1000))
FULL = replace(
    NEW,
    last_planned=Time(1_700_000_060_000),
    unfinished=4,
    oldest_unfinished=Time(1_700_000_050_000),
    failed=1,
    waiting=2,
    recent=(BatchFigures(Time(1_700_000_058_000), 10, 2, 500, True), BatchFigures(Time(1_700_000_059_000), 30, 3, 300)),
    lag=(StreamLag(0, "Kafka[Subscribe[orders]]", 17),),
    last_error=LastError(1_700_000_058_500, "ValueError: boom", Time(1_700_000_058_000), "0, pprint at job.py:7"),
    ended="gracefully",
)
FULL_BYTES = (
    b'{"application":"orders","checksum":"5072d8c57e0884fbad0de8a67cc5fe34d2876a9333633598d695ea9bd9d470e6","ended":'
    b'"gracefully","epoch":3,"failed":1,"host":"host-1","interval":1000,"kind":"status","lag":[{"description":"Kafka'
    b'[Subscribe[orders]]","records":17,"stream":0}],"last_error":{"at":1700000058500,"batch":1700000058000,"operati'
    b'on":"0, pprint at job.py:7","text":"ValueError: boom"},"last_planned":1700000060000,"oldest_unfinished":170000'
    b'0050000,"pid":4711,"recent":[{"failed":true,"processing":500,"records":10,"scheduling_delay":2,"time":17000000'
    b'58000},{"failed":false,"processing":300,"records":30,"scheduling_delay":3,"time":1700000059000}],"started":170'
    b'0000000123,"unfinished":4,"version":1,"waiting":2,"written":1700000060456}'
)
NEW_BYTES = (
    b'{"application":"orders","checksum":"f11b119ab78b7b06f413c23f5224e7e0680a8f730451b69caaca6e4c3114d8cf","ended":'
    b'null,"epoch":3,"failed":0,"host":"host-1","interval":1000,"kind":"status","lag":[],"last_error":null,"last_pla'
    b'nned":null,"oldest_unfinished":null,"pid":4711,"recent":[],"started":1700000000123,"unfinished":0,"version":1,'
    b'"waiting":0,"written":1700000060456}'
)


def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


@pytest.mark.parametrize(("status", "stored"), [(NEW, NEW_BYTES), (FULL, FULL_BYTES)], ids=["new", "full"])
def test_the_bytes_and_the_name_of_a_status(status: DriverStatus, stored: bytes) -> None:
    files = store()
    write_status(files, status)
    assert files.list("status") == ["000003"]
    assert files.read("status/000003") == stored
    assert read_status(files) == status


def test_the_error_of_a_state_that_cannot_be_written_is_stored_only_while_there_is_one() -> None:
    files = store()
    write_status(files, replace(NEW, state_error="OSError: no space left"))
    assert b'"state_error":"OSError: no space left"' in files.read("status/000003")
    assert read_status(files) == replace(NEW, state_error="OSError: no space left")
    write_status(files, NEW)
    assert b"state_error" not in files.read("status/000003")


def test_an_outage_is_stored_only_while_it_lasts() -> None:
    files = store()
    write_status(files, replace(NEW, outage=Outage(1000, 601_000, "NoBrokersError: h:1", Time(2000))))
    assert b'"outage":{"first":2000,"since":1000,"text":"NoBrokersError: h:1","until":601000}' in files.read("status/000003")
    assert read_status(files) == replace(NEW, outage=Outage(1000, 601_000, "NoBrokersError: h:1", Time(2000)))
    write_status(files, replace(NEW, outage=Outage(1000, 601_000, "StorageError: no answer")))
    assert b'"outage":{"first":null,"since":1000,' in files.read("status/000003")
    write_status(files, NEW)
    assert b"outage" not in files.read("status/000003")


def test_an_error_is_settled_by_its_batch_or_if_it_is_of_none_by_a_later_one() -> None:
    batches = (BatchFigures(Time(1000), 1, 0, 5, failed=True), BatchFigures(Time(2000), 1, 0, 5))
    of_a_batch, of_none = LastError(1500, "boom", Time(2000), "0, pprint"), LastError(1500, "not planned")
    assert NEW.error_settled is None
    assert replace(NEW, recent=batches, last_error=of_a_batch).error_settled == "the batch has succeeded since"
    assert replace(NEW, recent=batches, last_error=replace(of_a_batch, batch=Time(1000))).error_settled is None
    assert replace(NEW, recent=batches, last_error=of_none).error_settled == "a later batch has succeeded since"
    assert replace(NEW, recent=batches, last_error=replace(of_none, at_ms=2000)).error_settled is None
    assert replace(NEW, recent=batches[:1], last_error=replace(of_none, at_ms=0)).error_settled is None


def test_record_errors_the_addresses_of_metrics_and_page_and_the_process_are_stored_only_if_there_are_any() -> None:
    files = store()
    metrics, page = "http://127.0.0.1:9404/metrics", "http://127.0.0.1:4050/"
    recent = (BatchFigures(Time(1000), 10, 2, 500, record_errors=3),)
    status = replace(NEW, recent=recent, metrics_url=metrics, ui_url=page, process="a-boot pid:[1] 7")
    write_status(files, status)
    stored = files.read("status/000003")
    assert b'"record_errors":3' in stored and b'"metrics":"http://127.0.0.1:9404/metrics"' in stored
    assert b'"page":"http://127.0.0.1:4050/"' in stored and b'"process":"a-boot pid:[1] 7"' in stored
    assert read_status(files) == status


def test_the_slowest_output_of_a_batch_is_stored_if_it_is_known() -> None:
    files = store()
    slow = replace(NEW, recent=(BatchFigures(Time(1000), 10, 2, 8200, slowest=SlowestOutput("foreachRDD at job.py:41", 7900)),))
    write_status(files, slow)
    assert b'"scheduling_delay":2,"slowest":["foreachRDD at job.py:41",7900],"time":1000' in files.read("status/000003")
    assert read_status(files) == slow
    newer = files.read("status/000003").replace(b'41",7900]', b'41",7900,"more"]')
    fields = {key: value for key, value in json.loads(newer).items() if key not in ("checksum", "kind", "version")}
    assert status_of(fields) == slow, "a newer kstream may store more of it"


def test_a_supervisor_is_stored_only_if_there_is_one() -> None:
    files = store()
    write_status(files, replace(NEW, supervised=True))
    assert b'"supervised":true' in files.read("status/000003")
    assert read_status(files) == replace(NEW, supervised=True)
    write_status(files, NEW)
    assert b"supervised" not in files.read("status/000003")


def test_the_limit_of_a_lag_is_stored_only_if_there_is_one() -> None:
    files = store()
    limited = replace(NEW, lag=(StreamLag(0, "Kafka[t]", 17, "backpressure"), StreamLag(1, "Kafka[u]", 0)))
    write_status(files, limited)
    assert b'{"description":"Kafka[t]","limited_by":"backpressure","records":17,"stream":0}' in files.read("status/000003")
    assert read_status(files) == limited


def test_what_is_unplanned_of_a_lag_and_when_it_was_measured_are_stored_and_an_older_record_lacks_them() -> None:
    files = store()
    known = replace(NEW, lag=(StreamLag(0, "Kafka[t]", 17, unplanned=5, at_ms=1000),))
    write_status(files, known)
    assert b'{"at":1000,"description":"Kafka[t]","records":17,"stream":0,"unplanned":5}' in files.read("status/000003")
    assert read_status(files) == known


def test_the_rates_of_back_pressure_are_stored_only_if_there_are_any() -> None:
    files = store()
    limited = replace(NEW, rates={0: 700, 12: 80})
    write_status(files, limited)
    assert b'"rates":{"0":700,"12":80}' in files.read("status/000003")
    assert read_status(files) == limited
    write_status(files, NEW)
    assert b"rates" not in files.read("status/000003")


def test_the_record_of_the_highest_epoch_counts_and_those_before_it_can_be_removed() -> None:
    files = store()
    assert read_status(files) is None
    for epoch in (2, 3, 10):
        write_status(files, replace(NEW, epoch=epoch))
    assert read_status(files) == replace(NEW, epoch=10)
    drop_statuses_before(files, 10)
    assert files.list("status") == ["000010"]


def test_a_damaged_record_is_an_error_that_names_it() -> None:
    files = store()
    write_status(files, NEW)
    files.replace("status/000003", files.read("status/000003").replace(b"4711", b"4712"))
    with pytest.raises(CorruptRecordError, match="status/000003"):
        read_status(files)


def test_a_driver_is_behind_by_the_age_of_its_oldest_batch_that_has_not_succeeded() -> None:
    now = 1_700_000_060_900
    assert FULL.seconds_behind(now) == 10.9 and FULL.batches_behind(now) == 4
    idle = replace(FULL, unfinished=0, oldest_unfinished=None, failed=0, waiting=0)
    assert idle.seconds_behind(now) == 0 and idle.batches_behind(now) == 0, "the next batch is not due yet"
    later = now + 60_000
    assert idle.seconds_behind(later) == 59.9 and idle.batches_behind(later) == 60, "60 batches were due and not planned"
    assert NEW.seconds_behind(later) == 0 and NEW.batches_behind(later) == 0, "nothing is due before the first plan"


def test_the_rates_are_those_of_the_last_batches() -> None:
    assert FULL.input_rate == 20 and FULL.processing_rate == 50
    assert NEW.input_rate is None and NEW.processing_rate is None
    assert replace(NEW, recent=(BatchFigures(Time(1000), 5, -1, -1),)).processing_rate is None
