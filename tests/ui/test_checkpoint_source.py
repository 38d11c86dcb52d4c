"""The page of a checkpoint: it shows what the plan log knows, reads little, and goes on when the store fails."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import format, history, names, read_log, take_epoch
from kstream.checkpoint.driver_status import GONE_MS, write_status
from kstream.checkpoint.history import acknowledge, read_ledger
from kstream.checkpoint.outcomes import read_completion
from kstream.errors import CorruptRecordError, StorageError
from kstream.storage import MemoryFileStore
from kstream.testing import ManualClock
from kstream.ui.checkpoint_source import RENEWAL_MS, CheckpointSource
from kstream.ui.page_source import PageSource
from tests.harness import INTERVAL, World
from tests.stores import CountingStore, WrappedStore
from tests.ui import left_checkpoint
from tests.ui.left_checkpoint import DONE, FAILED, FINE, GIVEN_UP, LOSSY, PENDING, SKIPPED, leave, ranges_of, status

NOW = PENDING + 10 * INTERVAL


@pytest.fixture
def store() -> MemoryFileStore:
    """A checkpoint of a driver that has died, without its last status record."""
    world = World()
    leave(world)
    return world.store


def source(store: Any, last: int = 100, clock: ManualClock | None = None) -> CheckpointSource:
    return CheckpointSource(store, ranges_of, "1.2.3", last, clock or ManualClock(NOW))


def rows(page: PageSource) -> dict[int, Any]:
    return {row["batchTimeMs"]: row for row in page.batches()}


# -- batches


def test_every_batch_has_what_the_plan_log_knows_of_it(store: MemoryFileStore) -> None:
    page, log = source(store), read_log(store)
    shown = page.batches()
    planned = [plan for time, plan in sorted(log.plans.items(), reverse=True) if time != log.plans[min(log.plans)].time]
    assert [row["batchId"] for row in shown] == [plan.time.milliseconds for plan in planned], "newest first, without the starting point"
    for row, plan in zip(shown, planned, strict=True):
        ended = read_completion(store, plan.time, plan.epoch)
        counts = None if ended is None else ended.counts[0]
        assert row["inputSize"] == (plan.num_records[0] if counts is None else sum(n or 0 for n in counts))
        assert (row["status"] == "COMPLETED") == (plan.time in log.done) and (row["status"] == "PENDING") == (
            plan.time in log.pending and plan.time not in log.failures
        )
        assert row["tries"] == log.failures.get(plan.time, 0) + (plan.time in log.done)
        assert row["numSkipped"] == len(log.skipped.get(plan.time, ()))
        delays = None if ended is None else ended.delays
        known = (None, None, None) if delays is None else (delays.scheduling_ms, delays.processing_ms, delays.total_ms)
        assert (row["batchDuration"], row["schedulingDelay"], row["processingTime"], row["totalDelay"]) == (INTERVAL, *known)


def test_the_states_the_reasons_and_the_numbers_of_the_batches(store: MemoryFileStore) -> None:
    found = rows(source(store))
    fields = ("status", "inputSize", "tries", "numSkipped", "numLosses", "firstFailureReason")
    assert {time: tuple(row[field] for field in fields) for time, row in found.items()} == {
        DONE: ("COMPLETED", 4, 1, 0, 0, None),
        SKIPPED: ("COMPLETED", 3, 3, 1, 0, None),
        LOSSY: ("COMPLETED", 4, 1, 0, 1, None),
        GIVEN_UP: ("FAILED", 4, 2, 0, 0, f"[14] in batch {GIVEN_UP}"),
        FINE: ("COMPLETED", 2, 1, 0, 0, None),
        FAILED: ("FAILED", 3, 1, 0, 0, f"[20] in batch {FAILED}"),
        PENDING: ("PENDING", 2, 0, 0, 0, None),
    }
    assert found[DONE]["batchTime"] == "1970-01-01T00:16:41.000GMT"


def test_batches_of_the_history_are_shown_after_those_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    with monkeypatch.context() as patched:
        patched.setattr(history, "SEGMENT", 2)
        leave(world)
        cleaner = left_checkpoint.started(world)
        world.wait(lambda: len(world.store.list("plans")) == 2)
        cleaner.kill()
    assert sorted(time.milliseconds for time in read_log(world.store).plans) == [FAILED, PENDING]
    found = rows(source(world.store))
    assert [found[time]["status"] for time in sorted(found)] == [*["COMPLETED"] * 3, "FAILED", "COMPLETED", "FAILED", "COMPLETED"]
    assert [found[time]["inputSize"] for time in sorted(found)] == [4, 3, 4, 4, 2, 3, 2]
    assert {time for time in found if found[time]["totalDelay"] is not None} == {DONE, SKIPPED, LOSSY, FINE, PENDING}
    assert (found[SKIPPED]["numSkipped"], found[LOSSY]["numLosses"]) == (1, 1)
    assert (found[GIVEN_UP]["tries"], found[GIVEN_UP]["firstFailureReason"]) == (2, "given up: the batch has failed 2 times")


def test_a_status_and_a_limit_choose_batches(store: MemoryFileStore) -> None:
    page = source(store)
    assert [row["batchId"] for row in page.batches(frozenset({"FAILED", "PENDING"}))] == [PENDING, FAILED, GIVEN_UP]
    assert [row["batchId"] for row in page.batches(frozenset({"COMPLETED"}), 2)] == [FINE, LOSSY]


def test_a_batch_has_its_ranges_and_the_records_that_it_left_out(store: MemoryFileStore) -> None:
    page = source(store)
    batch = page.batch(SKIPPED)
    assert batch is not None and batch["skipped"] == [{"stream": 0, "record": "log-0@5"}] and batch["operations"] == []
    assert batch["inputs"] == [
        {
            "id": 0,
            "description": "stream 0 (log)",
            "numRecords": 3,
            "numRecordErrors": 0,
            "recordErrors": [],
            "errorsPolicy": None,
            "numSkipped": 1,
            "numLosses": 0,
            "numBytes": None,
            "skewed": [],
            "figures": [],
            "limitedBy": None,
            "offsets": [{"topic": "log", "partition": 0, "fromOffset": 4, "untilOffset": 8, "count": 3}],
            "blocks": [],
            "files": [],
            "facts": {},
        }
    ]
    assert page.operations(SKIPPED) == [] and page.batch(1) is None and page.operations(1) is None


def test_the_plan_of_an_unknown_connector_is_among_the_facts(store: MemoryFileStore) -> None:
    batch = CheckpointSource(store, lambda data: None, "1", 500, clock=ManualClock(NOW)).batch(DONE)
    assert batch is not None and batch["inputs"][0]["facts"] == {"from": 0, "until": 4} and batch["inputs"][0]["description"] == "stream 0"


# -- the driver


def leave_status(store: MemoryFileStore, clock: ManualClock, age_ms: int = 0, **changes: Any) -> None:
    write_status(store, status(clock.time_ms() - age_ms, **changes))


def test_a_driver_that_does_not_renew_its_status_is_dead_with_the_figures_of_its_last_record(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW + 2 * GONE_MS)
    leave_status(store, clock, 2 * GONE_MS, metrics_url="http://127.0.0.1:4051/metrics")
    for name in store.list("done"):
        with_delays(store, int(name.partition("-")[0]), [3, 40])
    page = source(store, clock=clock)
    found = page.statistics()
    assert (found["source"], found["state"], found["host"], found["pid"], found["epoch"]) == ("checkpoint", "dead", "host-1", 4711, 5)
    assert found["stateText"].startswith("dead: the driver of epoch 5 (host-1, pid 4711) has not renewed its status for 2 min")
    assert found["metricsUrl"] is None, "nobody answers there"
    assert (found["startTimeMs"], found["startTime"]) == (FINE, "1970-01-01T00:16:45.000GMT")
    assert (found["numUnfinishedBatches"], found["numFailedBatches"], found["oldestUnfinishedMs"]) == (2, 1, FAILED)
    assert found["secondsBehind"] == (NOW + 2 * GONE_MS - FAILED) / 1000, "until now, by the log"
    assert (found["numRetainedCompletedBatches"], found["avgInputRate"]) == (4, 13 / 4)
    assert (found["avgSchedulingDelay"], found["avgProcessingTime"], found["avgTotalDelay"]) == (3, 40, 43)
    assert (found["lagRecords"], found["version"], found["nowMs"]) == (17, "1.2.3", NOW + 2 * GONE_MS)
    assert found["lastError"] == {
        "timeMs": FAILED + 50,
        "text": "PoisonError: [20]",
        "batchTimeMs": FAILED,
        "operation": "0, pprint at job.py:7",
        "settled": None,
    }
    assert page.application()["name"] == "orders"


def test_a_driver_that_lives_is_as_it_says_itself(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock, failed=0, unfinished=1, oldest_unfinished=Time(NOW - 500), last_planned=Time(NOW))
    found = source(store, clock=clock).statistics()
    assert (found["state"], found["stateText"]) == ("running", "well: batches succeed, and none is late")
    assert (found["numUnfinishedBatches"], found["oldestUnfinishedMs"], found["secondsBehind"]) == (1, NOW - 500, 0.5)
    leave_status(store, clock)
    failing = source(store, clock=clock).statistics()
    assert (failing["state"], failing["stateText"], failing["numFailedBatches"]) == ("failing", "failing: 1 batch failed", 1)


@pytest.mark.parametrize(("changes", "state"), [({"ended": "gracefully"}, "ended"), ({"epoch": 4}, "fenced")])
def test_a_driver_that_ended_or_was_fenced_is_told_so(store: MemoryFileStore, changes: dict[str, Any], state: str) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock, **changes)
    found = source(store, clock=clock).statistics()
    assert found["state"] == state and state in found["stateText"]
    assert found["host"] == ("host-1" if state == "ended" else None) and found["epoch"] == 5


def test_what_only_a_living_driver_counts_is_null(store: MemoryFileStore) -> None:
    """A 0 would look like a fact: the checkpoint does not know of receivers, nor of what runs at this moment."""
    unknown = {
        *("numReceivers", "numActiveReceivers", "numInactiveReceivers", "numReceivedRecords", "numProcessedRecords"),
        *("numTotalCompletedBatches", "numActiveBatches", "numHeldBatches"),
    }
    clock = ManualClock(NOW)
    without = source(store).statistics()
    assert {name for name, value in without.items() if name.startswith("num") and value is None} == unknown | {"numWaitingBatches"}
    assert (without["host"], without["pid"]) == (None, None)
    leave_status(store, clock, waiting=2)
    living = source(store, clock=clock).statistics()
    assert {name for name, value in living.items() if name.startswith("num") and value is None} == unknown
    assert (living["host"], living["pid"], living["numWaitingBatches"]) == ("host-1", 4711, 2)


def test_without_a_status_record_the_state_is_unknown_and_what_it_would_tell_is_null(store: MemoryFileStore) -> None:
    page = source(store)
    found = page.statistics()
    assert found["state"] == "unknown" and "has left a sign of life" in found["stateText"]
    assert (found["lagRecords"], found["lastError"], found["sparkUiUrl"]) == (None, None, None)
    assert (page.lag(), page.receivers(), page.settings()) == ([], [], [])
    assert found["startTimeMs"] == FINE, "when the epoch was taken"


def with_delays(store: MemoryFileStore, time_ms: int, delays: list[int] | None) -> None:
    """Let the completion of a batch have these delays; None as an older kstream has written it."""
    with_field(store, time_ms, "delays", delays)


def with_field(store: MemoryFileStore, time_ms: int, field: str, value: Any) -> None:
    """Let the completion of a batch have a field; None for no such field."""
    (name,) = (f"done/{name}" for name in store.list("done") if name.startswith(f"{time_ms:015d}"))
    fields = format.decode("done", store.read(name), name, dict)
    fields = {key: value for key, value in fields.items() if key != field}
    store.replace(name, format.encode("done", fields if value is None else {**fields, field: value}))


def test_the_delays_are_those_of_the_completions_also_without_a_status_record(store: MemoryFileStore) -> None:
    with_delays(store, LOSSY, [7, 60])
    with_delays(store, FINE, None)
    page = source(store)
    found = rows(page)
    assert (found[LOSSY]["schedulingDelay"], found[LOSSY]["processingTime"], found[LOSSY]["totalDelay"]) == (7, 60, 67)
    assert found[FINE]["totalDelay"] is None and found[FAILED]["totalDelay"] is None
    assert 67 in [bucket["maxTotalDelay"] for bucket in page.timeline()["buckets"]]


def test_the_figures_of_states_and_outputs_are_those_of_the_completions(store: MemoryFileStore) -> None:
    output = [1, "saveToKafka at job.py:41", FINE, 60, {"transactions": 3}]
    with_field(store, FINE, "figures", {"state": {"writtenBytes": 4096}, "outputs": [output]})
    page = source(store)
    found = page.batch(FINE)
    assert found is not None and [(one["name"], one["value"]) for one in rows(page)[FINE]["figures"]] == [
        ("stateWrittenBytes", 4096),
        ("outputTransactions", 3),
    ]
    (operation,) = found["operations"]
    assert (operation["outputOpId"], operation["name"], operation["status"]) == (1, "saveToKafka at job.py:41", "COMPLETED")
    assert operation["duration"] == 60 and [one["value"] for one in operation["figures"]] == [3]
    assert rows(page)[LOSSY]["figures"] == []
    assert found["numTotalOutputOps"] == 0, "others may have had no figures"


def test_lag_and_the_failed_operation_are_those_of_the_status_record(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock)
    with_delays(store, FINE, None)
    page = source(store, clock=clock)
    found = rows(page)
    assert (found[FINE]["schedulingDelay"], found[FINE]["processingTime"], found[FINE]["totalDelay"]) == (3, 40, 43), "of an older kstream"
    assert found[FAILED]["totalDelay"] is None
    assert page.lag() == [
        {
            "stream": 0,
            "description": "Kafka[Subscribe[log]]",
            "records": 17,
            "unplanned": None,
            "seconds": None,
            "rateLimit": None,
            "topics": [],
        }
    ]
    batch = page.batch(FAILED)
    assert batch is not None and batch["inputs"][0]["description"] == "Kafka[Subscribe[log]]"
    assert (batch["numFailedOutputOps"], batch["numTotalOutputOps"]) == (1, 1)
    (operation,) = batch["operations"]
    assert page.operations(FAILED) == [operation]
    assert (operation["outputOpId"], operation["name"], operation["status"]) == (0, "pprint at job.py:7", "FAILED")
    assert (operation["error"], operation["failureReason"]) == ("PoisonError: [20]", f"[20] in batch {FAILED}")
    assert [d["text"] for d in page.decisions() if d["kind"] == "limit"] == [
        "stream 0: the newest batch is limited by backpressure, 17 records are in no batch yet"
    ]


def test_the_rate_that_a_driver_allows_is_that_of_its_status_record_while_it_lives(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock, rates={0: 700})
    assert [lag["rateLimit"] for lag in source(store, clock=clock).lag()] == [700]
    for age_ms, ended in ((0, "gracefully"), (2 * GONE_MS, None)):
        leave_status(store, clock, age_ms, rates={0: 700}, ended=ended)
        assert [lag["rateLimit"] for lag in source(store, clock=clock).lag()] == [None]


def test_an_error_that_may_hold_a_secret_is_only_named(store: MemoryFileStore) -> None:
    name = names.failed(Time(FAILED), 5, 5)
    fields = format.decode("failed", store.read(name), name, dict)
    store.replace(name, format.encode("failed", {**fields, "reason": "ValueError: password=hunter2\nin a job"}))
    page = source(store)
    hidden = "ValueError: its text may hold a secret and is left out"
    assert rows(page)[FAILED]["firstFailureReason"] == hidden
    assert page.decisions()[0]["text"] == f"the batch failed: {hidden}"


# -- timeline, decisions, ledger


def test_the_timeline_has_the_batches_that_ended_and_only_known_delays(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock)
    for name in store.list("done"):
        with_delays(store, int(name.partition("-")[0]), None)
    found = source(store, clock=clock).timeline()
    assert found["bucketMs"] == 6000
    first, second = found["buckets"]
    assert (first["timeMs"], first["numBatches"], first["numRecords"], first["inputRate"]) == (996_000, 1, 4, 4.0)
    assert first["totalDelay"] is None
    assert (second["timeMs"], second["numBatches"], second["numFailed"], second["numRecords"]) == (1_002_000, 5, 2, 16)
    assert (second["schedulingDelay"], second["processingTime"], second["totalDelay"], second["maxTotalDelay"]) == (3, 40, 43, 43)


def test_decisions_are_failures_losses_and_batches_that_were_given_up_newest_first(store: MemoryFileStore) -> None:
    found = source(store).decisions()
    assert [(d["kind"], d["batchTimeMs"], d["text"]) for d in found] == [
        ("error", FAILED, f"the batch failed: [20] in batch {FAILED}"),
        ("error", GIVEN_UP, f"the batch failed: [14] in batch {GIVEN_UP}"),
        ("error", GIVEN_UP, "the batch was given up: it has failed 2 times"),
        ("error", SKIPPED, f"the batch failed: [5] in batch {SKIPPED}"),
        ("data loss", LOSSY, "stream 0 has lost log/0 [8, 10): retention, removed too early"),
    ]
    assert [d["timeMs"] for d in found] == sorted((d["timeMs"] for d in found), reverse=True)


def test_the_ledger_has_a_sentence_for_each_stream_and_counts_what_a_person_must_be_told(store: MemoryFileStore) -> None:
    page = source(store)
    assert page.statistics()["numLedgerEntries"] == 2, "what a person has asked for is not counted"
    assert [(row["kind"], row["batchTimeMs"], row["stream"], row["text"]) for row in page.ledger()] == [
        ("given-up", GIVEN_UP, 0, "given up: the batch has failed 2 times; it was to read log/0 [12, 16)"),
        ("lost", LOSSY, 0, "log/0 [8, 10): retention, removed too early"),
        ("skipped", SKIPPED, 0, "log-0@5 left out as asked for by me"),
    ]
    for entry in read_ledger(store):
        acknowledge(store, entry, 0, "a person")
    again = source(store)
    assert again.statistics()["numLedgerEntries"] == 0 and all(row["acknowledged"] for row in again.ledger())


# -- what a look costs


def reads(store: CountingStore, *folders: str) -> list[str]:
    return [name for verb, name, _ in store.calls if verb == "read" and name.partition("/")[0] in folders]


def ask_everything(page: PageSource) -> None:
    for question in (page.statistics, page.timeline, page.batches, page.lag, page.decisions, page.ledger, page.receivers, page.settings):
        question()
    page.batch(DONE)


def test_only_the_newest_batches_are_read_and_older_ones_count_as_unfinished(store: MemoryFileStore) -> None:
    counting = CountingStore(store)
    page = source(counting, last=1)
    assert [row["batchId"] for row in page.batches()] == [PENDING]
    assert len(reads(counting, names.PLANS)) == 1 and reads(counting, names.HISTORY) == []
    found = page.statistics()
    assert (found["numUnfinishedBatches"], found["oldestUnfinishedMs"]) == (2, FAILED)


def test_however_many_look_the_store_is_asked_once_in_five_seconds(store: MemoryFileStore) -> None:
    counting, clock = CountingStore(store), ManualClock(NOW)
    page = source(counting, clock=clock)
    counting.calls.clear()
    clock.advance(RENEWAL_MS - 1)
    for _ in range(20):
        ask_everything(page)
    assert counting.calls == []
    clock.advance(1)
    for _ in range(20):
        ask_everything(page)
    listed = [name for verb, name, _ in counting.calls if verb == "list"]
    assert listed.count(names.PLANS) == 1 and len(counting.calls) < 30


def test_a_second_look_lists_names_and_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    monkeypatch.setattr(history, "SEGMENT", 2)
    leave(world)
    clock, counting = ManualClock(NOW), CountingStore(world.store)
    page = source(counting, clock=clock)
    constant = (names.PLANS, names.HISTORY, names.LOST, names.GIVEN_UP, names.DONE)
    known = set(reads(counting, *constant))
    left_checkpoint.started(world).kill()
    counting.calls.clear()
    clock.advance(RENEWAL_MS)
    assert rows(page)[PENDING]["status"] == "COMPLETED"
    assert names.done(Time(PENDING), 5) in reads(counting, names.DONE)
    assert known.isdisjoint(reads(counting, *constant)), "what was read before"


class Held(WrappedStore):
    """A store whose listings of plans wait, once they are held."""

    def __init__(self, inner: MemoryFileStore) -> None:
        super().__init__(inner)
        self.let_go = threading.Event()
        self.let_go.set()
        self.waits = threading.Event()

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if (verb, name) == ("list", names.PLANS) and not self.let_go.is_set():
            self.waits.set()
            assert self.let_go.wait(20)
        return action()


def test_while_one_looks_at_a_slow_store_the_others_get_the_last_look(store: MemoryFileStore) -> None:
    held, clock = Held(store), ManualClock(NOW)
    page = source(held, clock=clock)
    clock.advance(RENEWAL_MS)
    held.let_go.clear()
    looks = threading.Thread(target=page.statistics, daemon=True)
    looks.start()
    assert held.waits.wait(20)
    assert len(page.batches()) == 7, "this thread did not wait"
    held.let_go.set()
    looks.join(20)
    assert not looks.is_alive()


# -- a store that fails


class Failing(WrappedStore):
    """A store that is away while `away` is set."""

    away = False

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if self.away:
            raise StorageError("s3 does not answer", path=name)
        return action()


def test_while_the_store_is_away_the_last_look_is_shown_and_says_so(store: MemoryFileStore) -> None:
    failing, clock = Failing(store), ManualClock(NOW)
    leave_status(store, clock, ended="gracefully")
    page = source(failing, clock=clock)
    failing.away = True
    clock.advance(RENEWAL_MS)
    assert len(page.batches()) == 7
    found = page.statistics()
    assert found["state"] == "unknown"
    assert found["stateText"] == "the checkpoint cannot be read: s3 does not answer. The page shows it as of 1970-01-01T00:16:57.000GMT"
    failing.away = False
    assert page.statistics()["state"] == "unknown", "it is not asked again at once"
    clock.advance(RENEWAL_MS)
    assert page.statistics()["state"] == "ended"


def test_a_damaged_record_is_named_and_read_again_when_it_is_repaired(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    name = names.done(Time(LOSSY), 1)
    whole = store.read(name)
    store.replace(name, whole.replace(b"1", b"2", 1))
    with pytest.raises(CorruptRecordError, match=name):
        source(store, clock=clock)
    store.replace(name, whole)
    page = source(store, clock=clock)
    extra = names.lost(Time(FINE), 3, 5)
    store.create(extra, b"nothing")
    clock.advance(RENEWAL_MS)
    assert page.statistics()["state"] == "unknown" and extra in page.statistics()["stateText"]
    store.delete(extra)
    clock.advance(RENEWAL_MS)
    assert "cannot be read" not in page.statistics()["stateText"]


# -- clocks


def test_a_driver_whose_renewals_are_seen_lives_although_the_clock_here_is_hours_ahead(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW + 3_600_000)
    write_status(store, status(NOW, last_planned=Time(NOW), failed=0, oldest_unfinished=None, unfinished=0))
    page = source(store, clock=clock)
    assert page.statistics()["state"] == "dead", "one look cannot tell"
    for renewal in (20_000, 40_000):
        clock.advance(20_000)
        write_status(store, status(NOW + renewal, last_planned=Time(NOW + renewal), failed=0, oldest_unfinished=None, unfinished=0))
        found = page.statistics()
        assert found["state"] == "running" and "the clock of this machine is 59 min" in found["stateText"]
    clock.advance(GONE_MS + 40_000)
    assert page.statistics()["state"] == "dead", "its renewals have ended"


def test_a_driver_that_starts_later_is_shown_with_its_epoch(store: MemoryFileStore) -> None:
    clock = ManualClock(NOW)
    leave_status(store, clock)
    page = source(store, clock=clock)
    take_epoch(store, NOW + 1)
    clock.advance(RENEWAL_MS)
    found = page.statistics()
    assert (found["state"], found["epoch"], found["startTimeMs"], found["host"]) == ("fenced", 6, NOW + 1, None)
