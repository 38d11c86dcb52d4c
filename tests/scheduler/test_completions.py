"""A completion that the store refused is written as soon as the store works: a batch that has succeeded does not run again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from kstream import crash_point
from kstream.batch import BatchOutcome, InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint import format, names, read_log
from kstream.checkpoint.history import read_ledger
from kstream.dstream import ForEachDStream
from kstream.errors import StorageError
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, LogInput, faulty_world, started
from tests.scheduler.states import HISTORY, named, times_of_files, with_state
from tests.scheduler.stories import Kill, Story, check, nth
from tests.stores import CountingStore, no_completions, works

FIRST, SECOND, THIRD = (START + n * INTERVAL for n in (1, 2, 3))


def refused(driver: Driver, count: int, produced: int = 1) -> None:
    """So many batches whose jobs succeed and whose ends the store refuses."""
    driver.world.store.fault = no_completions
    for _ in range(count):
        driver.tick(produced)
    driver.wait_error(StorageError, count)


def test_batches_whose_ends_were_refused_do_not_run_again_at_a_restart() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    refused(driver, 8)
    assert len(read_log(faulty.inner).pending) == 8
    faulty.fault = works
    driver.tick(1)
    assert read_log(faulty.inner).pending == []
    driver.kill()
    again = started(world)
    again.tick(1)
    again.stop()
    world.assert_exact()
    assert len(world.times()) == 10


def test_a_refused_end_that_is_stored_in_the_moment_it_is_kept_leaves_no_failed_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """The generator's thread may write the completion before the thread that has kept it goes on: success must come last."""
    world, faulty = faulty_world()
    driver = started(world)
    completions, lifecycle = driver.engine._scheduler.completions, driver.engine.lifecycle
    keep, stored = lifecycle.refuse, list[int]()

    def keep_and_retry(time: Time, outcome: BatchOutcome) -> None:
        keep(time, outcome)
        faulty.fault = works
        stored.extend(completed.time.milliseconds for completed in completions.retry())

    monkeypatch.setattr(lifecycle, "refuse", keep_and_retry)
    refused(driver, 1)
    assert stored == [FIRST] and read_log(faulty.inner).pending == []
    assert driver.engine.lifecycle.unfinished() == set() and Time(FIRST) not in driver.engine.lifecycle
    driver.stop()


def test_the_message_says_who_tries_again() -> None:
    world, _ = faulty_world()
    driver = started(world)
    refused(driver, 1)
    (message,) = driver.messages()
    assert f"batch {FIRST} ms" in message and "the next batch tries it again" in message


def test_a_refused_end_is_written_before_the_next_plan_and_costs_a_healthy_batch_nothing() -> None:
    world, faulty = faulty_world()
    counting = CountingStore(faulty)
    driver = started(world, store=counting)
    refused(driver, 2)
    faulty.fault = works
    driver.engine._generator._cleaner.drain(5)
    counting.take()
    driver.tick(1)
    calls = [(verb, name.split("-")[0]) for verb, name, _ in counting.take() if verb != "delete"]
    late = [("create", f"done/{time:015d}") for time in (FIRST, SECOND)]
    batch = [("create", f"plans/{THIRD:015d}"), ("exists", "epoch"), ("create", f"done/{THIRD:015d}")]
    assert calls == [("exists", "epoch"), *late, *batch]
    driver.tick(1)
    assert len([call for call in counting.take() if call[0] != "delete"]) == 3


def test_while_the_store_is_down_one_refused_end_is_tried_with_each_batch() -> None:
    world, faulty = faulty_world()
    counting = CountingStore(faulty)
    driver = started(world, store=counting)
    refused(driver, 5)
    counting.take()
    driver.tick(1)
    tried = [name for verb, name, _ in counting.take() if verb == "create" and name.startswith("done/")]
    assert len(tried) == 2, "one that was refused before, and this batch's own"


