"""The living driver's source: settings without secrets, allocations, the ledger from the store, the Spark jobs of a batch."""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from kstream.batch import (
    BatchDelays,
    BatchOutcome,
    BatchPlan,
    InputFigures,
    InputOutcome,
    OutcomeFigures,
    OutputFigures,
    OutputOperationInfo,
    PendingBatches,
    ReceiverInfo,
    StreamInputInfo,
)
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog
from kstream.checkpoint.driver_status import DriverStatus
from kstream.checkpoint.history import LedgerEntry
from kstream.conf import Settings
from kstream.context.settings_table import settings_table
from kstream.direct.direct_input_dstream import metadata_of
from kstream.errors import StorageError
from kstream.listener import (
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationStarted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
)
from kstream.monitoring.batch_history import BatchHistory
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.offsets.offset_range import OffsetRange
from kstream.scheduler.executor_allocation_policy import AllocationDecision, Scaling
from kstream.scheduler.input_lags import InputLags
from kstream.storage import MemoryFileStore
from kstream.testing import ManualClock
from kstream.ui import driver_ledger
from kstream.ui.decisions import Decisions
from kstream.ui.driver_ledger import COUNT_FRESH_MS, FRESH_MS, DriverLedger
from kstream.ui.driver_source import DriverSource, SparkLinks
from kstream.ui.stored_batches import StoredBatches
from tests.skipping import TOPIC
from tests.stores import CountingStore, FaultyStore
from tests.ui.infos import info_of, run_through, source_of, submitted_of
from tests.ui.left_checkpoint import ranges_of

STORE = MemoryFileStore("memory://ledger")
LOSS = {"topic": "orders", "partition": 0, "from": 0, "until": 1, "cause": "retention"}
STATUS = DriverStatus("orders", 3, "host-1", 4711, 1_000, 60_000, Duration(1000))


class Sourced:
    """A source with parts that a test sets."""

    def __init__(self, conf: dict[str, str] | None = None, store: Any = None) -> None:
        self.clock = ManualClock(0)
        self.history = JobHistory(self.clock)
        self.history.keep_batches(BatchHistory(1000, 100))
        self.lags = InputLags(set, None)
        self.status = STATUS
        self.engine = EngineSnapshot()
        self.policies: dict[int, str] = {}
        self.asked: list[tuple[int, int]] = []
        self.jobs: Sequence[int] = (7, 5)
        self.ledger = DriverLedger(store, self.clock)
        self.decisions = Decisions(self.clock, dict)
        links = SparkLinks("local-1", "http://driver:4040", self._jobs)
        stored = StoredBatches(store, lambda: ranges_of)
        self.source = DriverSource(
            Settings(conf or {}),
            settings_table().entries,
            self._job,
            self.decisions,
            self.ledger,
            stored,
            links,
            "0.1.0",
        )

    def _job(self) -> JobSnapshot:
        engine = replace(self.engine, lags=self.lags.lags())
        return JobSnapshot(self.status, self.history.snapshot(), engine, error_policies=self.policies)

    def _jobs(self, time: Time, operation: int) -> Sequence[int]:
        self.asked.append((time.milliseconds, operation))
        return self.jobs


# -- settings


def test_settings_that_differ_are_shown_with_their_meaning_and_without_secrets() -> None:
    conf = {
        "spark.streaming.kstream.ui.token": "hunter2",
        "spark.streaming.concurrentJobs": "1",  # the default
        "spark.streaming.checkpoint.directory": "s3://me:hunter2@bucket/c",
        "spark.streaming.kafka.maxRatePerPartition": "100",
        "spark.streaming.no.such.setting": "x",
        "spark.app.name": "orders",
    }
    shown = {row["key"]: (row["value"], row["default"]) for row in Sourced(conf).source.settings()}
    assert shown == {
        "spark.streaming.checkpoint.directory": ("(secret)", ""),
        "spark.streaming.kafka.maxRatePerPartition": ("100", "0"),
        "spark.streaming.kstream.ui.token": ("(secret)", ""),
    }
    assert all(row["meaning"] for row in Sourced(conf).source.settings())


