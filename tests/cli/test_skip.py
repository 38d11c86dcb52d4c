"""`kstream skip`, and what other commands show of it, on checkpoints written as a driver writes them. No broker is asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kstream_kafka.planning.plan import KafkaPlan

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome, SkippedRecord, SucceededOutput
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.reader import write_meta
from kstream.cli import main, skip
from kstream.offsets.offset_range import OffsetRange
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000
DONE, FAILED, RUNNING = (Time(ZERO + n * 1000) for n in (1, 2, 3))


def encoded(*ranges: tuple[str, int, int, int]) -> dict[str, Any]:
    unknown = [None] * len(ranges)
    return KafkaPlan([OffsetRange(*r) for r in ranges], unknown, unknown).encode()


@pytest.fixture
def log(tmp_path: Path) -> PlanLog:
    """A batch that has ended, one that has failed and one that runs, of a stream of two partitions."""
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    log = PlanLog(store, take_epoch(store, ZERO))
    for number, time in enumerate((DONE, FAILED, RUNNING)):
        a, b = number * 10, number * 10 + 10
        log.write_plan(BatchPlan(time, 1, "n", {0: encoded(("orders-eu", 0, a, b), ("orders-eu", 1, a, b))}, {0: 20}, DONE))
    log.complete(DONE, 1, BatchOutcome(ZERO))
    log.fail(FAILED, 1, ZERO, "no JSON")
    return log


def kstream(*words: object) -> Result:
    return CliRunner().invoke(main, list(map(str, words)), env={"COLUMNS": "300"})


def refused(result: Result) -> str:
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr.removesuffix("\n")


def skipped(folder: Path) -> dict[int, list[SkippedRecord]]:
    return {time.milliseconds: list(records) for time, records in read_log(LocalFileStore(folder)).skipped.items()}


@pytest.mark.parametrize(("place", "time"), [("orders-eu-0@12", FAILED), ("orders-eu/1@29", RUNNING)])
def test_a_record_of_a_pending_batch_is_left_out_from_its_next_try_on(log: PlanLog, tmp_path: Path, place: str, time: Time) -> None:
    result = kstream("skip", tmp_path, place, "--reason", "no JSON")
    assert (result.exit_code, result.stderr) == (0, "")
    partition, _, offset = place.replace("/", "-").removeprefix("orders-eu-").partition("@")
    assert result.stdout == f"batch {time} leaves out orders-eu-{partition}@{offset} from its next try on\n"
    assert skipped(tmp_path) == {time.milliseconds: [SkippedRecord(0, "orders-eu", int(partition), int(offset))]}
    log.read_skips([time])
    assert log.skips_of(time, 1) == {0: skipped(tmp_path)[time.milliseconds]}


def test_a_second_call_changes_nothing(log: PlanLog, tmp_path: Path) -> None:
    kstream("skip", tmp_path, "orders-eu-0@12", "--reason", "first")
    again = kstream("skip", tmp_path, "orders-eu-0@12", "--reason", "second")
    assert again.exit_code == 0 and "(asked for before, by " in again.stdout
    assert len(list((tmp_path / "skipped").iterdir())) == 1
    assert "first" in kstream("ledger", tmp_path).stdout


def test_outputs_that_have_the_record_already_are_named(log: PlanLog, tmp_path: Path) -> None:
    time = Time(ZERO + 4000)
    log.write_plan(BatchPlan(time, 1, "n", {0: encoded(("orders-eu", 0, 30, 40))}, {0: 10}, DONE, outputs=("sums", "raw")))
    succeeded = [SucceededOutput(1, "foreachRDD at job.py:47", ("sums",)), SucceededOutput(2, "foreachRDD at job.py:50")]
    log.fail(time, 1, ZERO, "no JSON", succeeded=succeeded)
    result = kstream("skip", tmp_path, "orders-eu-0@32")
    assert result.exit_code == 0 and result.stderr.splitlines() == [
        "warning: output 'sums', foreachRDD at job.py:47, already has this record and keeps it",
        "warning: output operation 2, foreachRDD at job.py:50, already has this record; only a restart runs it again",
        "warning: output 'raw' keeps this record if a try of the batch has written it: it writes no partition twice, under any driver",
    ]


def test_the_ledger_names_the_outputs_that_have_the_record(log: PlanLog, tmp_path: Path) -> None:
    kstream("skip", tmp_path, "orders-eu-0@12")
    left = SkippedRecord(0, "orders-eu", 0, 12, (1,), ("output 'sums', foreachRDD at job.py:47",))
    log.complete(FAILED, 1, BatchOutcome(ZERO, {0: InputOutcome([9, 10], skipped=[left])}))
    assert "(these had it before and keep it: output 'sums', foreachRDD at job.py:47)" in kstream("ledger", tmp_path).stdout


def test_an_offset_in_no_pending_batch_is_refused_with_the_fact(log: PlanLog, tmp_path: Path) -> None:
    said = {
        "orders-eu-0@5": f"orders-eu-0@5 lies in batch {DONE}, which has ended: nothing is left to skip",
        "orders-eu-0@30": "orders-eu-0@30 lies in no batch yet: the next offset that a batch reads is 30",
        "clicks-0@5": f"clicks-0@5 lies in no batch: no stream of {tmp_path} reads this partition",
        "orders-eu-7@5": f"orders-eu-7@5 lies in no batch: no stream of {tmp_path} reads this partition",
    }
    for place, why in said.items():
        assert refused(kstream("skip", tmp_path, place)) == f"kstream: {why}"
    assert "names no record" in refused(kstream("skip", tmp_path, "orders"))
    assert "there is no checkpoint in" in refused(kstream("skip", tmp_path / "nothing", "orders-0@1"))
    assert not (tmp_path / "skipped").exists() or not list((tmp_path / "skipped").iterdir())


def test_an_offset_of_a_batch_that_was_given_up_or_cleaned_up_is_refused(log: PlanLog, tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    log.give_up(read_log(store).plans[FAILED], ZERO, 4)
    assert f"lies in batch {FAILED}, which was given up" in refused(kstream("skip", tmp_path, "orders-eu-0@12"))
    for folder in ("plans", "done"):
        store.delete(f"{folder}/{DONE.milliseconds:015d}-000001")
    assert "lies in no batch whose plan is kept" in refused(kstream("skip", tmp_path, "orders-eu-0@5"))


def test_a_batch_that_ends_with_the_record_meanwhile_is_said(log: PlanLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = skip.ask_to_skip
    monkeypatch.setattr(skip, "ask_to_skip", lambda store, request: (log.complete(FAILED, 1, BatchOutcome(ZERO)), ask(store, request))[1])
    said = refused(kstream("skip", tmp_path, "orders-eu-0@12"))
    assert said == f"kstream: batch {FAILED} ended with orders-eu-0@12 before this request: nothing is left out"
    assert skipped(tmp_path) == {FAILED.milliseconds: []}
    assert "not left out: the batch has ended with it" in kstream("ledger", tmp_path).stdout


def test_two_streams_that_read_the_offset_must_be_told_apart(tmp_path: Path) -> None:
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    log = PlanLog(store, take_epoch(store, ZERO))
    data = encoded(("orders", 0, 0, 10))
    log.write_plan(BatchPlan(DONE, 1, "n", {0: data, 1: {"files": ["a"]}, 2: data}, {}, DONE))
    assert "streams 0, 2 of" in refused(kstream("skip", tmp_path, "orders-0@3"))
    assert kstream("skip", tmp_path, "orders-0@3", "--stream", 2).exit_code == 0
    assert skipped(tmp_path) == {DONE.milliseconds: [SkippedRecord(2, "orders", 0, 3)]}
    said = refused(kstream("skip", tmp_path, "orders-0@3", "--stream", 1))
    assert said == f"kstream: orders-0@3 lies in no batch: stream 1 of {tmp_path} does not read this partition"


def test_after_the_end_show_history_and_ledger_name_the_record_and_no_alarm_goes_off(log: PlanLog, tmp_path: Path) -> None:
    kstream("skip", tmp_path, "orders-eu-0@12", "--reason", "no JSON")
    assert "to be left out; the batch has not ended" in kstream("ledger", tmp_path).stdout
    shown = json.loads(kstream("checkpoint", "show", tmp_path, "--json").stdout)["plans"][1]
    record = {"stream": 0, "topic": "orders-eu", "partition": 0, "offset": 12}
    assert (shown["state"], shown["skipped"]) == ("failed 1", [record])
    left = SkippedRecord(0, "orders-eu", 0, 12, read_by=(1,))
    log.complete(FAILED, 1, BatchOutcome(ZERO, {0: InputOutcome([9, 10], skipped=[left])}))
    ledger = kstream("ledger", tmp_path, "--json", "--check")
    assert ledger.exit_code == 0, "a person has asked for it, so no person must look"
    (row,) = json.loads(ledger.stdout)["lost"]
    assert (row["cause"], row["skip"], row["from"], row["until"]) == ("skip", "skipped", 12, 13)
    assert (
        row["detail"].startswith("left out as asked for by ")
        and "no JSON (output operations that had succeeded with it: 1)" in row["detail"]
    )
    for words in (("checkpoint", "show"), ("history",)):
        assert "without orders-eu-0@12" in kstream(*words, tmp_path).stdout
    (of_history,) = [b for b in json.loads(kstream("history", tmp_path, "--json").stdout)["batches"] if "skipped" in b]
    assert of_history["skipped"] == [{**record, "read_by": [1]}] and of_history["streams"][0]["read"] == 19
