"""A run with failures on the harness: the metrics say what progress and status say, and a scrape asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness import INTERVAL, START, Driver, LogInput, World
from tests.metrics.scraped import Observed
from tests.receiver_driver import ReceiverDriver
from tests.stores import CountingStore

FIRST, SECOND, THIRD, FOURTH = (START + n * INTERVAL for n in (1, 2, 3, 4))
RETRIES = "spark.streaming.kstream.batch.retries"
HOLD = {"spark.streaming.kstream.failedBatch": "hold"}


@pytest.fixture
def observed() -> Iterator[Callable[..., Observed]]:
    made: list[Observed] = []

    def make(conf: dict[str, str] | None = None, world: World | None = None, driver: Driver | None = None) -> Observed:
        made.append(Observed(world or World(), conf, driver))
        return made[-1]

    yield make
    for each in made:
        each.observers.ended("gracefully")


def test_a_receiver_is_shown_from_the_beginning_whether_it_has_started_or_not(observed: Callable[..., Observed]) -> None:
    job = observed(driver=ReceiverDriver(World()))
    job.observers.start(job.driver.host.graph)
    assert job.scrape()['kstream_receiver_active{input="1",receiver="Quiet-1"}'] == 0


def runs(found: dict[str, float], result: str) -> float:
    """How many runs of output operations have ended so."""
    return sum(value for name, value in found.items() if name.startswith("kstream_output_operations_total") and f'"{result}"' in name)


def agrees(job: Observed) -> dict[str, float]:
    """What the metrics say, when it is what progress and status say."""
    found, status, progress = job.scrape(), job.observers.status(), job.observers.progress()
    assert found["kstream_driver_epoch"] == status.epoch
    assert found["kstream_behind_seconds"] == status.seconds_behind(job.driver.clock.time_ms())
    states = {state: found[f'kstream_pending_batches{{state="{state}"}}'] for state in ("running", "retrying", "held", "failed")}
    assert sum(states.values()) == status.unfinished
    assert states["failed"] == status.failed and states["retrying"] + states["held"] == status.waiting
    assert status.last_planned is not None
    assert found["kstream_last_planned_batch_timestamp_seconds"] * 1000 == status.last_planned.milliseconds
    good = [each for each in progress if all(output["failureReason"] is None for output in each["outputs"])]
    assert found['kstream_batches_total{result="succeeded"}'] == len(good)
    assert found['kstream_batches_total{result="failed"}'] == len(progress) - len(good)
    assert found.get('kstream_input_records_total{input="0"}', 0) == sum(each["numInputRows"] for each in good)
    if progress:
        last = progress[-1]
        assert found["kstream_last_ended_batch_records"] == last["numInputRows"]
        assert found["kstream_last_ended_batch_timestamp_seconds"] * 1000 == last["batchId"]
    for name, key in ("scheduling", "schedulingDelay"), ("processing", "processingDelay"), ("total", "totalDelay"):
        assert found[f"kstream_batch_{name}_delay_seconds_count"] == len(progress)
        assert found[f"kstream_batch_{name}_delay_seconds_sum"] * 1000 == sum(each["durationMs"][key] for each in progress)
    return found


def test_a_run_with_failures_looks_the_same_to_metrics_progress_and_status(observed: Callable[..., Observed]) -> None:
    job = observed()
    job.driver.refuse(SECOND)
    job.start()
    for produced in (3, 5, 0, 7):
        job.driver.tick(produced)
        job.driver.settle()
        agrees(job)
    found = agrees(job)
    assert found['kstream_batches_total{result="succeeded"}'] == 3 and found['kstream_input_records_total{input="0"}'] == 10
    assert found['kstream_pending_batches{state="failed"}'] == 1
    assert runs(found, "failed") == 1
    assert found["kstream_behind_seconds"] == 2


def test_a_batch_between_two_tries_and_those_it_holds_are_told_apart(observed: Callable[..., Observed]) -> None:
    job = observed({RETRIES: "2", **HOLD})
    away = job.driver.refuse(FIRST)
    job.start()
    driver = job.driver
    driver.tick_only(2)
    driver.world.wait(lambda: driver.engine.lifecycle.pending().retrying)
    driver.settle()
    found = agrees(job)
    assert found['kstream_pending_batches{state="retrying"}'] == 1 and found["kstream_batch_retries_total"] == 0
    away.clear()
    driver.tick_only(4)  # a second later: the next try is due
    driver.world.wait(lambda: driver.listener.completed() == [FIRST, SECOND])
    driver.settle()
    found = agrees(job)
    assert found["kstream_batch_retries_total"] == 1 and found['kstream_input_records_total{input="0"}'] == 6
    assert runs(found, "failed") == 1


def test_a_batch_that_a_failed_one_holds_is_held(observed: Callable[..., Observed]) -> None:
    job = observed(HOLD)
    job.driver.refuse(FIRST)
    job.start()
    job.driver.tick(1)
    for _ in range(2):
        job.driver.tick_only(1)
        job.driver.settle()
    found = agrees(job)
    assert found['kstream_pending_batches{state="failed"}'] == 1 and found['kstream_pending_batches{state="held"}'] == 2


def test_a_receiver_and_its_blocks_are_shown_as_the_tracker_knows_them(observed: Callable[..., Observed]) -> None:
    world = World()
    driver = ReceiverDriver(world)
    job = observed(driver=driver).start()
    driver.receiver.store(1)
    world.wait(driver.waiting)
    driver.settle()
    (active,) = [value for name, value in job.scrape().items() if name.startswith("kstream_receiver_active")]
    assert active == 1 and job.scrape()["kstream_waiting_blocks"] == 1
    driver.tick()
    found = job.scrape()
    assert found["kstream_waiting_blocks"] == 0 and found[f'kstream_input_records_total{{input="{driver.received.id}"}}'] == 1
    driver.stop()
    (active,) = [value for name, value in job.scrape().items() if name.startswith("kstream_receiver_active")]
    assert active == 0


def test_a_driver_that_is_fenced_says_so(observed: Callable[..., Observed]) -> None:
    world = World()
    first, second = observed(world=world).start(), observed(world=world)
    first.driver.tick(1)
    assert first.scrape()["kstream_driver_fenced"] == 0
    second.start()
    first.driver.tick_only(1)
    world.wait(lambda: first.driver.fenced)
    assert first.scrape()["kstream_driver_fenced"] == 1 and second.scrape()["kstream_driver_fenced"] == 0


def test_the_rate_of_an_input_is_that_of_its_back_pressure(observed: Callable[..., Observed], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LogInput, "adapts_rate", True)
    job = observed({"spark.streaming.backpressure.enabled": "true"})
    job.driver.before_job = lambda _time: job.driver.clock.advance(100, wait=False)
    job.start()
    for _ in range(3):
        job.driver.tick(50)
    job.driver.settle()
    (controller,) = job.driver.engine._rate_controllers
    assert controller.latest_rate > 0
    assert job.scrape()['kstream_input_rate_limit_records_per_second{input="0"}'] == controller.latest_rate


def test_a_scrape_asks_neither_the_store_nor_an_input(observed: Callable[..., Observed]) -> None:
    world = World()
    store = world.store = CountingStore(world.store)
    job = observed(world=world).start()
    job.driver.tick(3)
    job.driver.settle()
    store.take()
    calls = len(job.driver.input.calls)
    job.scrape()
    assert store.take() == [] and len(job.driver.input.calls) == calls


def test_metrics_are_counted_from_the_start_of_a_context(observed: Callable[..., Observed]) -> None:
    world = World()
    for epoch in (1, 2):
        job = observed(world=world).start()
        job.driver.tick(3)
        found = job.scrape()
        assert found["kstream_driver_epoch"] == epoch and found['kstream_input_records_total{input="0"}'] == 3
        job.stop()