@pytest.mark.parametrize("secret", ["could not open s3://me:hunter2@bucket/x", "password=hunter2"])
def test_no_text_of_an_error_has_a_secret_and_the_traceback_can_still_be_read(secret: str) -> None:
    made = Sourced()
    output = info_of(1000).outputs[0]
    trace = f'Traceback (most recent call last):\n  File "job.py", line 7, in work\nValueError: {secret}\nin output operation 0'
    failed = replace(info_of(1000), outputs={0: replace(output, error=f"ValueError: {secret}", failure_reason=trace)})
    run_through(made.history, failed)
    run_through(made.decisions, failed)
    receiver = ReceiverInfo(0, "socket", False, "host-1", "0", f"ValueError: {secret}", trace, 5000)
    made.history.onReceiverError(StreamingListenerReceiverError(receiver))
    source = made.source
    shown = json.dumps([source.batches(), source.batch(1000), source.operations(1000), source.decisions(), source.receivers()])
    assert "hunter2" not in shown
    operations, (told,), (batch,) = source.operations(1000), source.decisions(), source.batches()
    assert operations is not None
    error = operations[0]["error"]
    assert (
        error is not None
        and error == batch["firstFailureReason"]
        and told["text"].endswith(f": {error}")
        and error.startswith("ValueError: ")
    )
    lines = [line for line in trace.split("\n") if secret not in line]
    for text in (operations[0]["failureReason"], source.receivers()[0]["lastError"]):
        assert text is not None and [line for line in text.split("\n") if not line.startswith("ValueError: ")] == lines


# -- Spark jobs


def test_spark_is_asked_for_the_jobs_of_a_batch_when_somebody_looks_at_it_and_once() -> None:
    made = Sourced()
    run_through(made.history, info_of(1000))
    made.source.batches()
    made.source.statistics()
    assert made.asked == []
    operations = made.source.operations(1000)
    assert operations is not None and operations[0]["jobIds"] == [5, 7]
    assert operations[0]["jobUrls"] == ["http://driver:4040/jobs/job/?id=5", "http://driver:4040/jobs/job/?id=7"]
    made.jobs = ()
    again = made.source.batch(1000)
    assert again is not None and again["operations"][0]["jobIds"] == [5, 7] and made.asked == [(1000, 0)]


def test_an_answer_without_jobs_is_not_kept_as_spark_may_not_have_answered() -> None:
    made = Sourced()
    run_through(made.history, info_of(1000))
    made.jobs = ()
    first = made.source.batch(1000)
    made.jobs = (7, 5)
    second = made.source.batch(1000)
    assert first is not None and first["operations"][0]["jobIds"] == []
    assert second is not None and second["operations"][0]["jobIds"] == [5, 7]


def test_the_jobs_of_an_operation_that_runs_are_asked_for_each_time() -> None:
    made = Sourced()
    whole = info_of(1000)
    submitted = submitted_of(whole)
    run_through(made.history, whole)
    again = replace(submitted.outputs[0], start_ms=2005)
    made.history.onOutputOperationStarted(StreamingListenerOutputOperationStarted(again))
    made.source.operations(1000)
    made.jobs = (5, 7, 9)
    operations = made.source.operations(1000)
    assert operations is not None and operations[0]["jobIds"] == [5, 7, 9] and len(made.asked) == 2


def test_an_operation_that_has_not_started_has_no_jobs_and_spark_is_not_asked() -> None:
    made = Sourced()
    made.history.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted_of(info_of(1000))))
    made.engine = EngineSnapshot(pending=PendingBatches(running=frozenset({Time(1000)})))
    operations = made.source.operations(1000)
    assert operations is not None and operations[0]["status"] == "QUEUED" and operations[0]["jobIds"] == [] and made.asked == []


# -- record errors


def test_an_input_tells_its_record_errors_by_their_kind_and_what_became_of_the_records() -> None:
    made = Sourced()
    made.policies = {0: "dead-letter"}
    kinds = [("map at job.py:7", "ValueError", 3), ("valueDecoder", "KeyError", 1)]
    run_through(made.history, info_of(1000, StreamInputInfo(0, 10, figures=InputFigures(record_errors=4), record_errors=kinds)))
    run_through(made.history, info_of(2000, StreamInputInfo(0, 10)))
    run_through(made.history, replace(info_of(3000), inputs={1: StreamInputInfo(1, 10)}))
    told = [made.source.batch(time_ms) for time_ms in (1000, 2000, 3000)]
    inputs = [batch["inputs"][0] for batch in told if batch is not None]
    assert [(each["numRecordErrors"], each["errorsPolicy"]) for each in inputs] == [(4, "dead-letter"), (0, "dead-letter"), (0, None)]
    assert inputs[1]["recordErrors"] == [] and inputs[0]["recordErrors"] == [
        {"operator": "map at job.py:7", "exception": "ValueError", "numRecords": 3},
        {"operator": "valueDecoder", "exception": "KeyError", "numRecords": 1},
    ]