def test_until_its_end_is_durable_a_batch_is_unfinished_for_commits_floor_and_clean_up() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    once = ["before"]
    faulty.fault = lambda verb, name: once[0] if name == names.done(Time(FIRST), 1) and verb == "create" else None
    for _ in range(5):
        driver.tick(1)
    driver.engine._generator.drain(5)
    driver.engine._generator._cleaner.drain(5)
    contents = read_log(faulty.inner)
    assert driver.input.unfinished == [FIRST] and Time(FIRST) in contents.plans
    assert contents.plans[contents.last_planned].floor == Time(FIRST)
    faulty.fault = works
    for _ in range(3):
        time = driver.tick(1)
    driver.engine._generator.drain(5)
    world.wait(lambda: not faulty.inner.exists(names.plan(Time(FIRST), 1)))
    assert driver.input.unfinished == [] and read_log(faulty.inner).plans[Time(time)].floor == Time(time)


def test_a_graceful_stop_tries_a_refused_end_once_more() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    refused(driver, 2)
    faulty.fault = works
    driver.stop()
    assert read_log(faulty.inner).pending == [] and driver.input.unfinished == []


def test_a_stop_that_cuts_off_leaves_the_batch_to_the_restart() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    refused(driver, 1)
    driver.stop(graceful=False)
    faulty.fault = works
    again = started(world)
    world.wait(lambda: FIRST in again.listener.completed())
    assert world.times() == [FIRST, FIRST]


def test_a_fenced_driver_writes_no_refused_end() -> None:
    world, faulty = faulty_world()
    a = started(world)
    refused(a, 1)
    faulty.fault = works
    b = Driver(world)
    gate = held_up(b)
    b.start()
    world.wait(lambda: len(world.attempts) == 2)
    a.tick_only(1)
    world.wait(lambda: a.fenced)
    a.stop()
    assert not faulty.inner.exists(names.done(Time(FIRST), 1)), "its successor is running that batch"
    gate()
    world.wait(lambda: FIRST in b.listener.completed())
    name = names.done(Time(FIRST), 1)
    assert format.decode("done", faulty.inner.read(name), name, dict)["epoch"] == 2
    b.stop()
    world.assert_exact()


def held_up(driver: Driver) -> Callable[[], None]:
    """Holds up every job until what is returned is called."""
    gate = threading.Event()
    driver.before_job = lambda _time: gate.wait(20)
    return gate.set


class RefusingStory(Story):
    """A driver whose store refuses the ends of the first batches; then it works, and the driver may be killed."""

    def __init__(self, kill: Kill, refusals: int) -> None:
        super().__init__(kill, jobs=1)
        self._left = refusals

    def _step(self, verb: str, name: str, done: bool) -> None:
        super()._step(verb, name, done)
        if not done and verb == "create" and name.startswith("done/") and int(name[5:20]) > START and self._left > 0:
            self._left -= 1
            raise StorageError("cannot write: No space left on device", path=name)


@pytest.mark.parametrize("refusals", [1, 2, 3])
@pytest.mark.parametrize("moment", [crash_point.BEFORE_PLAN, crash_point.PLAN_DURABLE, "before create done", "after create done"])
def test_a_driver_killed_around_the_late_write_misses_nothing_and_repeats_only_the_same(moment: str, refusals: int) -> None:
    for occurrence in range(1, 9):
        story = RefusingStory(nth(moment, occurrence), refusals)
        check(story.run())


def test_a_driver_killed_between_the_late_write_and_the_next_plan_has_written_it() -> None:
    world, faulty = faulty_world()
    driver = started(world)
    refused(driver, 1)
    faulty.fault = works
    driver.die_at(crash_point.BEFORE_PLAN, produced=1)
    again = started(world)
    world.wait(lambda: again.listener.completed())
    again.stop()
    world.assert_exact()
    assert world.times().count(FIRST) == 1


def test_states_that_a_late_completion_names_are_those_a_restart_goes_on_from() -> None:
    world, faulty = faulty_world()
    driver = Driver(world, HISTORY, build=with_state(2)).start()
    driver.tick(1)
    faulty.fault = no_completions
    driver.tick(1)
    driver.wait_error(StorageError)
    assert SECOND not in named(world) and SECOND in times_of_files(world)
    faulty.fault = works
    driver.die_at(crash_point.PLAN_DURABLE, produced=1)
    assert named(world)[SECOND] == {"s0": SECOND}
    again = Driver(world, HISTORY, build=with_state(2)).start()
    world.wait(lambda: THIRD in again.listener.completed())
    again.tick(1)
    again.stop()
    assert world.times().count(SECOND) == 1 and world.records_by_time()[THIRD + INTERVAL] == (0, 1, 2, 3)


