"""A changed batch interval: refused before any epoch is taken, and changed exactly if the user names the last batch."""

from __future__ import annotations

import logging

import pytest

from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, names, read_log, take_epoch
from kstream.checkpoint.interval_change import IntervalChange, read_change, write_change
from kstream.checkpoint.offline import move_streams
from kstream.errors import IntervalChangedError, StorageError
from kstream.storage import MemoryFileStore
from tests.fakes import FakeHost, FakeStateDStream
from tests.harness import INTERVAL, START, Build, Driver, World, at, failing, started, wait_for_timers
from tests.stores import FaultyStore

OLD, NEW = INTERVAL, 3 * INTERVAL
ALLOW = "spark.streaming.kstream.recovery.allow"


BYTES = (
    b'{"after":1700000004000,"checksum":"e8fc3efbf3cfa3d6efae9575c6ce3842d40592271fd14629ec87b84e4b386261",'
    b'"epoch":7,"interval":3000,"kind":"interval-change","version":1,"zero_time":1700000001000}'
)


def allowing(last: int) -> dict[str, str]:
    return {ALLOW: f"interval:{last}"}


def lived(batches: int = 4, build: Build | None = None) -> World:
    """A job with the old interval that has run so many batches of one record, and was stopped."""
    world = World()
    driver = Driver(world, build=build).start()
    for _ in range(batches):
        driver.tick(1)
    driver.stop()
    return world


def changed(world: World, last: int, build: Build | None = None, interval_ms: int = NEW) -> Driver:
    return Driver(world, allowing(last), build=build, interval_ms=interval_ms).start()


def tick(driver: Driver, produced: int = 1, interval_ms: int = NEW) -> int:
    """One batch of the new interval, and its time."""
    known = set(driver.listener.completed())
    driver.world.produce(produced)
    wait_for_timers(driver.clock)
    driver.clock.advance(interval_ms)
    driver.world.wait(lambda: set(driver.listener.completed()) - known)
    return max(driver.listener.completed())


# -- refused


def test_it_is_refused_before_an_epoch_is_taken_and_the_error_has_the_option_that_changes_it() -> None:
    world = lived()
    with pytest.raises(IntervalChangedError) as caught:
        Driver(world, interval_ms=NEW).start()
    assert f"kstream run --interval-changed-at {at(4)}" in str(caught.value) and f"{ALLOW}=interval:{at(4)}" in str(caught.value)
    assert (caught.value.facts["stored_ms"], caught.value.facts["given_ms"]) == (OLD, NEW)
    assert "epoch-2" not in world.store.list()


def test_a_batch_that_is_no_longer_the_last_changes_nothing() -> None:
    world = lived()
    with pytest.raises(IntervalChangedError, match=f"--interval-changed-at {at(4)}"):
        changed(world, at(3))
    assert "epoch-2" not in world.store.list()


def test_pending_batches_must_end_first() -> None:
    world = World()
    driver = failing(world, at(2))
    driver.tick(1)
    driver.tick(1)
    driver.stop()
    with pytest.raises(IntervalChangedError, match=rf"batches {at(2)} ms have not ended\. Start the job once more with its interval"):
        changed(world, at(2))
    assert "epoch-2" not in world.store.list()
    started(world).stop()
    changed(world, at(2)).stop()


# -- changed


@pytest.mark.parametrize(("interval_ms", "first", "second"), [(NEW, 1_005_000, 1_008_000), (500, 1_004_500, 1_005_000)])
def test_offsets_go_on_and_batch_times_lie_on_the_new_grid(interval_ms: int, first: int, second: int) -> None:
    """The last batch of the old interval is at 1,004,000 ms."""
    world = lived()
    driver = changed(world, at(4), interval_ms=interval_ms)
    assert [tick(driver, interval_ms=interval_ms), tick(driver, interval_ms=interval_ms)] == [first, second]
    driver.stop()
    assert [time for time in world.times() if time > at(4)] == [first, second]
    world.assert_exact()