# -- batches whose facts are not kept


def with_old_batches(store: Any = None) -> Sourced:
    """A source that keeps the facts of a hundred batches of a hundred and fifty."""
    made = Sourced(store=store)
    for number in range(150):
        run_through(made.history, info_of(number * 1000, source_of(1)))
    return made


def stored(time_ms: int, counts: list[int | None] | None) -> MemoryFileStore:
    """A checkpoint with one batch, whose plan reads the offsets 3 to 7; without counts it has not succeeded."""
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    log = PlanLog(store, 1)
    log.write_plan(BatchPlan(Time(time_ms), 1, "n", {0: {"from": 3, "until": 7}}, {0: 4}, Time(0)))
    if counts is not None:
        log.complete(Time(time_ms), 1, BatchOutcome(0, {0: InputOutcome(counts)}, delays=BatchDelays(5, 400)))
    return store


def test_without_a_checkpoint_a_batch_whose_facts_are_gone_is_its_row_alone() -> None:
    made = with_old_batches()
    found = made.source.batch(1000)
    assert found is not None and (found["inputSize"], found["inputs"], found["operations"]) == (10, [], [])
    assert made.source.operations(1000) is None and made.source.batch(999_000) is None
    assert made.source.batch(149_000) is not None and len(made.source.batches()) == 150


def test_the_ranges_of_a_batch_whose_facts_are_gone_are_those_of_its_plan() -> None:
    found = with_old_batches(stored(1000, [4])).source.batch(1000)
    assert found is not None and found["inputSize"] == 10  # the row of the driver
    offsets = {"topic": TOPIC, "partition": 0, "fromOffset": 3, "untilOffset": 7, "count": 4}
    assert [each["offsets"] for each in found["inputs"]] == [[offsets]]


def test_a_batch_that_only_the_checkpoint_knows_has_its_delays_and_is_read_once() -> None:
    store = CountingStore(stored(5000, [4]))
    made = Sourced(store=store)
    found = made.source.batch(5000)
    assert found is not None and (found["status"], found["inputSize"], found["totalDelay"]) == ("COMPLETED", 4, 405)
    store.take()
    assert made.source.batch(5000) == found and store.take() == []


def test_a_batch_whose_facts_are_gone_has_the_figures_of_its_completion() -> None:
    store = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    log = PlanLog(store, 1)
    log.write_plan(BatchPlan(Time(1000), 1, "n", {0: {"from": 3, "until": 7}}, {0: 4}, Time(0)))
    written = OutputOperationInfo(Time(1000), 1, "saveToKafka at job.py:41", "", 1000, 1400, None, figures=OutputFigures(transactions=3))
    log.complete(Time(1000), 1, BatchOutcome(0, figures=OutcomeFigures(outputs=(written,))))
    made = with_old_batches(store)
    found = made.source.batch(1000)
    assert found is not None and [each["outputOpId"] for each in found["operations"]] == [1]
    assert [(each["name"], each["value"]) for each in found["operations"][0]["figures"]] == [("outputTransactions", 3)]
    assert made.source.operations(1000) == found["operations"]


def test_a_held_batch_shows_what_it_will_read() -> None:
    made = Sourced(store=stored(5000, None))
    made.engine = EngineSnapshot(pending=PendingBatches(held=frozenset({Time(5000)})))
    found = made.source.batch(5000)
    assert found is not None and (found["status"], found["inputSize"]) == ("HELD", 4)
    assert [(each["fromOffset"], each["untilOffset"]) for each in found["inputs"][0]["offsets"]] == [(3, 7)]


