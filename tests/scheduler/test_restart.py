"""A restart goes on exactly: pending batches with their plans, missed ones made, times that only rise."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from kstream import crash_point
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, names, read_log, take_epoch
from kstream.checkpoint.offline import forget_batch
from kstream.checkpoint.reader import write_meta
from kstream.errors import CorruptRecordError, NotRecoverableError, PlanFailedError
from kstream.storage import LocalFileStore
from kstream.testing import ManualClock
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, World, at, failing, started
from tests.stores import FaultyStore, WrappedStore

HOUR = 3_600_000


def test_a_pending_batch_runs_again_with_identical_data_although_more_has_come() -> None:
    world = World()
    driver = failing(world, at(2))
    driver.tick(2)
    driver.tick(3)
    driver.tick(1)
    driver.stop()
    world.produce(10)
    again = started(world)
    world.wait(lambda: again.listener.completed() == [at(2)])
    assert world.records_by_time() == {at(1): (0, 1), at(2): (2, 3, 4), at(3): (5,)}
    again.tick(1)
    again.stop()
    world.assert_exact()
    assert world.times() == [at(1), at(2), at(3), at(2), at(4)]


def test_a_pending_batch_whose_facts_for_listeners_cannot_be_had_holds_up_no_other_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failed batch stays pending. Before, all later pending and missed batches were skipped, and the start succeeded."""
    world = World()
    driver = failing(world, at(1), at(2))
    driver.tick(1)
    driver.tick(1)
    driver.stop()

    def metadata(stream: LogInput, time: Time, plan: object) -> dict[str, str]:
        if time.milliseconds == at(1):
            raise ValueError("no facts")
        return {}

    monkeypatch.setattr(LogInput, "metadata", metadata)
    again = started(world)
    again.wait_error(ValueError)
    world.wait(lambda: again.listener.completed() == [at(2)])
    again.tick(1)
    again.stop()
    assert world.times() == [at(1), at(2), at(2), at(3)]
    assert read_log(world.store).pending == [Time(at(1))]


def test_completed_batches_are_not_run_again() -> None:
    world = World()
    driver = started(world)
    for _ in range(4):
        driver.tick(1)
    driver.stop()
    again = started(world)
    again.tick(1)
    again.stop()
    assert world.times() == [at(n) for n in range(1, 6)]


def test_batches_missed_while_down_are_made_and_the_first_takes_what_there_is() -> None:
    world = World()
    driver = started(world)
    driver.tick(2)
    driver.stop()
    world.produce(5)
    world.clock.advance(3 * INTERVAL + 10)
    again = started(world)
    world.wait(lambda: again.listener.completed() == [at(2), at(3), at(4)])
    assert [world.records_by_time()[at(n)] for n in (2, 3, 4)] == [(2, 3, 4, 5, 6), (), ()]
    again.stop()
    world.assert_exact()


def test_missed_batches_share_a_backlog_under_the_rate_cap() -> None:
    world = World()
    driver = started(world, most=2)
    driver.tick(2)
    driver.stop()
    world.produce(5)
    world.clock.advance(4 * INTERVAL)
    again = started(world, most=2)
    world.wait(lambda: len(again.listener.completed()) == 4)
    assert [world.records_by_time()[at(n)] for n in (2, 3, 4, 5)] == [(2, 3), (4, 5), (6,), ()]


def test_pending_batches_come_before_missed_ones_and_the_timer_goes_on_after_both() -> None:
    """Spark behaviour CP14."""
    world = World()
    driver = failing(world, at(1), at(2))
    driver.tick(1)
    driver.tick(1)
    driver.stop()
    world.clock.advance(2 * INTERVAL)
    again = started(world)
    world.wait(lambda: len(again.listener.completed()) == 4)
    again.tick(1)
    assert again.listener.completed() == [at(n) for n in (1, 2, 3, 4, 5)]


