"""The status of a driver: from `ssc.status()`, and as a record that is renewed beside the batches."""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.batch import InputProgress, LogLag
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import RENEWAL_MS, DriverStatus, StreamLag, read_status, write_status
from kstream.checkpoint.stop_request import StopRequest, ask_to_stop
from kstream.clock import SystemClock
from kstream.conf import Settings
from kstream.context.observers import Observers
from kstream.context.status import LOOK_MS, StatusReporter, how_it_ended, stream_lag
from kstream.errors import JvmLostError
from kstream.listener import StreamingListener, StreamingListenerBus
from kstream.monitoring.job_snapshot import EngineSnapshot
from kstream.secret import harmless
from kstream.storage import LocalFileStore, MemoryFileStore
from kstream.testing import ManualClock
from tests.harness import START
from tests.stores import CountingStore, FaultyStore, WrappedStore
from tests.streams import Stream, numbers

STATUS = DriverStatus("job", 3, "host", 1, START, START, Duration(1000))


# -- ssc.status()


def fail(rdd: Any) -> None:
    raise ValueError("the database\nis down")


def test_a_context_tells_its_batches_before_and_after_its_stop(sc: SparkContext, tmp_path: Path) -> None:
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    numbers(stream.ssc, 3).foreachRDD(lambda rdd: None)
    assert stream.ssc.status() is None
    stream.start()
    stream.tick()
    stream.tick()
    status = stream.ssc.status()
    assert status is not None and (status.epoch, status.ended, status.interval) == (1, None, Duration(1000))
    assert status.last_planned == Time(START + 2000) and status.started_ms == START
    assert [(batch.time.milliseconds, batch.records, batch.failed) for batch in status.recent] == [
        (START + 1000, 3, False),
        (START + 2000, 3, False),
    ]
    assert (status.unfinished, status.failed, status.last_error) == (0, 0, None)
    stream.stop()
    status = stream.ssc.status()
    assert status is not None and status.ended == "gracefully"


def test_a_batch_that_fails_is_told_with_its_output_operation(sc: SparkContext) -> None:
    stream = Stream(sc)
    numbers(stream.ssc).foreachRDD(fail)
    stream.start()
    stream.tick()
    status = stream.ssc.status()
    assert status is not None and (status.epoch, status.unfinished, status.failed) == (0, 1, 1)
    assert status.recent[-1].failed
    error = status.last_error
    assert error is not None and (error.text, error.batch) == ("ValueError: the database", Time(START + 1000))
    assert error.operation is not None and error.operation.startswith("0, foreachRDD at ")
    stream.stop(graceful=False)
    status = stream.ssc.status()
    assert status is not None and status.ended == "after an error"


def test_an_end_that_was_asked_for_is_no_end_by_an_error_though_a_batch_has_failed(sc: SparkContext) -> None:
    """After an end by an error a supervisor starts the next driver."""
    stream = Stream(sc)
    numbers(stream.ssc).foreachRDD(fail)
    stream.start()
    stream.tick()
    stream.ssc.stop_requested = True
    stream.stop(graceful=False)
    status = stream.ssc.status()
    assert status is not None and (status.failed, status.ended) == (1, "at once")


def test_a_status_asks_engine_and_clock_without_the_lock_of_the_history() -> None:
    """A listener that waits for it would hold up the bus."""
    observers: Any = Observers("job", Settings({}), Duration(1000), ManualClock(START), StreamingListenerBus(), lambda: 2)
    asked: list[str] = []

    class Asked:
        """An engine and a clock."""

        def __getattr__(self, name: str) -> Any:
            assert not observers.history._lock.locked(), name
            asked.append(name)
            return {"snapshot": EngineSnapshot, "time_ms": lambda: 7}[name]

    observers.collector._clock = Asked()
    observers.opened(Asked())
    assert observers.status().written_ms == 7 and asked == ["snapshot", "time_ms"]


@pytest.mark.parametrize("text", ["OperationalError: postgresql://app:hunter2@db/orders refused", "AuthError: password=hunter2"])
def test_an_error_that_may_hold_a_secret_is_only_named(text: str) -> None:
    assert "hunter2" not in harmless(text)
    assert harmless(text).startswith(text.partition(":")[0])


