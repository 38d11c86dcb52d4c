"""How fast the last batches were: what a driver that starts reads of completions and of the history."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from dataclasses import replace

import pytest

from kstream.batch import BatchDelays, BatchInfo, BatchOutcome, BatchPlan, InputOutcome
from kstream.batch.retention import RequiredBatches
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, history, read_log
from kstream.checkpoint.binding import Names, rebound
from kstream.checkpoint.measured import MeasuredBatches
from kstream.storage import FileStore, MemoryFileStore
from tests.stores import CountingStore, FaultyStore

ONE: Names = {0: None}


@pytest.fixture
def store() -> MemoryFileStore:
    return MemoryFileStore(f"memory://{uuid.uuid4().hex}")


def plan(log: PlanLog, number: int, records: dict[int, int], names: dict[int, str] | None = None, floor: int = 1) -> None:
    """A batch whose driver knows all plans before it, and needs those from `floor` on."""
    time, inputs = Time(number * 1000), {stream: {"records": count} for stream, count in records.items()}
    after = Time(time.milliseconds - 1000)
    log.write_plan(BatchPlan(time, log.epoch, f"n{number}", inputs, records, Time(floor * 1000), after, names=names or {}))


def complete(log: PlanLog, number: int, records: dict[int, int], tries: int = 1, epoch: int | None = None) -> None:
    """It began 40 ms after its submission, and took 10 ms for a record of 100 bytes."""
    outcomes = {stream: InputOutcome([count], num_bytes=100 * count) for stream, count in records.items()}
    delays = BatchDelays(40, 10 * sum(records.values()), tries)
    log.complete(Time(number * 1000), log.epoch if epoch is None else epoch, BatchOutcome(number * 1000 + 500, outcomes, delays=delays))


def run(log: PlanLog, number: int, records: dict[int, int], names: dict[int, str] | None = None, tries: int = 1) -> None:
    plan(log, number, records, names)
    complete(log, number, records, tries)


def measured(store: FileStore, most: int = 10, now: Names = ONE, stream: int = 0) -> list[BatchInfo]:
    return MeasuredBatches(store, rebound(read_log(store), now), most).of(stream)


def shown(batches: list[BatchInfo]) -> list[tuple[int, int]]:
    """The number of each batch, and its records of the stream."""
    return [(info.batch_time.milliseconds // 1000, info.numRecords()) for info in batches]


def test_the_figures_are_those_of_the_newest_batches_with_records_one_read_for_each(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    for number, records in enumerate((7, 8, 0, 9, 0, 0), 1):
        run(log, number, {0: records})
    counting, contents = CountingStore(store), rebound(read_log(store), ONE)
    found = MeasuredBatches(counting, contents, 2).of(0)
    assert [verb for verb, _, _ in counting.take()] == ["read", "read"]
    assert shown(found) == [(2, 8), (4, 9)]
    assert [(info.schedulingDelay(), info.processingDelay(), info.inputs[0].num_bytes) for info in found] == [(40, 80, 800), (40, 90, 900)]


def test_a_batch_that_was_tried_again_shows_no_speed_and_an_older_one_takes_its_place(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    for number in range(1, 5):
        run(log, number, {0: number}, tries=3 if number > 2 else 1)
    assert shown(measured(store, most=2)) == [(1, 1), (2, 2)]


def test_where_no_batch_shows_a_speed_the_reads_have_an_end(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    for number in range(1, 20):
        run(log, number, {0: number}, tries=2)
    counting, contents = CountingStore(store), rebound(read_log(store), ONE)
    assert MeasuredBatches(counting, contents, 2).of(0) == []
    assert [verb for verb, _, _ in counting.take()] == 6 * ["read"] + ["list"]


def test_a_quiet_stream_beside_a_busy_one_has_its_own_batches(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    run(log, 1, {0: 3, 1: 5})
    for number in range(2, 8):
        run(log, number, {0: 7, 1: 0})
    assert shown(measured(store, 2, {0: None, 1: None}, stream=1)) == [(1, 5)]
    assert shown(measured(store, 2, {0: None, 1: None}, stream=0)) == [(6, 7), (7, 7)]


def test_what_one_stream_has_read_another_does_not_read_again(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    for number in range(1, 4):
        run(log, number, {0: number, 1: number})
    counting, contents = CountingStore(store), rebound(read_log(store), {0: None, 1: None})
    found = MeasuredBatches(counting, contents, 10)
    assert shown(found.of(0)) == shown(found.of(1)) == [(1, 1), (2, 2), (3, 3)]
    assert [verb for verb, _, _ in counting.take()] == 3 * ["read"] + ["list"]


def test_at_a_first_start_the_store_is_not_asked(store: MemoryFileStore) -> None:
    counting, contents = CountingStore(store), rebound(read_log(store), ONE)
    assert MeasuredBatches(counting, contents, 10).of(0) == [] and counting.take() == []


def test_a_stream_is_found_under_its_number_of_now(store: MemoryFileStore) -> None:
    run(PlanLog(store, 1), 1, {0: 7, 1: 5}, {0: "orders", 1: "clicks"})
    now = {0: "clicks", 1: "new", 2: "orders"}
    assert [[(info.numRecords(), info.inputs[n].num_bytes) for info in measured(store, now=now, stream=n)] for n in (0, 1, 2)] == [
        [(5, 500)], [], [(7, 700)],
    ]  # fmt: skip


def test_bytes_have_the_numbers_of_the_driver_that_completed_the_batch(store: MemoryFileStore) -> None:
    """The first driver planned it, and the second ran it and had its streams in another order."""
    now = {0: "orders", 1: "clicks"}

    def of_orders() -> tuple[int, int | None]:
        (info,) = measured(store, now=now)
        return info.numRecords(), info.inputs[0].num_bytes

    plan(PlanLog(store, 1), 1, {0: 7, 1: 5}, {0: "orders", 1: "clicks"})
    second = PlanLog(store, 2)
    complete(second, 1, {0: 5, 1: 7}, epoch=1)
    assert of_orders() == (7, None), "no plan tells the numbers of the second driver"
    plan(second, 2, {0: 1, 1: 1}, {0: "clicks", 1: "orders"})
    assert of_orders() == (7, 700)


def test_batches_of_a_former_interval_are_left_out(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    run(log, 1, {0: 7})
    run(log, 2, {0: 8})
    contents = replace(rebound(read_log(store), ONE), meta=Meta(Time(0), Duration(1000), after=Time(1000)))
    assert shown(MeasuredBatches(store, contents, 10).of(0)) == [(2, 8)]


def with_history(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches 1 to 6 are in two segments of the history, the others in the log."""
    monkeypatch.setattr(history, "SEGMENT", 3)
    log = PlanLog(store, 1, keep_history=Duration(1_000_000))
    for number in range(1, 9):
        plan(log, number, {0: number}, floor=number)
        complete(log, number, {0: number}, tries=2 if number == 6 else 1)
    log.clean(RequiredBatches(Time(7000)))
    assert sorted(at.milliseconds for at in read_log(store).plans) == [7000, 8000] and len(store.list("history")) == 2