def told_of_starts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The messages about where a start begins or goes on, and the end of batches that it makes up for."""
    return [text for text in (r.getMessage() for r in caplog.records) if text.startswith(("checkpoint ", "the streams go on", "batches "))]


def test_a_first_start_and_a_restart_tell_the_checkpoint_the_epoch_and_where_each_stream_goes_on(
    caplog: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is absolute: a relative one in another working directory is another checkpoint, and a first start."""
    monkeypatch.chdir(tmp_path)
    caplog.set_level(logging.INFO, logger="kstream")
    world = World(LocalFileStore("checkpoint"))
    world.produce(3)

    def build(host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.setName("orders"))

    driver = started(world, build=build)
    assert told_of_starts(caplog) == [
        f"checkpoint {tmp_path}/checkpoint: first start, as epoch 1. The streams begin:\n  stream 'orders': log at 0"
    ]
    driver.tick(2)
    driver.stop()
    caplog.clear()
    again = started(world, build=build)
    assert told_of_starts(caplog) == [
        f"checkpoint {tmp_path}/checkpoint: the job continues after batch {at(1)} ms, as epoch 2",
        "the streams go on:\n  stream 'orders': log at 5",
    ]
    again.stop()


def test_a_first_start_without_a_checkpoint_tells_of_none(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger="kstream")
    started(World(), checkpoint=False).stop()
    assert told_of_starts(caplog) == []


