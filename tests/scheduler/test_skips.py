"""`kstream skip`: a pending batch runs without a record, in the driver that lives or in the next one, and names what it has left out."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.batch import SkippedRecord
from kstream.batch_time import Duration, Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.history import read_ledger, read_past
from kstream.checkpoint.skip_request import SkipRequest, ask_to_skip
from kstream.context.replay import Replayer
from kstream.dstream import ForEachDStream
from kstream.errors import CorruptRecordError
from tests.fakes import FakeEnvironment, FakeHost
from tests.harness import INTERVAL, START, Build, Driver, World
from tests.scheduler.retries import MINUTE, fails, passes
from tests.skipping import PoisonError, SkippingInput, left_out, poisoned, skip, written
from tests.stores import CountingStore

RETRIES = {"spark.streaming.kstream.batch.retries": "5"}
HOLD = {"spark.streaming.kstream.failedBatch": "hold", **RETRIES}
FIRST, SECOND, THIRD = (START + n * INTERVAL for n in (1, 2, 3))


def failed(world: World, conf: dict[str, str], *poison: int, **options: Any) -> Driver:
    """A driver whose first batch, of records 0 to 3, has failed and waits for its next try."""
    driver = poisoned(world, *poison, conf=conf, **options).start()
    fails(driver, 4)
    return driver


def test_a_living_driver_leaves_the_record_out_at_its_next_try() -> None:
    world = World()
    driver = failed(world, RETRIES, 2)
    skip(world.store, 2)
    passes(driver, 2_000)
    assert written(world)[FIRST] == (0, 1, 3) and left_out(world.store) == [(FIRST, 2)] and driver.errors == []
    driver.tick(2)
    assert written(world)[driver.clock.time_ms()] == (4, 5), "the ranges have not moved"


def test_a_restart_leaves_it_out_from_the_first_try_on() -> None:
    world = World()
    driver = failed(world, RETRIES, 2)
    driver.kill()
    skip(world.store, 2)
    again = poisoned(world, 2).start()
    again.settle()
    assert written(world)[FIRST] == (0, 1, 3) and left_out(world.store) == [(FIRST, 2)]
    assert [a.records for a in world.attempts if a.driver == again.number and a.time == FIRST] == [(0, 1, 3)]


def test_a_request_follows_its_stream_to_another_number_after_a_restart() -> None:
    """Both streams read a record with this offset. Only that of the stream that was asked for is left out."""

    def build(names: str) -> Build:
        def streams(host: Any, driver: Driver) -> None:
            host.graph._inputs.remove(driver.input)
            for name in names:
                driver.output(SkippingInput(host, logs[name]).setName(name))

        return streams

    world, logs = World(), {"a": ["a0", "a1"], "b": ["b0", "b1"]}
    first = Driver(world, RETRIES, build=build("ab"))

    def refuse(time: int) -> None:
        raise PoisonError(f"batch {time}")

    first.before_job = refuse
    first.start()
    fails(first, 0)
    first.kill()
    skip(world.store, 1, stream=1)
    again = Driver(world, build=build("ba")).start()
    again.settle()
    assert {a.records for a in world.attempts if a.driver == again.number and a.time == FIRST} == {("a0", "a1"), ("b0",)}


def test_each_of_two_poison_records_is_left_out_whenever_it_was_asked_for() -> None:
    world = World()
    driver = failed(world, RETRIES, 1, 3)
    skip(world.store, 1)
    passes(driver, 2_000)
    assert FIRST not in written(world)
    skip(world.store, 3)
    passes(driver, 4_000)
    assert written(world)[FIRST] == (0, 2) and left_out(world.store) == [(FIRST, 1), (FIRST, 3)]


def test_under_hold_later_batches_run_once_the_record_is_left_out() -> None:
    world = World()
    driver = failed(world, HOLD, 2, 5)
    driver.tick_only(3)
    driver.settle()
    skip(world.store, 2)
    skip(world.store, 5)
    passes(driver, 2_000)
    assert written(world)[FIRST] == (0, 1, 3)
    assert written(world)[SECOND] == (4, 6), "the list of the failed batch's retry has told of the held batch, too"
    assert [a.records for a in world.attempts if a.time == SECOND] == [(4, 6)]


def test_a_batch_with_its_retries_used_up_is_tried_without_the_record() -> None:
    world = World()
    driver = poisoned(world, 2).start()
    driver.tick(4)
    driver.wait_error(PoisonError)
    skip(world.store, 2)
    passes(driver, MINUTE)
    world.wait(lambda: FIRST in written(world))
    assert written(world)[FIRST] == (0, 1, 3)


def test_outputs_that_had_succeeded_do_not_run_again_and_the_completion_says_that_they_had_the_record() -> None:
    world = World()
    driver = poisoned(world, 2, conf=RETRIES)
    driver.output(driver.input)  # a second output, of which the first succeeds
    calls: list[int] = []

    def fails_second(time: int) -> None:
        calls.append(time)
        if len(calls) == 2:
            raise PoisonError(f"batch {time}")

    driver.before_job = fails_second
    driver.start()
    fails(driver, 4)
    skip(world.store, 2)
    passes(driver, 1_000)
    assert [a.records for a in world.attempts if a.time == FIRST] == [(0, 1, 2, 3), (0, 1, 2, 3), (0, 1, 3)]
    past = read_past(world.store, read_log(world.store).plans[Time(FIRST)])
    (left,) = past.skipped
    assert left.place == (0, "log", 0, 2) and left.read_by == (0,)
    assert [text.partition(" at ")[0] for text in left.outputs] == ["output operation 0, foreachRDD"]


def test_a_window_over_the_batch_is_made_again_without_the_record() -> None:
    world = World()
    window = Duration(2 * INTERVAL).seconds
    driver = poisoned(world, 2, conf=RETRIES, window=window).start()
    fails(driver, 4)
    fails(driver, 1)
    skip(world.store, 2)
    passes(driver, 5_000)
    assert written(world)[FIRST] == (0, 1, 3)
    assert written(world)[SECOND] == (0, 1, 3, 4), "its RDD was made with the record, before the request"
    driver.tick(1)


def test_a_window_after_a_restart_sees_an_ended_batch_as_it_ended() -> None:
    world = World()
    window = Duration(3 * INTERVAL).seconds
    driver = failed(world, RETRIES, 2, window=window)
    skip(world.store, 2)
    passes(driver, 2_000)
    driver.kill()
    skip(world.store, 1, time=Time(FIRST))  # too late: that batch had it
    again = poisoned(world, 2, window=window).start()
    again.tick(1)
    last = written(world)[again.clock.time_ms()]
    assert 2 not in last
    assert left_out(world.store) == [(FIRST, 2)]


def test_a_request_that_comes_after_the_end_changes_nothing_and_the_ledger_says_so() -> None:
    world = World()
    driver = poisoned(world).start()
    time = driver.tick(4)
    driver.settle()
    skip(world.store, 2)
    assert written(world)[time] == (0, 1, 2, 3) and left_out(world.store) == []
    assert [entry.kind for entry in read_ledger(world.store)] == ["not-skipped"]


def test_the_ledger_has_what_became_of_each_request() -> None:
    world = World()
    driver = failed(world, RETRIES, 2)
    skip(world.store, 2)
    assert [entry.kind for entry in read_ledger(world.store)] == ["to-skip"]
    passes(driver, 2_000)
    (entry,) = read_ledger(world.store)
    assert (entry.kind, entry.is_asked_for, entry.streams, entry.note) == ("skipped", True, {0: [SkippedRecord(0, "log", 0, 2)]}, "by me")


def test_a_skipped_record_is_no_loss_and_is_not_counted() -> None:
    world = World()
    driver = failed(world, RETRIES, 2)
    skip(world.store, 2)
    passes(driver, 1_000)
    past = read_past(world.store, read_log(world.store).plans[Time(FIRST)])
    assert past.counts == {0: [3]} and driver.listener.named("onDataLost") == []
    assert all(entry.kind != "lost" for entry in read_ledger(world.store))


def test_a_request_for_another_plan_of_the_batch_time_means_nothing() -> None:
    """A plan of another epoch at that time was never run: its request is not for this batch."""
    world = World()
    driver = failed(world, RETRIES, 2)
    ask_to_skip(world.store, SkipRequest(Time(FIRST), 7, SkippedRecord(0, "log", 0, 2), 5, "me"))
    passes(driver, 1_000)
    assert [a.records for a in world.attempts if a.time == FIRST] == [(0, 1, 2, 3)] * 2
    assert [entry.kind for entry in read_ledger(world.store)] == ["not-skipped"]


def test_a_driver_that_adopts_the_plan_adopts_the_request() -> None:
    world = World()
    driver = failed(world, RETRIES, 2)
    driver.kill()
    middle = poisoned(world, 2, conf=RETRIES).start()
    world.wait(lambda: sum(a.time == FIRST for a in world.attempts) == 2)
    skip(world.store, 2)
    assert read_log(world.store).plans[Time(FIRST)].epoch == 1 and middle.engine.epoch == 2
    passes(middle, 2_000)
    assert written(world)[FIRST] == (0, 1, 3) and left_out(world.store) == [(FIRST, 2)]


def test_an_input_that_cannot_leave_records_out_runs_the_batch_as_it_is() -> None:
    world = World()
    driver = Driver(world, RETRIES)
    tries: list[int] = []

    def once(time: int) -> None:
        tries.append(time)
        if len(tries) == 1:
            raise PoisonError("once")

    driver.before_job = once
    driver.start()
    fails(driver, 4)
    skip(world.store, 2)
    passes(driver, 2_000)
    assert written(world)[FIRST] == (0, 1, 2, 3) and left_out(world.store) == []


def test_a_damaged_request_holds_its_batch_back() -> None:
    world = World()
    driver = failed(world, {"spark.streaming.kstream.batch.retries": "1"}, 2)
    request = skip(world.store, 2)
    world.store.replace(request.name, world.store.read(request.name).replace(b'"offset":2', b'"offset":1'))
    passes(driver, 2_000)
    driver.wait_error(CorruptRecordError)
    assert FIRST not in written(world)


def test_a_healthy_batch_asks_for_no_request_and_a_retry_lists_once() -> None:
    world = World()
    counting = CountingStore(world.store)
    driver = poisoned(world, 5, conf=RETRIES, store=counting).start()
    driver.tick(4)
    driver.settle()
    assert not [call for call in counting.calls if names.SKIPPED in call[1]][1:], "the start has listed them"
    counting.calls.clear()
    fails(driver, 2)
    driver.world.poison = set()  # pyright: ignore[reportAttributeAccessIssue]
    skip(world.store, 5)
    passes(driver, 1_500)
    world.wait(lambda: driver.clock.time_ms() // INTERVAL and SECOND in written(world))
    assert [verb for verb, name, _ in counting.calls if name.startswith(names.SKIPPED)] == ["list", "read"]


@pytest.mark.parametrize("keep", ["0", "3600000"])
def test_after_clean_up_the_ledger_still_tells_and_the_history_names_the_record(keep: str) -> None:
    world = World()
    driver = failed(world, {**RETRIES, "spark.streaming.kstream.history": keep}, 2)
    skip(world.store, 2)
    passes(driver, 2_000)
    for _ in range(60):
        driver.tick(1)
    driver.settle()
    world.wait(lambda: Time(FIRST) not in read_log(world.store).plans)
    assert [entry.kind for entry in read_ledger(world.store)] == ["skipped"]


def test_a_replay_leaves_out_what_the_batch_has_left_out_and_nothing_that_was_asked_for_too_late() -> None:
    world = World()
    driver = poisoned(world, 2, conf={**RETRIES, "spark.streaming.kstream.history": "1h"}).start()
    fails(driver, 4)
    skip(world.store, 2)
    passes(driver, 2_000)
    driver.kill()
    skip(world.store, 1, time=Time(FIRST))
    host = FakeHost({}, INTERVAL)
    seen: list[list[Any]] = []
    stream = SkippingInput(host, world.log)
    host.graph.add_output_stream(ForEachDStream(stream, lambda _time, rdd: seen.append(rdd.records)))
    (batch,) = Replayer(host.graph, FakeEnvironment(), world.store, None).run(Time(FIRST), Time(FIRST))
    assert seen == [[0, 1, 3]] and batch.same