def test_a_state_named_late_neither_replaces_a_newer_one_nor_stays_for_ever() -> None:
    world, faulty = faulty_world()
    driver = Driver(world, HISTORY, build=with_state(1)).start()
    faulty.fault = lambda verb, name: "before" if verb == "create" and name == names.done(Time(FIRST), 1) else None
    for _ in range(4):
        driver.tick(1)
    driver.wait_error(StorageError)
    assert len(driver.errors) == 1 and FIRST in times_of_files(world), "nothing may be removed that the batch would go on from"
    faulty.fault = works
    for _ in range(3):
        driver.tick(1)
    driver.stop()
    assert times_of_files(world) <= {START + n * INTERVAL for n in (6, 7)}
    again = Driver(world, HISTORY, build=with_state(1)).start()
    again.tick(1)
    again.stop()
    assert world.records_by_time()[START + 8 * INTERVAL] == tuple(range(8))


class Losing(LogInput):
    """Has lost something in every batch."""

    def outcome(self, time: Time, data: Mapping[str, Any]) -> InputOutcome:
        self.asked = [*getattr(self, "asked", []), time.milliseconds]
        lost: Sequence[Mapping[str, Any]] = [{"from": data["from"]}]
        return InputOutcome([1], lost, report=True)


def losing(host: FakeHost, driver: Driver) -> None:
    host.graph._inputs.clear()
    driver.input = Losing(host, driver.world.log)
    host.graph.add_output_stream(ForEachDStream(driver.input, driver._job))


def test_what_a_batch_lost_is_in_the_ledger_and_told_once_its_end_is_durable() -> None:
    world, faulty = faulty_world()
    driver = Driver(world, build=losing).start()
    faulty.fault = no_completions
    driver.tick(1)
    driver.wait_error(StorageError)
    assert driver.listener.named("onDataLost") == []
    faulty.fault = works
    driver.tick(1)
    world.wait(lambda: len(driver.listener.named("onDataLost")) == 2)
    assert [entry.time.milliseconds for entry in read_ledger(faulty.inner)] == [FIRST, SECOND]
    assert driver.input.asked == [FIRST, SECOND], "an input says once what a batch found"


def test_a_tick_without_jobs_notes_its_end_late_too() -> None:
    world, faulty = faulty_world()
    driver = started(world, build=lambda _h, d: d.output(d.input.window(2, 2)))
    faulty.fault = no_completions
    driver.tick_only(1)
    driver.wait_error(StorageError)
    faulty.fault = works
    driver.tick(1)
    driver.kill()
    assert read_log(faulty.inner).pending == []


def test_a_completion_that_stays_unreadable_is_given_up_and_holds_up_no_plan(caplog: pytest.LogCaptureFixture) -> None:
    """The name is taken, by bytes that say nothing: no later try would do better."""
    world, faulty = faulty_world()
    driver = Driver(world, HISTORY, build=with_state(1)).start()
    refused(driver, 1)
    faulty.fault = works
    faulty.inner.create(names.done(Time(FIRST), 1), b"damaged")
    with caplog.at_level(logging.ERROR, logger="kstream.scheduler.completions"):
        driver.tick(1)
        driver.tick(1)
    assert [r.levelname for r in caplog.records if "a restart runs it again" in r.getMessage()] == ["ERROR"]
    assert len(driver.errors) == 1


def test_a_look_for_a_newer_writer_that_fails_loses_no_refused_completion() -> None:
    """A look can fail in a way that is no StorageError: an error of the JVM's, while Spark stops."""
    world, faulty = faulty_world()
    driver = Driver(world).start()
    refused(driver, 1)
    completions = driver.engine._scheduler.completions
    probe, completions._log.probe = completions._log.probe, _no_answer
    with pytest.raises(ZeroDivisionError):
        completions.retry()
    completions._log.probe = probe
    faulty.fault = works
    assert [completion.time.milliseconds for completion in completions.retry()] == [FIRST]
    driver.kill()


def _no_answer() -> None:
    raise ZeroDivisionError