def test_the_log_of_a_restart_tells_what_it_makes_up_for(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    started(world).die_at(crash_point.RUNNING, produced=1)
    world.clock.advance(2 * INTERVAL)
    with caplog.at_level(logging.DEBUG, logger="kstream"):
        again = started(world)
        world.wait(lambda: len(again.listener.completed()) == 3)
        again.stop()
    for line in (
        f"batches to reschedule: 3, 1 pending processing and 2 during down time: {at(1)} ms, {at(2)} ms, {at(3)} ms",
        f"restarted JobGenerator at {at(4)} ms",
        f"for time {at(2)} ms",
    ):
        assert line in caplog.text


def test_batch_times_rise_at_the_normal_pace_with_the_clock_an_hour_back(caplog: pytest.LogCaptureFixture) -> None:
    world = World(clock=ManualClock(START + HOUR))
    driver = started(world)
    driver.tick(2)
    driver.tick(1)
    driver.stop()
    last = START + HOUR + 2 * INTERVAL
    back = ManualClock(START)
    with caplog.at_level(logging.WARNING, logger="kstream.clock"):
        again = started(world, clock=back)
        for n in range(1, 4):
            again.tick_only(1)
            world.wait(lambda n=n: again.listener.completed() == [last + k * INTERVAL for k in range(1, n + 1)])
    assert len([r for r in caplog.records if r.name == "kstream.clock"]) == 1
    again.stop()
    world.assert_exact()
    assert world.times() == sorted(set(world.times()))
    third = started(world, clock=back)
    third.tick_only(1)
    world.wait(lambda: third.listener.completed() == [last + 4 * INTERVAL])


def test_a_damaged_newest_plan_is_refused_by_name_until_it_is_forgotten() -> None:
    world = World()
    driver = started(world)
    driver.tick(2)
    driver.tick(1)
    driver.stop()
    name = names.plan(Time(at(2)), 1)
    data = bytearray(world.store.read(name))
    data[len(data) // 2] ^= 1
    world.store.replace(name, bytes(data))
    with pytest.raises(CorruptRecordError) as caught:
        Driver(world).start()
    assert name in str(caught.value)
    forget_batch(world.store, Time(at(2)))
    again = started(world)
    again.tick(1)
    assert [a.records for a in world.attempts] == [(0, 1), (2,), (2,), (3,)]


def test_by_default_a_batch_that_fails_at_every_restart_is_never_given_up() -> None:
    """A database that is away for a while, and four quick restarts, must not drop a batch."""
    world = World()
    driver = failing(world, at(1))
    driver.tick(2)
    driver.stop()
    for _ in range(6):
        again = failing(world, at(1))
        world.wait(lambda again=again: again.listener.completed() == [at(1)])
        again.stop()
    assert world.store.list("given-up") == []
    mended = started(world)
    mended.tick(1)
    mended.stop()
    world.assert_exact()
    assert world.times().count(at(1)) == 8


def test_a_batch_that_fails_is_run_again_at_three_restarts_and_then_goes_to_the_ledger(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    conf = {"spark.streaming.kstream.maxBatchFailures": "3"}
    driver = failing(world, at(1), conf=conf)
    driver.tick(2)
    driver.stop()
    for n in range(3):
        again = failing(world, at(1), conf=conf)
        world.wait(lambda again=again: again.listener.completed() == [at(1)])
        again.stop()
        assert world.times().count(at(1)) == n + 2
        assert [t.milliseconds for t in read_log(world.store).pending] == [at(1)]
    last = failing(world, at(1), conf=conf)
    last.tick(1)
    last.stop()
    assert last.errors == [], "a batch that an earlier run has lost does not end this one"
    (warned,) = [r for r in caplog.records if "is given up" in r.getMessage()]
    assert warned.levelno == logging.WARNING
    replay = f"kstream replay MODULE:SETUP --checkpoint {world.store.url} --from {at(1)} --to {at(1)} --sink same"
    assert replay in warned.getMessage()
    assert world.times().count(at(1)) == 4
    assert world.store.list("given-up") == [names.key(Time(at(1)), 1)]
    quiet = started(world)
    quiet.tick(1)
    quiet.stop()
    assert quiet.errors == [] and world.times().count(at(1)) == 4


def test_a_driver_killed_between_its_zero_time_and_its_first_plan_is_no_trouble() -> None:
    world = World()
    take_epoch(world.store, START)
    write_meta(world.store, Meta(Time(START), Duration(INTERVAL)))
    world.clock.advance(10 * INTERVAL)
    world.produce(3)
    driver = started(world)
    assert driver.tick(1) == at(11)
    driver.stop()
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()
    assert world.times() == [at(11), at(12)]


@pytest.mark.parametrize("ticks", [0, 2])
def test_plans_without_a_meta_record_are_an_error_and_no_new_start(ticks: int) -> None:
    """A new start would read everything again from `earliest`, or skip what came since with `latest`."""
    world = World()
    driver = started(world)
    for _ in range(ticks):
        driver.tick(1)
    driver.stop()
    meta = world.store.read(names.META)
    world.store.delete(names.META)
    with pytest.raises(CorruptRecordError) as caught:
        Driver(world).start()
    assert world.store.path(names.META) in str(caught.value) and f"up to batch {at(ticks)} ms" in str(caught.value)
    assert world.store.list() == ["epoch-1"], "a driver that is still running is not fenced by it"
    world.store.create(names.META, meta)
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()


@pytest.mark.parametrize("moment", [("list", "plans"), ("exists", names.META)])
def test_a_first_driver_that_stores_meta_and_plan_while_a_second_one_starts_is_no_error(moment: tuple[str, str]) -> None:
    """The second looks for plans before it looks for meta: else it could miss meta and then find the plan."""
    world = World()
    first, begun = Driver(world), list[str]()

    class Between(WrappedStore):
        def _call(self, verb: str, name: str, action: Callable[[], object], size: int = 0) -> object:
            found = action()
            if (verb, name) == moment and not begun:
                begun.append(verb)
                first.start()
            return found

    second = started(world, store=Between(world.store))
    assert begun
    second.tick(1)
    first.kill()
    second.stop()
    world.assert_exact()


def test_windows_keep_their_step_when_an_earlier_driver_stored_the_zero_time() -> None:
    world = World()

    def build(_host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.window(3, 3))

    write_meta(world.store, Meta(Time(START), Duration(INTERVAL)))
    world.clock.advance(4 * INTERVAL)
    driver = started(world, build=build)
    for _ in range(5):
        driver.tick_only(1)
        world.wait(lambda: read_log(world.store).last_planned == Time(world.clock.time_ms()))
    driver.stop()
    again = started(world, build=build)
    for _ in range(3):
        again.tick_only(1)
        world.wait(lambda: read_log(world.store).last_planned == Time(world.clock.time_ms()))
    again.stop()
    assert world.records_by_time() == {at(6): (0, 1), at(9): (2, 3, 4), at(12): (5, 6, 7)}


def test_a_stored_zero_time_ahead_of_the_clock_loses_nothing() -> None:
    world = World()
    write_meta(world.store, Meta(Time(START + HOUR), Duration(INTERVAL)))
    world.produce(2)
    driver = started(world)
    for n in range(1, 3):
        driver.tick_only(1)
        world.wait(lambda n=n: driver.listener.completed() == [START + HOUR + k * INTERVAL for k in range(1, n + 1)])
    driver.stop()
    world.assert_exact()


def test_a_driver_killed_before_it_could_note_its_starting_point_as_done() -> None:
    world = World()
    driver = started(world)
    world.store.delete(names.done(Time(START), 1))
    driver.kill()
    world.produce(2)
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()
    assert read_log(world.store).pending == []


def test_an_input_is_restored_from_its_newest_plan_before_it_is_started() -> None:
    world = World()
    driver = failing(world, at(2))
    driver.tick(2)
    driver.tick(3)
    driver.stop()
    again = started(world)
    world.wait(lambda: again.listener.completed() == [at(2)])
    assert again.input.calls == ["restored", "start"] and again.input.cursor == 5


def test_an_input_that_cannot_be_restored_fails_the_start() -> None:
    world = World()
    driver = started(world)
    driver.tick(1)
    driver.stop()
    again = Driver(world)

    def refuse(_time: Time, _data: object) -> None:
        raise NotRecoverableError("queueStream doesn't support checkpointing")

    again.input.restored = refuse
    with pytest.raises(NotRecoverableError):
        again.start()


@pytest.mark.parametrize("killed_after", range(1, 13))
def test_a_window_of_ten_slides_after_a_restart_equals_that_of_a_run_that_never_stopped(killed_after: int) -> None:
    def build(_host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.map(lambda x: x * x).window(10))

    def run(restart_after: int | None) -> dict[int, tuple[object, ...]]:
        world = World()
        driver = started(world, build=build)
        for n in range(1, 25):
            driver.tick(n % 4)
            if restart_after is not None and n in (restart_after, 14):
                driver.kill()
                driver = started(world, build=build)
        driver.stop()
        return world.records_by_time()

    assert run(killed_after) == run(None)


def test_a_window_over_downtime_and_a_pending_batch_is_whole() -> None:
    def build(_host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.window(4))

    world = World()
    driver = failing(world, at(5), build=build)
    for _ in range(6):
        driver.tick(1)
    driver.stop()
    world.clock.advance(2 * INTERVAL)
    world.produce(2)
    again = started(world, build=build)
    world.wait(lambda: again.listener.completed() == [at(5), at(7), at(8)])
    seen = world.records_by_time()
    assert (seen[at(5)], seen[at(7)], seen[at(8)]) == ((1, 2, 3, 4), (3, 4, 5, 6, 7), (4, 5, 6, 7))


def test_an_input_added_by_new_code_takes_nothing_from_a_pending_batch() -> None:
    world = World()
    driver = failing(world, at(1))
    driver.tick(2)
    driver.stop()

    def build(host: FakeHost, driver: Driver) -> None:
        driver.output(driver.input.map(lambda x: x))
        other = LogInput(host, [])
        driver.output(other.map(lambda x: x))
        driver.output(driver.input.union(other))

    again = started(world, build=build)
    world.wait(lambda: again.listener.completed() == [at(1)])
    assert again.errors == []
    assert [a.records for a in world.attempts] == [(0, 1)] * 3
    again.tick(1)
    assert [a.records for a in world.attempts if a.time == at(2)] == [(2,), (), (2,)]


def test_many_restarts_in_a_row_leave_a_bounded_log() -> None:
    """CP13, over restarts."""
    world = World()
    for _ in range(12):
        driver = started(world)
        driver.tick(1)
        driver.tick(1)
        driver.stop()
    world.assert_exact()
    assert len(world.store.list("plans")) <= 4 and len(world.store.list("done")) <= 4


def test_a_stop_beside_a_restart_that_is_still_submitting_ends_it() -> None:
    world = World()
    driver = failing(world, at(1))
    driver.tick(1)
    driver.stop()
    world.clock.advance(5 * INTERVAL)
    again = Driver(world)
    gate = threading.Event()
    again.before_job = lambda _time: gate.wait(20)
    again.start()
    world.wait(lambda: len(world.attempts) == 2)
    gate.set()
    again.stop()
    world.assert_exact()


def test_a_start_that_left_only_void_plans_is_no_start_and_the_next_one_stores_its_own() -> None:
    """Else the next driver, killed before its first plan, would leave nothing that says where the stream began."""
    world = World()
    store = FaultyStore(world.store)
    tries = itertools.count()
    store.fault = lambda verb, name: "before" if name.startswith("plans/") and next(tries) == 0 else None
    with pytest.raises(PlanFailedError):
        Driver(world, store=store).start()
    assert [plan.void for plan in read_log(world.store).plans.values()] == [True]
    again = started(world)
    assert "starting_point" in again.input.calls and read_log(world.store).has_begun
    again.tick(2)
    again.stop()
    world.assert_exact()