def test_later_starts_need_no_option_and_the_old_interval_is_refused_in_its_turn(caplog: pytest.LogCaptureFixture) -> None:
    world = lived()
    with caplog.at_level(logging.WARNING, "kstream"):
        driver = changed(world, at(4))
    assert f"the batch interval is 3000 ms from now on, it was 1000 ms up to batch {at(4)} ms: windows begin anew" in caplog.text
    last = tick(driver)
    driver.stop()
    caplog.clear()
    with caplog.at_level(logging.WARNING, "kstream"):
        for conf in ({}, allowing(at(4))):  # the option may stay in a unit file
            again = Driver(world, conf, interval_ms=NEW).start()
            last = tick(again)
            again.stop()
    assert "does not need" not in caplog.text
    with pytest.raises(IntervalChangedError, match=f"was written with a batch interval of 3000 ms.*--interval-changed-at {last}"):
        started(world)
    back = changed(world, last, interval_ms=OLD)
    back.tick(1)
    back.stop()
    world.assert_exact()
    assert read_log(world.store).meta == Meta(Time(last), Duration(OLD), Time(last))
    assert world.store.list(names.INTERVAL_CHANGES) == ["000005"]


def test_missed_batches_are_made_on_the_new_grid() -> None:
    world = lived()
    world.produce(2)
    world.clock.advance(10 * INTERVAL)
    driver = changed(world, at(4))
    world.wait(lambda: len(driver.listener.completed()) == 4)
    driver.stop()
    assert driver.listener.completed() == [1_005_000, 1_008_000, 1_011_000, 1_014_000]
    world.assert_exact()


def windowed(host: FakeHost, driver: Driver) -> None:
    interval = host.graph.batch_duration
    driver.output(driver.input.window(Duration(6000), interval))


def test_a_window_has_only_batches_of_the_new_interval() -> None:
    world = lived(build=windowed)
    assert world.records_by_time()[at(4)] == (0, 1, 2, 3)
    driver = changed(world, at(4), windowed)
    times = [tick(driver) for _ in range(3)]
    driver.stop()
    again = Driver(world, interval_ms=NEW, build=windowed).start()
    times.append(tick(again))
    again.stop()
    assert [world.records_by_time()[time] for time in times] == [(4,), (4, 5), (5, 6), (6, 7)]


class Totals(FakeStateDStream):
    """As the totals of a window with an inverse."""

    survives_absence = False


def with_state(every: int, kind: type[FakeStateDStream] = FakeStateDStream) -> Build:
    """A state of all records, written every so many batches."""

    def build(host: FakeHost, driver: Driver) -> None:
        interval = host.graph.batch_duration
        state = kind(driver.input, interval)
        state.set_checkpoint_interval(interval * every)
        driver.output(state)

    return build


@pytest.mark.parametrize("every", [1, 2, 4])
def test_a_state_goes_on_if_it_is_stored_as_of_the_last_batch(every: int) -> None:
    world = lived(build=with_state(every))
    driver = changed(world, at(4), with_state(3))
    first = tick(driver)
    driver.stop()
    again = Driver(world, interval_ms=NEW, build=with_state(3)).start()
    times = [first, *(tick(again) for _ in range(4))]
    again.stop()
    last = Driver(world, interval_ms=NEW, build=with_state(3)).start()
    times.append(tick(last))
    last.stop()
    assert [world.records_by_time()[time] for time in times] == [tuple(range(n)) for n in range(5, 11)]


def test_totals_of_a_window_begin_anew_also_if_they_are_stored_as_of_the_last_batch() -> None:
    build = with_state(1, Totals)
    world = lived(build=build)
    assert any(names.parse_state(name) == (at_time(4), 1, "s0") for name in world.store.list(names.STATE))
    driver = changed(world, at(4), build)
    times = [tick(driver) for _ in range(2)]
    driver.stop()
    again = Driver(world, interval_ms=NEW, build=build).start()
    times.append(tick(again))
    again.stop()
    assert [world.records_by_time()[time] for time in times] == [(4,), (4, 5), (4, 5, 6)]