def test_what_is_lacking_comes_from_the_newest_segment_of_the_history(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with_history(store, monkeypatch)
    found = measured(store, most=3)
    assert shown(found) == [(5, 5), (7, 7), (8, 8)], "batch 6 was tried again"
    assert (found[0].schedulingDelay(), found[0].processingDelay(), found[0].inputs[0].num_bytes) == (40, 50, None)
    assert shown(measured(store)) == [(4, 4), (5, 5), (7, 7), (8, 8)], "no older segment is read"


def test_a_tombstone_as_the_newest_plan_changes_nothing(store: MemoryFileStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with_history(store, monkeypatch)
    PlanLog(store, 2).write_plan(BatchPlan(Time(9000), 2, "n9", {}, {}, Time(7000), Time(8000), void=True))
    assert shown(measured(store, most=3)) == [(5, 5), (7, 7), (8, 8)]


def damage(store: MemoryFileStore, name: str) -> None:
    store.replace(name, b"{}")


def as_of_a_newer_kstream(store: MemoryFileStore, name: str) -> None:
    store.replace(name, b'{"kind":"done","version":99}')


@pytest.mark.parametrize("change", [damage, as_of_a_newer_kstream])
def test_a_completion_that_cannot_be_read_is_a_warning_and_the_newer_ones_count(
    store: MemoryFileStore, change: Callable[[MemoryFileStore, str], None], caplog: pytest.LogCaptureFixture
) -> None:
    log = PlanLog(store, 1)
    for number in (1, 2):
        run(log, number, {0: number})
    change(store, f"done/{min(store.list('done'))}")
    caplog.set_level(logging.WARNING)
    assert shown(measured(store)) == [(2, 2)]
    assert "the speed of the last batches of stream 0 is not fully known" in caplog.text


def test_a_store_that_fails_is_a_warning(store: MemoryFileStore, caplog: pytest.LogCaptureFixture) -> None:
    run(PlanLog(store, 1), 1, {0: 7})
    contents, failing = rebound(read_log(store), ONE), FaultyStore(store)
    failing.fault = lambda verb, _name: "before" if verb == "read" else None
    caplog.set_level(logging.WARNING)
    assert MeasuredBatches(failing, contents, 10).of(0) == []
    assert "the speed of the last batches of stream 0 is not fully known" in caplog.text


def test_a_completion_that_was_removed_meanwhile_is_passed_over(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    for number in (1, 2):
        run(log, number, {0: number})
    contents = rebound(read_log(store), ONE)
    store.delete(f"done/{max(store.list('done'))}")
    assert shown(MeasuredBatches(store, contents, 10).of(0)) == [(1, 1)]


def test_a_completion_without_delays_shows_nothing(store: MemoryFileStore) -> None:
    log = PlanLog(store, 1)
    plan(log, 1, {0: 7})
    log.complete(Time(1000), 1, BatchOutcome(1500))
    assert measured(store) == []