def test_a_long_error_is_cut() -> None:
    assert len(harmless("x" * 10_000)) == 500


def test_the_lag_of_the_status_counts_from_the_completed_offsets_and_says_what_is_unplanned_and_of_when() -> None:
    values = {
        "description": "Kafka[Subscribe[orders]]",
        "endOffset": {"orders": {"0": 5, "1": 7}},
        "latestOffset": {"orders": {"0": 15, "1": 7, "2": 100}},
        "readLimit": {"reason": "backpressure"},
    }
    lag = LogLag(InputProgress(values), ((1000, values["latestOffset"]),), {"orders": {"0": 2, "1": 7}})
    assert stream_lag(0, lag) == StreamLag(0, "Kafka[Subscribe[orders]]", 13, "backpressure", unplanned=10, at_ms=1000)


JVM_LOST = JvmLostError("gone")


@pytest.mark.parametrize(
    ("in_order", "error", "was_asked", "is_started_again", "how"),
    [
        (True, None, False, False, "gracefully"),
        (True, ValueError(), False, False, "gracefully"),
        (False, None, False, False, "at once"),
        (False, ValueError(), False, False, "after an error"),
        (False, ValueError(), True, False, "at once"),
        (False, ValueError(), True, True, "after an error"),
        (False, JVM_LOST, True, False, "after an error"),
        (True, JVM_LOST, True, False, "after an error"),
    ],
)
def test_an_end_after_which_the_supervisor_starts_the_next_driver_is_after_an_error_also_if_a_stop_was_asked_for(
    in_order: bool, error: Exception | None, was_asked: bool, is_started_again: bool, how: str
) -> None:
    """`kstream stop` says that the job has ended, unless it was after an error."""
    assert how_it_ended(in_order, error, was_asked, is_started_again) == how


# -- the record


class Reporting:
    """A reporter on a clock of its own; `store` is what it writes to."""

    def __init__(self, store: Any = None) -> None:
        self.store = store or FaultyStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}"))
        self.clock = ManualClock(START)
        self.status = STATUS
        self.requests: list[StopRequest] = []
        self.reporter = StatusReporter(self.store, self.clock, self._status, self.requests.append)

    def _status(self, ended: str | None) -> DriverStatus:
        return replace(self.status, written_ms=self.clock.time_ms(), ended=self.status.ended or ended)

    def start(self) -> Reporting:
        self.reporter.start()
        self.clock.wait_for_waiters()
        return self

    def pass_time(self, ms: int) -> None:
        self.clock.advance(ms)
        self.clock.wait_for_waiters()

    def stored(self) -> DriverStatus:
        status = read_status(self.store)
        assert status is not None
        return status


@pytest.fixture
def reporting() -> Iterator[Callable[..., Reporting]]:
    made: list[Reporting] = []

    def make(store: Any = None) -> Reporting:
        made.append(Reporting(store))
        return made[-1]

    yield make
    for each in made:
        each.reporter.stop("at once")


def test_the_record_is_renewed_each_interval_until_it_says_how_the_driver_ended(reporting: Callable[..., Reporting]) -> None:
    driver = reporting().start()
    assert driver.stored().written_ms == START
    driver.pass_time(LOOK_MS)
    soon = START + LOOK_MS
    assert driver.stored().written_ms == soon, "now it has told which batches it has to run"
    driver.pass_time(RENEWAL_MS - 1)
    assert driver.stored().written_ms == soon
    driver.pass_time(1)
    assert driver.stored().written_ms == soon + RENEWAL_MS and driver.stored().ended is None
    driver.reporter.stop("gracefully")
    assert driver.stored().ended == "gracefully"


def test_the_first_record_removes_those_of_earlier_drivers(reporting: Callable[..., Reporting]) -> None:
    driver = reporting()
    for epoch in (1, 2):
        write_status(driver.store, replace(STATUS, epoch=epoch))
    driver.start()
    assert driver.store.list("status") == ["000003"]