def test_a_state_that_is_older_than_the_last_batch_is_refused_with_what_to_do() -> None:
    world = lived(build=with_state(3))
    with pytest.raises(IntervalChangedError, match=rf"stored as of batch {at(3)} ms.*checkpoint\(1\) on that stream"):
        changed(world, at(4), with_state(3))
    assert "epoch-2" not in world.store.list()


# -- drivers that die, and drivers that were fenced


def test_a_driver_that_dies_before_its_first_plan_has_changed_the_interval() -> None:
    world = lived()
    changed(world, at(4)).kill()
    assert read_log(world.store).meta == Meta(Time(1_002_000), Duration(NEW), at_time(4))
    with pytest.raises(IntervalChangedError):
        started(world)
    driver = Driver(world, interval_ms=NEW).start()
    assert tick(driver) == 1_005_000
    driver.stop()
    world.assert_exact()


def at_time(number: int) -> Time:
    return Time(at(number))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("point", ["before-plan", "plan-durable", "running", "job-done"])
def test_a_driver_killed_in_the_first_batch_after_the_change_loses_nothing(point: str) -> None:
    world = lived(build=with_state(1))
    driver = changed(world, at(4), with_state(1))
    driver.die_at(point, 1)  # at 1,005,000 ms
    again = Driver(world, interval_ms=NEW, build=with_state(1)).start()
    tick(again)
    world.wait(lambda: 1_008_000 in again.listener.completed())
    again.stop()
    assert world.records_by_time()[1_005_000] == (0, 1, 2, 3, 4)
    assert world.records_by_time()[1_008_000] == (0, 1, 2, 3, 4, 5)
    assert [time for time in world.times() if time > at(4)][-2:] == [1_005_000, 1_008_000]


@pytest.mark.parametrize("fault", ["before", "after"])
@pytest.mark.parametrize("verb", ["create", "delete"])
def test_a_later_start_that_dies_while_it_writes_the_change_again_does_not_forget_it(verb: str, fault: str) -> None:
    world = lived()
    changed(world, at(4)).stop()
    now = read_log(world.store).meta
    assert now is not None and now.interval == Duration(NEW)
    faulty = FaultyStore(world.store)
    faulty.fault = lambda asked, name: fault if asked == verb and name.startswith(names.INTERVAL_CHANGES) else None
    with pytest.raises(StorageError):
        Driver(World(faulty, world.clock), interval_ms=NEW).start()
    assert read_log(world.store).meta == now
    driver = Driver(world, interval_ms=NEW).start()
    assert tick(driver) == 1_005_000
    driver.stop()
    world.assert_exact()


def test_a_record_that_a_fenced_driver_writes_late_does_not_count() -> None:
    """Epoch 2 was taken over by epoch 3, with the old interval, before it wrote its record."""
    world = lived()
    assert take_epoch(world.store, START) == 2
    driver = started(world)
    driver.tick(1)
    write_change(world.store, 2, IntervalChange(at_time(4), Time(1_002_000), Duration(NEW)))
    driver.tick(1)
    driver.stop()
    assert read_log(world.store).meta == Meta(Time(START), Duration(OLD))
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()


def test_offsets_that_a_command_moves_keep_the_new_interval() -> None:
    world = lived()
    changed(world, at(4)).kill()
    time, _ = move_streams(world.store, START, lambda contents: ({0: {"from": 4, "until": 4}}, {}))
    assert time == Time(1_005_000)
    meta = read_log(world.store).meta
    assert meta is not None and meta.interval == Duration(NEW)


def test_the_bytes_and_the_name_of_the_record() -> None:
    store = MemoryFileStore("memory://interval-change")
    change = IntervalChange(Time(1_700_000_004_000), Time(1_700_000_001_000), Duration(3000))
    write_change(store, 2, change)
    write_change(store, 7, change)
    assert store.list("interval-changes") == ["000007"]
    assert store.read("interval-changes/000007") == BYTES
    assert read_change(store) == change


def test_an_interval_that_has_never_changed_has_no_record() -> None:
    assert lived(1).store.list(names.INTERVAL_CHANGES) == []