def test_a_store_that_is_away_hides_only_what_the_driver_does_not_know_itself() -> None:
    store = FaultyStore(stored(1000, [4]))
    store.fault = lambda verb, _name: "before" if verb == "list" else None
    made = with_old_batches(store)
    found = made.source.batch(1000)
    assert found is not None and (found["inputSize"], found["inputs"]) == (10, [])
    with pytest.raises(StorageError):
        made.source.batch(999_000)


# -- allocation, lag, state


def test_decisions_of_executor_allocation_are_sentences() -> None:
    made = Sourced({"spark.streaming.dynamicAllocation.scalingUpRatio": "0.8"})
    made.engine = EngineSnapshot(
        allocations=[
            (1000, AllocationDecision(Scaling.UP, 1.5, 2, 4)),
            (2000, AllocationDecision(Scaling.NONE, 0.5, 4, 4)),
            (3000, AllocationDecision(Scaling.DOWN, 0.1, 4, 3, ("1",))),
            (4000, AllocationDecision(Scaling.NONE, 0.1, 3, 3, reason="the minimum is 3")),
            (5000, AllocationDecision(Scaling.UP, 1.5, 6, 6)),
            (6000, AllocationDecision(Scaling.UP, 0.5, 1, 2)),
        ]
    )
    assert [(d["timeMs"], d["kind"], d["text"]) for d in made.source.decisions()] == [
        (6000, "allocation", "2 executors are asked for, there are 1: the minimum is 2; the batches take 0.50 of their interval"),
        (5000, "allocation", "6 executors stay: the maximum is 6; the batches take 1.50 of their interval, at least scalingUpRatio=0.8"),
        (4000, "allocation", "3 executors stay: the minimum is 3; the batches take 0.10 of their interval, at most scalingDownRatio=0.3"),
        (3000, "allocation", "3 executors are enough, there are 4: the batches take 0.10 of their interval, at most scalingDownRatio=0.3"),
        (
            1000,
            "allocation",
            "4 executors are asked for, there are 2: the batches take 1.50 of their interval, at least scalingUpRatio=0.8",
        ),
    ]


def test_the_lag_of_each_partition_is_that_of_the_newest_plan() -> None:
    made = Sourced()
    for number in range(3):
        made.lags.planned(Time(number * 1000), [source_of(12, begin=number * 10, behind=4)], number * 1000)
    (lag,) = made.source.lag()
    assert (lag["records"], lag["description"], made.source.statistics()["lagRecords"]) == (48, "Kafka[Subscribe[orders]]", 48)
    (topic,) = lag["topics"]
    assert [p["partition"] for p in topic["partitions"]] == [str(n) for n in range(12)]
    assert topic["partitions"][0] == {"partition": "0", "offset": 30, "latest": 34, "records": 4, "seconds": 58.4}
    assert lag["seconds"] == 58.4 and lag["rateLimit"] is None


def test_each_partition_tells_how_long_its_oldest_record_has_waited() -> None:
    made = Sourced()
    for time_ms, ends in ((10_000, (10, 10)), (50_000, (10, 20))):
        ranges = [OffsetRange("orders", n, 10, 10) for n in range(2)]
        latest = {("orders", n): end for n, end in enumerate(ends)}
        source = StreamInputInfo(0, 0, metadata_of(ranges, latest, {}, "Kafka"))
        made.lags.planned(Time(time_ms), [source], time_ms)
    (lag,) = made.source.lag()
    partitions = lag["topics"][0]["partitions"]
    assert [(p["records"], p["seconds"]) for p in partitions] == [(0, 0.0), (10, 50.0)]
    assert lag["seconds"] == 50.0, "that of the partition which has waited longest"


def test_the_rate_that_back_pressure_allows_now_is_that_of_each_input() -> None:
    made = Sourced()
    made.lags.planned(Time(1000), [source_of(1)], 1000)
    made.lags.planned(Time(2000), [replace(source_of(1), stream_id=1)], 2000)
    made.history.onReceiverStarted(StreamingListenerReceiverStarted(ReceiverInfo(2, "socket", True, "host-1", "0")))
    made.engine = EngineSnapshot(rates={1: 700, 2: 80})
    assert [(lag["stream"], lag["rateLimit"]) for lag in made.source.lag()] == [(0, None), (1, 700)]
    assert [receiver["rateLimit"] for receiver in made.source.receivers()] == [80]


# -- receivers