def test_records_of_earlier_drivers_that_could_not_be_removed_are_removed_at_a_later_renewal(
    reporting: Callable[..., Reporting], caplog: pytest.LogCaptureFixture
) -> None:
    driver = reporting()
    for epoch in (1, 2):
        write_status(driver.store, replace(STATUS, epoch=epoch))
        ask_to_stop(driver.store, replace(REQUEST, epoch=epoch))
    refused = "status"
    driver.store.fault = lambda verb, name: "before" if verb in ("list", "delete") and name.startswith(refused) else None
    with caplog.at_level(logging.WARNING, "kstream"):
        driver.start()
        assert driver.store.inner.list("status") == ["000001", "000002", "000003"]
        refused = "stop"
        driver.pass_time(RENEWAL_MS)
    assert driver.store.inner.list("status") == ["000003"] and len(driver.store.inner.list("stop")) == 2
    assert len(caplog.records) == 1
    driver.store.fault = lambda verb, name: None
    driver.pass_time(RENEWAL_MS)
    assert driver.store.inner.list("stop") == []


def test_a_store_that_is_away_is_one_warning_and_the_next_renewal_is_written(
    reporting: Callable[..., Reporting], caplog: pytest.LogCaptureFixture
) -> None:
    driver = reporting()
    driver.store.fault = lambda verb, name: "before"
    with caplog.at_level(logging.WARNING, "kstream"):
        driver.start()
        driver.pass_time(RENEWAL_MS)
        driver.pass_time(RENEWAL_MS)
    assert [record.levelname for record in caplog.records] == ["WARNING"] and "status record" in caplog.text
    driver.store.fault = lambda verb, name: None
    driver.pass_time(RENEWAL_MS)
    assert driver.stored().written_ms == START + 3 * RENEWAL_MS


class SlowStore(WrappedStore):
    """A store whose writes wait until the test lets them go on."""

    def __init__(self) -> None:
        super().__init__(MemoryFileStore(f"memory://{uuid.uuid4().hex}"))
        self.entered, self.go_on, self.writes = threading.Event(), threading.Event(), 0

    def replace(self, name: str, data: bytes, *, private: bool = False) -> None:
        self.writes += 1
        self.entered.set()
        assert self.go_on.wait(60)
        super().replace(name, data, private=private)


def test_renewals_that_a_slow_store_has_held_up_are_not_made_up_for(reporting: Callable[..., Reporting]) -> None:
    driver = reporting(SlowStore())
    driver.reporter.start()
    assert driver.store.entered.wait(60)
    driver.clock.advance(10 * RENEWAL_MS)
    driver.store.go_on.set()
    driver.clock.wait_for_waiters()
    assert driver.store.writes == 1


def test_a_fenced_driver_says_so_once_and_then_leaves_the_record_alone(reporting: Callable[..., Reporting]) -> None:
    driver = reporting().start()
    driver.status = replace(STATUS, ended="fenced")
    driver.clock.advance(RENEWAL_MS)
    driver.reporter._thread.join(60)
    assert driver.stored().ended == "fenced"
    driver.store.delete("status/000003")  # as its successor does
    driver.reporter.stop("at once")
    assert driver.store.list("status") == []


REQUEST = StopRequest(3, START, "host, pid 7")


def test_a_request_to_stop_is_seen_at_the_next_look_and_obeyed_once(reporting: Callable[..., Reporting]) -> None:
    driver = reporting().start()
    ask_to_stop(driver.store, REQUEST)
    driver.pass_time(LOOK_MS)
    driver.pass_time(LOOK_MS)
    assert driver.requests == [REQUEST]
    ask_to_stop(driver.store, replace(REQUEST, now=True))
    driver.pass_time(LOOK_MS)
    driver.pass_time(LOOK_MS)
    assert driver.requests == [REQUEST, replace(REQUEST, now=True)]


def test_a_request_to_an_earlier_driver_stops_no_later_one_and_is_removed(reporting: Callable[..., Reporting]) -> None:
    driver = reporting()
    ask_to_stop(driver.store, replace(REQUEST, epoch=2))
    driver.start()
    driver.pass_time(LOOK_MS)
    assert driver.requests == [] and driver.store.list("stop") == []


