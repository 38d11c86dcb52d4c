"""What metrics show of a driver on the harness, beside what page, progress and status show, too. A scrape asks nobody."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.harness import Driver, LogInput, World
from tests.metrics.scraped import Observed
from tests.receiver_driver import ReceiverDriver
from tests.stores import CountingStore


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