def test_the_event_rates_of_a_receiver_are_those_of_its_stream_in_the_batches_that_are_kept() -> None:
    """Spark's REST has them under these names."""
    made = Sourced()
    made.status = replace(STATUS, interval=Duration(2000))
    made.history.onReceiverStarted(StreamingListenerReceiverStarted(ReceiverInfo(0, "socket", True, "host-1", "0")))
    (receiver,) = made.source.receivers()
    assert (receiver["avgEventRate"], receiver["eventRates"]) == (None, [])
    for number in (1, 3, 2):
        run_through(made.history, info_of(number * 2000, StreamInputInfo(0, number * 10)))
    run_through(made.history, info_of(8000))  # a batch that has nothing of this stream
    (receiver,) = made.source.receivers()
    assert receiver["eventRates"] == [(2000, 5.0), (4000, 10.0), (6000, 15.0)] and receiver["avgEventRate"] == 10.0
    for number in range(10, 1000):
        run_through(made.history, info_of(number * 2000, StreamInputInfo(0, 40)))
    (receiver,) = made.source.receivers()
    assert len(receiver["eventRates"]) == 100 and receiver["avgEventRate"] == 20.0


@pytest.mark.parametrize(
    ("ended", "state"),
    [(None, "running"), ("fenced", "fenced"), ("gracefully", "ended gracefully"), ("after an error", "ended after an error")],
)
def test_the_state_of_a_driver_is_a_word_and_a_sentence(ended: str | None, state: str) -> None:
    made = Sourced()
    made.status = replace(STATUS, ended=ended)
    page = made.source.statistics()
    assert page["state"] == state and page["stateText"]


# -- the ledger


class Ledger:
    """A ledger whose readings are counted; it may be away, and a reading may be made to wait."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.readings = 0
        self.error: Exception | None = None
        self.entries = [LedgerEntry("lost", Time(ms), ms, 1, {0: [LOSS]}, is_acknowledged=ms == 2000) for ms in (1000, 2000)]
        self.may_read = threading.Event()
        self.may_read.set()
        monkeypatch.setattr(driver_ledger, "read_newest_entries", self._read)

    def _read(self, store: Any, most: int) -> tuple[list[LedgerEntry], int]:
        assert self.may_read.wait(20)
        self.readings += 1
        if self.error is not None:
            raise self.error
        return self.entries, 3


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    return Ledger(monkeypatch)


def test_the_ledger_is_read_when_somebody_asks_and_kept_for_a_few_seconds(ledger: Ledger) -> None:
    made = Sourced(store=STORE)
    assert [(row["batchTimeMs"], row["acknowledged"]) for row in made.source.ledger()] == [(2000, True), (1000, False)]
    made.source.ledger()
    assert ledger.readings == 1 and made.source.statistics()["numLedgerEntries"] == 4
    made.clock.advance(FRESH_MS)
    made.source.ledger()
    assert ledger.readings == 2


def test_the_number_of_entries_waits_for_no_store(ledger: Ledger) -> None:
    made = Sourced(store=STORE)
    ledger.may_read.clear()
    assert made.source.statistics()["numLedgerEntries"] is None
    assert made.source.statistics()["numLedgerEntries"] is None  # one thread reads, and no second one begins
    ledger.may_read.set()
    made.ledger.wait(20)
    assert made.source.statistics()["numLedgerEntries"] == 4 and ledger.readings == 1
    made.clock.advance(COUNT_FRESH_MS)
    made.source.statistics()
    made.ledger.wait(20)
    assert ledger.readings == 2


def test_a_store_that_is_away_is_an_error_of_the_ledger_alone_and_the_number_stays(ledger: Ledger) -> None:
    made = Sourced(store=STORE)
    made.source.ledger()
    ledger.error = StorageError("away")
    made.clock.advance(COUNT_FRESH_MS)
    assert made.source.statistics()["numLedgerEntries"] == 4
    made.ledger.wait(20)
    assert made.source.statistics()["numLedgerEntries"] == 4 and ledger.readings == 2  # the next try is half a minute later
    made.clock.advance(COUNT_FRESH_MS)
    with pytest.raises(StorageError):
        made.source.ledger()


def test_without_a_checkpoint_there_is_no_ledger() -> None:
    made = Sourced()
    assert made.source.ledger() == [] and made.source.statistics()["numLedgerEntries"] == 0