def test_a_look_is_one_read(reporting: Callable[..., Reporting]) -> None:
    store = CountingStore(MemoryFileStore(f"memory://{uuid.uuid4().hex}"))
    driver = reporting(store).start()
    driver.pass_time(LOOK_MS)  # with the first renewal
    store.take()
    driver.pass_time(LOOK_MS)
    assert store.take() == [("read", "stop/000003", 0)]


def test_a_request_that_is_damaged_is_one_warning_and_stops_nothing(
    reporting: Callable[..., Reporting], caplog: pytest.LogCaptureFixture
) -> None:
    driver = reporting().start()
    driver.store.create("stop/000003", b"{}")
    with caplog.at_level(logging.WARNING, "kstream"):
        driver.pass_time(LOOK_MS)
        driver.pass_time(LOOK_MS)
    assert driver.requests == [] and [record.levelname for record in caplog.records] == ["WARNING"]
    assert "stop/000003" in caplog.text


class First(StreamingListener):
    """Lets a test wait for the end of a batch."""

    def __init__(self) -> None:
        self.ended = threading.Event()

    def onBatchCompleted(self, batchCompleted: Any) -> None:
        self.ended.set()


def test_a_real_driver_leaves_a_record_that_says_where_it_ran_and_how_it_ended(sc: SparkContext, tmp_path: Path) -> None:
    ssc = StreamingContext(sc, 0.2, clock=SystemClock())
    ssc.checkpoint(str(tmp_path))
    numbers(ssc, 3).foreachRDD(lambda rdd: None)
    first = First()
    ssc.addStreamingListener(first)
    ssc.start()
    assert first.ended.wait(60)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    status = read_status(LocalFileStore(tmp_path))
    assert status is not None and (status.epoch, status.ended, status.unfinished) == (1, "gracefully", 0)
    assert status.recent[0].records == 3 and status.application == sc.appName
    now = ssc.status()
    assert now is not None and status == replace(now, written_ms=status.written_ms)


def test_a_start_that_fails_says_so_in_the_record(sc: SparkContext, tmp_path: Path) -> None:
    ssc = StreamingContext(sc, 0.2, clock=SystemClock())
    ssc.checkpoint(str(tmp_path))
    stream = numbers(ssc)
    stream.foreachRDD(lambda rdd: None)

    def refuse(services: Any) -> None:
        raise OSError("no source")

    stream._node.start = refuse  # type: ignore[attr-defined]
    with pytest.raises(OSError, match="no source"):
        ssc.start()
    status = read_status(LocalFileStore(tmp_path))
    assert status is not None and status.ended == "start failed"


@pytest.mark.parametrize(("now", "ended"), [(False, "gracefully"), (True, "at once")])
def test_a_request_in_the_checkpoint_stops_a_real_driver(
    sc: SparkContext, setting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, now: bool, ended: str
) -> None:
    setting("spark.streaming.stopSparkContextByDefault", "false")
    monkeypatch.setattr("kstream.context.status.LOOK_MS", 10)
    ssc = StreamingContext(sc, 0.2, clock=SystemClock())
    ssc.checkpoint(str(tmp_path))
    numbers(ssc, 3).foreachRDD(lambda rdd: None)
    first = First()
    ssc.addStreamingListener(first)
    ssc.start()
    assert first.ended.wait(60)
    ask_to_stop(LocalFileStore(tmp_path), StopRequest(1, 0, "host, pid 7", now))
    assert ssc.awaitTerminationOrTimeout(60)
    status = read_status(LocalFileStore(tmp_path))
    assert status is not None and status.ended == ended


def test_batches_that_wait_for_a_failed_one_are_told_apart_from_it(sc: SparkContext, setting: Any) -> None:
    setting("spark.streaming.kstream.failedBatch", "hold")
    stream = Stream(sc)
    numbers(stream.ssc).foreachRDD(fail)
    stream.start()
    stream.tick()
    stream.clock.advance(1000)
    stream.clock.advance(1000)
    status = stream.ssc.status()
    assert status is not None and (status.unfinished, status.failed, status.waiting) == (3, 1, 2)
    stream.stop(graceful=False)
