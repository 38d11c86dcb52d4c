"""Receivers as the driver sees them: who may register, where they run again, what reaches them, how they end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kstream import Receiver
from kstream.errors import ReceiverNotStartedError
from kstream.receiver import messages
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation, Location
from kstream.receiver.receiver_tracker import ReceiverTracker, ReceiverTrackerConfig, TaskEnded
from kstream.rpc import of_body, to_body
from kstream.testing import ManualClock
from tests.receivers import executors_of

PATIENCE = 60.0


AT_ONCE = ReceiverTrackerConfig(restart_delay_ms=0, registration_s=0.01)


class Nothing(Receiver):
    def onStart(self) -> None: ...
    def onStop(self) -> None: ...


class Runner:
    """Runs nothing: a test registers, and ends, what would run."""

    def __init__(self, *executors: str) -> None:
        self.living = [ExecutorLocation(f"host{executor}", executor) for executor in executors]
        self.runs: list[tuple[int, int, list[Location]]] = []
        self.endings: dict[tuple[int, int], TaskEnded] = {}
        self.cancelled: list[int] = []
        self.stores_started = 0
        self.stores_forgotten: list[str] = []
        self.changed = threading.Condition()

    def executors(self) -> list[ExecutorLocation]:
        return list(self.living)

    def run(self, receiver: Receiver, stream_id: int, run: int, candidates: Sequence[Location], ended: TaskEnded) -> None:
        with self.changed:
            self.runs.append((stream_id, run, list(candidates)))
            self.endings[stream_id, run] = ended
            self.changed.notify_all()

    def start_stores(self, at_least: int = 0) -> None:
        with self.changed:
            self.stores_started += 1
            self.changed.notify_all()

    def forget_store(self, executor: str) -> None:
        self.stores_forgotten.append(executor)

    def first_attempt_runs(self, stage: int) -> bool:
        return stage == 7

    def cancel(self, stream_id: int) -> None:
        self.cancelled.append(stream_id)

    def wait(self, count: int) -> list[tuple[int, int, list[Location]]]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.runs) >= count, PATIENCE)
            return self.runs


class World:
    def __init__(self, receivers: int = 1, executors: str = "123", receiver: type[Receiver] = Nothing) -> None:
        self.runner = Runner(*executors)
        self.blocks = ReceivedBlockTracker(range(receivers), ManualClock(1000))
        self.events: list[Any] = []
        made = {stream: receiver() for stream in range(receivers)}
        config = ReceiverTrackerConfig(restart_delay_ms=0)
        self.tracker = ReceiverTracker(made, self.runner, self.blocks, ManualClock(1000), self.events.append, config)
        self.failures: list[ReceiverNotStartedError] = []
        self.tracker.start(self.failures.append)
        self.runner.wait(receivers)

    def ask(self, what: str, **fields: Any) -> dict[str, Any]:
        return of_body(self.tracker.handlers[what](to_body(**fields)))

    def register(self, stream: int = 0, run: int = 1, executor: str = "1") -> dict[str, Any]:
        return self.ask(messages.REGISTER_RECEIVER, stream=stream, run=run, executor=executor, host=f"host{executor}")

    def add(self, name: str, *executors: str, stream: int = 0, run: int = 1, stored_at: int = 0) -> bool:
        fields = {"id": name, "records": 1, "executors": executors, "metadata": None, "handle": None, "stored_at": stored_at}
        return self.ask(messages.ADD_BLOCK, stream=stream, run=run, **fields)["added"]

    def next(self, stream: int = 0, run: int = 1) -> dict[str, Any]:
        return self.ask(messages.NEXT_COMMAND, stream=stream, run=run)

    def kinds(self) -> list[str]:
        return [type(event).__name__.removeprefix("StreamingListenerReceiver") for event in self.events]


def test_receivers_lie_evenly_on_the_executors() -> None:
    """Spark behaviour RS2."""
    world = World(receivers=3)
    assert sorted(str(places[0]) for _, _, places in world.runner.runs) == ["executor_host1_1", "executor_host2_2", "executor_host3_3"]


def test_the_latest_run_of_a_receiver_may_register_once_and_nobody_else() -> None:
    world = World()
    assert not world.register(run=2)["accepted"] and not world.register(stream=7)["accepted"]
    assert world.register()["accepted"] and not world.register()["accepted"]
    assert world.kinds() == ["Started"] and executors_of(world.tracker) == {0: "1"}


def test_a_receiver_whose_task_ends_runs_again_and_its_old_run_is_not_heard() -> None:
    """Spark behaviour TR1."""
    world = World()
    world.register()
    world.runner.endings[0, 1]("executor lost")
    assert [(stream, run) for stream, run, _ in world.runner.wait(2)] == [(0, 1), (0, 2)]
    assert not world.register(run=1)["accepted"]
    assert world.next(run=1)["command"] == messages.STOP_RECEIVER
    assert world.register(run=2, executor="2")["accepted"]
    world.runner.endings[0, 1]("said twice")
    assert world.kinds() == ["Started", "Stopped", "Started"] and executors_of(world.tracker) == {0: "2"}


def test_a_receiver_holds_a_core_of_its_executor_until_its_task_ends() -> None:
    world = World(receivers=3, executors="1")
    for stream in range(3):
        world.register(stream, executor="1")
    assert world.tracker.receivers_on_executors() == {"1": 3}
    world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=1, message="Restarting receiver", error="")
    assert world.tracker.receivers_on_executors() == {"1": 3}, "the task of the first goes on"
    world.tracker.stop(0)
    world.runner.endings[0, 1]("executor lost")
    assert world.tracker.receivers_on_executors() == {"1": 2}


def test_a_receiver_that_has_not_registered_may_hold_a_core_of_each_of_its_candidates() -> None:
    world = World(receivers=2)
    first, second = ([place.executor_id for place in places] for _, _, places in sorted(world.runner.runs))
    assert sorted(first + second) == ["1", "2", "3"]
    assert world.tracker.receivers_on_executors() == {"1": 1, "2": 1, "3": 1}
    world.register(0, executor=first[0])
    assert world.tracker.receivers_on_executors() == {first[0]: 1, **dict.fromkeys(second, 1)}


def scheduled_on(world: World, run: int) -> list[str]:
    return [str(place) for _, number, places in world.runner.runs if number == run for place in places]


def test_a_receiver_that_was_started_elsewhere_than_it_was_scheduled_is_refused_and_scheduled_again() -> None:
    """As Spark's ReceiverTracker does: to the same executors, as long as one of them lives."""
    world = World(receivers=3)
    assert scheduled_on(world, 1)[1] == "executor_host2_2"
    assert not world.register(1, executor="3")["accepted"]
    world.runner.endings[1, 1]("")
    assert world.runner.wait(4)[3] == (1, 2, [ExecutorLocation("host2", "2")])
    assert world.register(1, run=2, executor="2")["accepted"]
    assert world.kinds() == ["Started"] and executors_of(world.tracker) == {0: None, 1: "2", 2: None}


def test_a_receiver_is_known_by_the_id_of_its_executor_whatever_that_calls_its_host() -> None:
    world = World(receivers=3)
    assert world.ask(messages.REGISTER_RECEIVER, stream=1, run=1, executor="2", host="10.0.0.2")["accepted"]


def test_a_receiver_whose_scheduled_executors_have_died_is_accepted_where_the_policy_would_send_it_now() -> None:
    world = World(receivers=3)
    world.register(0, executor="1")
    world.runner.living = [ExecutorLocation("host1", "1"), ExecutorLocation("host4", "4")]
    assert not world.register(1, executor="1")["accepted"], "the new executor is idle"
    assert world.register(1, executor="4")["accepted"]


def test_a_receiver_is_refused_three_times_in_a_row_and_then_runs_where_spark_starts_it() -> None:
    """Its executors may have no free core for as long as the stream runs: a receiver elsewhere is better than none."""
    world = World(receivers=3)
    for run in (1, 2, 3):
        assert not world.register(1, run=run, executor="3")["accepted"]
        world.runner.endings[1, run]("")
        assert world.runner.wait(3 + run)[2 + run] == (1, run + 1, [ExecutorLocation("host2", "2")])
    assert world.register(1, run=4, executor="3")["accepted"]
    world.runner.endings[1, 4]("executor lost")
    world.runner.wait(7)
    assert world.register(1, run=5, executor="2")["accepted"]
    world.ask(messages.DEREGISTER_RECEIVER, stream=1, run=5, message="restart", error="")
    assert world.register(1, run=5, executor="2")["accepted"], "a restart in its place"


def test_between_a_refusal_and_the_next_run_the_restart_delay_passes() -> None:
    """A receiver that is refused again and again is no hot loop."""
    runner, clock = Runner("1", "2"), ManualClock(0)
    made = {0: Nothing(), 1: Nothing()}
    tracker = ReceiverTracker(made, runner, ReceivedBlockTracker([0, 1], clock), clock, config=ReceiverTrackerConfig(restart_delay_ms=7000))
    waited: list[float] = []
    tracker._over.wait = lambda timeout=None: (waited.append(timeout or 0.0), False)[1]
    tracker.start()
    runner.wait(2)
    body = to_body(stream=0, run=1, executor="2", host="host2")
    assert not of_body(tracker.handlers[messages.REGISTER_RECEIVER](body))["accepted"]
    runner.endings[0, 1]("")
    runner.wait(3)
    assert waited == [7.0]


def test_the_thread_that_reports_the_end_of_a_task_does_not_wait_for_the_restart_delay() -> None:
    runner, clock = Runner("1"), ManualClock(0)
    tracker = ReceiverTracker(
        {0: Nothing()}, runner, ReceivedBlockTracker([0], clock), clock, config=ReceiverTrackerConfig(restart_delay_ms=7000)
    )
    waiting: list[threading.Thread] = []
    tracker._over.wait = lambda timeout=None: (waiting.append(threading.current_thread()), False)[1]
    tracker.start()
    runner.wait(1)
    runner.endings[0, 1]("executor lost")
    runner.wait(2)
    assert len(waiting) == 1 and waiting[0] is not threading.current_thread()


def test_a_receiver_that_waits_for_its_restart_does_not_run_once_the_receivers_are_stopped() -> None:
    runner, clock = Runner("1"), ManualClock(0)
    tracker = ReceiverTracker(
        {0: Nothing()}, runner, ReceivedBlockTracker([0], clock), clock, config=ReceiverTrackerConfig(restart_delay_ms=3_600_000)
    )
    tracker.start()
    runner.wait(1)
    runner.endings[0, 1]("executor lost")
    assert tracker.stop(PATIENCE)
    for restart in [thread for thread in threading.enumerate() if thread.name == "Receiver-0-restart"]:
        restart.join(PATIENCE)
    assert len(runner.runs) == 1


def test_in_local_mode_a_receiver_is_always_accepted() -> None:
    class Elsewhere(Nothing):
        def preferredLocation(self) -> str:
            return "elsewhere"

    runner = Runner()
    runner.living = [ExecutorLocation("localhost", "driver")]
    tracker = ReceiverTracker({0: Elsewhere(), 1: Elsewhere()}, runner, ReceivedBlockTracker([0, 1], ManualClock(0)), ManualClock(0))
    tracker.start()
    runner.wait(2)
    for stream in (0, 1):
        body = to_body(stream=stream, run=1, executor="driver", host="127.0.0.1")
        assert of_body(tracker.handlers[messages.REGISTER_RECEIVER](body))["accepted"]


def test_a_receiver_of_a_lost_executor_moves_to_one_that_lives() -> None:
    """Spark behaviour RS1."""
    world = World()
    world.register(executor="1")
    world.runner.living = world.runner.living[1:]
    world.runner.endings[0, 1]("executor lost")
    assert [str(place) for place in world.runner.wait(2)[1][2]] == ["executor_host2_2", "executor_host3_3"]


def test_a_block_can_be_read_where_its_stores_are_known_and_alive() -> None:
    world = World()
    for executor, port in (("1", 11), ("2", 12)):
        world.ask(messages.REGISTER_STORE, executor=executor, host=f"host{executor}", port=port)
    world.register()
    assert world.add("input-0-x-1", "1", "2", "never-heard-of")
    [block] = world.blocks.get_unallocated_blocks(0)
    assert [(r.executor_id, r.host, r.port) for r in world.tracker.replicas(block)] == [("1", "host1", 11), ("2", "host2", 12)]
    world.runner.living = world.runner.living[1:]
    world.runner.endings[0, 1]("executor lost")
    world.runner.wait(2)
    assert [r.executor_id for r in world.tracker.replicas(block)] == ["2"]


def test_a_receiver_is_told_of_the_stores_it_may_copy_to() -> None:
    world = World()
    world.ask(messages.REGISTER_STORE, executor="1", host="host1", port=11)
    assert world.register()["peers"] == [["1", "host1", 11]]
    world.ask(messages.REGISTER_STORE, executor="2", host="host2", port=12)
    world.tracker.send_rate_update(0, 100)
    assert world.next()["peers"] == [["1", "host1", 11], ["2", "host2", 12]]


def test_a_new_executor_gets_a_store_and_one_that_is_gone_is_no_peer_any_more() -> None:
    world = World(executors="12")
    for executor in "12":
        world.ask(messages.REGISTER_STORE, executor=executor, host=f"host{executor}", port=int(executor))
    world.register()
    world.runner.living = [world.runner.living[0], ExecutorLocation("host3", "3")]
    world.tracker.send_rate_update(0, 1)
    assert world.next()["peers"] == [["1", "host1", 1]]
    with world.runner.changed:
        assert world.runner.changed.wait_for(lambda: world.runner.stores_started == 2, PATIENCE)


def test_a_receiver_that_restarts_where_it_is_stops_and_starts_for_listeners() -> None:
    world = World()
    world.register()
    world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=1, message="Restarting receiver with delay 2000 ms: broken", error="")
    assert world.register()["accepted"], "of the same run, whose task goes on"
    assert world.kinds() == ["Started", "Stopped", "Started"] and len(world.runner.runs) == 1


def test_a_block_of_a_stream_that_is_not_there_is_refused() -> None:
    assert not World().add("input-7-x-1", "1", stream=7)


def test_commands_reach_a_receiver_in_order() -> None:
    world = World()
    world.register()
    world.tracker.send_rate_update(0, 100)
    world.tracker.send_rate_update(0, 200)
    first, second = world.next(), world.next()
    assert (first["command"], first["rate"]) == (messages.UPDATE_RATE_LIMIT, 100)
    assert (second["command"], second["rate"]) == (messages.UPDATE_RATE_LIMIT, 200)


def test_the_next_run_of_a_receiver_gets_the_rate_of_the_last_one() -> None:
    world = World()
    world.register()
    world.tracker.send_rate_update(0, 100)
    world.tracker.send_rate_update(0, 200)
    world.runner.endings[0, 1]("executor lost")
    world.runner.wait(2)
    world.register(run=2)
    command = world.next(run=2)
    assert (command["command"], command["rate"]) == (messages.UPDATE_RATE_LIMIT, 200)


def test_an_error_is_told_to_listeners_and_the_receiver_goes_on() -> None:
    world = World()
    world.register()
    world.ask(messages.REPORT_ERROR, stream=0, message="slow", error="OSError: no")
    info = world.events[-1].receiverInfo()
    assert world.kinds() == ["Started", "Error"] and info.active()
    assert (info.lastErrorMessage(), info.lastError(), info.lastErrorTime()) == ("slow", "OSError: no", 1000)


def test_stopping_waits_for_what_runs_and_nothing_runs_again() -> None:
    world = World(receivers=2)
    world.register(0)
    done: list[bool] = []
    stopping = threading.Thread(target=lambda: done.append(world.tracker.stop(PATIENCE)))
    stopping.start()
    assert world.next()["command"] == messages.STOP_RECEIVER
    assert world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=1, message="Stopped by driver", error="") == {}
    world.runner.endings[0, 1]("")
    assert not world.register(1, executor="2")["accepted"], "it comes too late"
    world.runner.endings[1, 1]("")
    stopping.join(PATIENCE)
    assert done == [True] and len(world.runner.runs) == 2 and world.runner.cancelled == []
    assert world.kinds() == ["Started", "Stopped"]


def test_a_receiver_that_never_got_a_core_is_not_waited_for() -> None:
    """It has stored nothing, and Spark may never run it."""
    runner = Runner("1")
    tracker = ReceiverTracker(
        {0: Nothing()},
        runner,
        ReceivedBlockTracker([0], ManualClock(0)),
        ManualClock(0),
        config=AT_ONCE,
    )
    tracker.start()
    runner.wait(1)
    runner.cancel = lambda stream: runner.endings[stream, 1]("cancelled")
    assert tracker.stop(PATIENCE)


def test_a_receiver_whose_executor_is_gone_is_not_waited_for() -> None:
    """Spark tries its task again where there is a core, and there may be none any more."""
    runner = Runner("1", "2")
    made = {0: Nothing(), 1: Nothing()}
    tracker = ReceiverTracker(made, runner, ReceivedBlockTracker([0, 1], ManualClock(0)), ManualClock(0), config=AT_ONCE)
    tracker.start()
    runner.wait(2)
    for stream, executor in enumerate("12"):
        body = to_body(stream=stream, run=1, executor=executor, host=f"host{executor}")
        tracker.handlers[messages.REGISTER_RECEIVER](body)
    runner.living = runner.living[1:]
    cut = list[int]()

    def cancel(stream: int) -> None:
        cut.append(stream)
        runner.endings[0, 1]("cancelled")
        runner.endings[1, 1]("it stored what it had")

    runner.cancel = cancel
    assert tracker.stop(PATIENCE) and cut == [0]


def test_a_stop_ends_though_spark_has_gone_meanwhile() -> None:
    world = World()
    world.register()
    done: list[bool] = []
    stopping = threading.Thread(target=lambda: done.append(world.tracker.stop(PATIENCE)))
    stopping.start()
    assert world.next()["command"] == messages.STOP_RECEIVER

    def gone() -> list[ExecutorLocation]:
        raise ConnectionError("the JVM is gone")

    world.runner.executors = gone
    world.runner.endings[0, 1]("")
    stopping.join(PATIENCE)
    assert done == [True]


def test_a_receiver_runs_again_also_where_the_executors_cannot_be_looked_at() -> None:
    world = World()
    world.register()
    look = world.runner.executors

    def fail() -> list[ExecutorLocation]:
        world.runner.executors = look
        raise ConnectionError("reset")

    world.runner.executors = fail
    world.runner.endings[0, 1]("its executor died")
    assert world.runner.wait(2)[1] == (0, 2, [])


def test_a_receiver_that_does_not_end_is_cut_off() -> None:
    world = World()
    world.register()
    assert world.tracker.stop(0.01) is False
    assert world.runner.cancelled == [0]


def test_without_receivers_that_run_a_stop_ends_at_once() -> None:
    assert World(receivers=0).tracker.stop(PATIENCE) is True


@pytest.mark.parametrize("preferred", ["host3", "elsewhere"])
def test_a_receiver_goes_where_it_would_like_to(preferred: str) -> None:
    """Spark behaviour RS3."""

    class Choosy(Nothing):
        def preferredLocation(self) -> str:
            return preferred

    runner = Runner("1", "2", "3")
    ReceiverTracker({0: Choosy()}, runner, ReceivedBlockTracker([0], ManualClock(0)), ManualClock(0)).start()
    [(_, _, places)] = runner.wait(1)
    assert str(places[0]) == ("executor_host3_3" if preferred == "host3" else "elsewhere")


def test_a_block_of_an_earlier_run_is_refused() -> None:
    """The later one may have cleaned the log that it lies in."""
    world = World()
    world.register()
    assert world.add("a", "1")
    world.runner.endings[0, 1]("its executor died")
    world.runner.wait(2)
    assert not world.add("b", "1") and world.add("c", "1", run=2)
    assert [block.block_id for block in world.blocks.get_unallocated_blocks(0)] == ["a", "c"]


def test_an_order_to_clean_spares_a_block_that_was_told_after_it_was_given() -> None:
    """It lay in the receiver's log for long before the driver heard of it, and is needed."""
    world = World()
    world.register()
    world.tracker.clean_up(0, 5000)
    assert world.next()["threshold"] == 5000
    world.tracker.clean_up(0, 6000)
    assert world.add("late", "1", stored_at=3000)
    assert world.next()["threshold"] == 3000


class Picky(Nothing):
    def preferredLocation(self) -> str | None:
        raise OSError("no such host")


def test_a_preferred_location_that_raises_is_told_and_the_receiver_runs_somewhere() -> None:
    world = World(receiver=Picky)
    assert len(world.runner.runs) == 1 and world.kinds()[0] == "Error"
    world.runner.endings[0, 1]("")
    world.runner.wait(2)


def test_once_the_receivers_have_been_stopped_no_block_is_taken_that_no_batch_would_have() -> None:
    world = World()
    world.register()
    assert world.add("a", "1")
    stopping = threading.Thread(target=lambda: world.tracker.stop(PATIENCE))
    stopping.start()
    assert world.next()["command"] == messages.STOP_RECEIVER and world.add("b", "1")
    world.runner.endings[0, 1]("")
    stopping.join(PATIENCE)
    assert not world.add("c", "1")
    assert [block.block_id for block in world.blocks.get_unallocated_blocks(0)] == ["a", "b"]


# -- receivers that never start

NO_MODULE = "KStreamError: the block store of this executor did not come up: No module named 'kstream'"


def task_raises(world: World, run: int) -> None:
    """The task raises before the receiver has registered. On a cluster Spark then makes an attempt that ends at once."""
    world.ask(messages.REPORT_ERROR, stream=0, run=run, message="Error starting receiver 0", error=NO_MODULE, ends=True)
    world.runner.endings[0, run]("")


def task_raises_in_local_mode(world: World, run: int) -> None:
    world.ask(messages.REPORT_ERROR, stream=0, run=run, message="Error starting receiver 0", error=NO_MODULE, ends=True)
    world.runner.endings[0, run](f"kstream.errors.{NO_MODULE}", True)


def on_start_raises(world: World, run: int) -> None:
    world.register(run=run)
    world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=run, message="Error starting receiver 0", error=NO_MODULE)
    world.runner.endings[0, run]("")


def worker_cannot_load_it(world: World, run: int) -> None:
    world.runner.endings[0, run](NO_MODULE, True)


def after_runs(world: World, runs: Iterator[int], count: int, end: Callable[[World, int], None]) -> list[ReceiverNotStartedError]:
    """The failures of the job after so many more runs that end so. Returns when the next run has begun."""
    for _ in range(count):
        run = next(runs)
        end(world, run)
        world.runner.wait(run + 1)
    return world.failures


@pytest.mark.parametrize(
    ("end", "heard"),
    [
        (task_raises, ["Error"]),
        (task_raises_in_local_mode, ["Error"]),
        (on_start_raises, ["Started", "Stopped"]),
        (worker_cannot_load_it, ["Error"]),
    ],
)
def test_ten_ends_by_an_exception_before_any_start_fail_the_job_once_and_listeners_hear_of_each(
    end: Callable[[World, int], None], heard: list[str]
) -> None:
    world, runs = World(executors="1"), iter(range(1, 100))
    assert after_runs(world, runs, 9, end) == []
    (error,) = after_runs(world, runs, 1, end)
    assert str(error).startswith(f"{NO_MODULE}. That is the last of 10 errors in a row") and error.facts["receiver"] == "Nothing-0"
    assert after_runs(world, runs, 15, end) == [error], "it is tried on"
    assert world.kinds() == heard * 25 and world.events[-1].receiverInfo().lastError() == NO_MODULE


def test_executors_that_are_lost_and_refusals_fail_no_job() -> None:
    world, runs = World(executors="12"), iter(range(1, 100))

    def refused(world: World, run: int) -> None:
        assert not world.register(run=run + 1)["accepted"]
        world.runner.endings[0, run]("")

    def lost(world: World, run: int) -> None:
        world.runner.endings[0, run]("ExecutorLostFailure (executor 1 exited caused by one of the running tasks)")

    def lost_after_it_had_registered(world: World, run: int) -> None:
        assert world.register(run=run)["accepted"]
        lost(world, run)

    for end in (refused, lost, lost_after_it_had_registered):
        assert after_runs(world, runs, 20, end) == []


def test_a_receiver_that_has_started_is_counted_anew_and_its_own_errors_fail_no_job() -> None:
    world, runs = World(executors="1"), iter(range(1, 100))

    def starts_then_stops(world: World, run: int) -> None:
        world.register(run=run)
        world.ask(messages.ON_START_RETURNED, stream=0, run=run - 1)
        world.ask(messages.ON_START_RETURNED, stream=0, run=run)
        world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=run, message="broken", error="ValueError: no")
        world.runner.endings[0, run]("")

    assert after_runs(world, runs, 9, task_raises) == []
    assert after_runs(world, runs, 20, starts_then_stops) == []
    assert after_runs(world, runs, 9, task_raises) == []
    assert len(after_runs(world, runs, 1, task_raises)) == 1


def test_a_receiver_that_stores_in_an_on_start_that_never_returns_has_started() -> None:
    world, runs = World(executors="1"), iter(range(1, 100))

    def stores_until_it_is_disconnected(world: World, run: int) -> None:
        world.register(run=run)
        assert world.add(f"block-{run}", "1", run=run)
        world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=run, message="Error starting receiver 0", error="OSError: disconnected")
        world.runner.endings[0, run]("")

    assert after_runs(world, runs, 20, stores_until_it_is_disconnected) == []


def test_a_restart_with_an_error_is_no_failed_start_when_the_executor_is_lost_later() -> None:
    world, runs = World(executors="1"), iter(range(1, 100))

    def restarts_then_is_lost(world: World, run: int) -> None:
        world.register(run=run)
        error = {"message": "the source is away", "error": "OSError: refused"}
        world.ask(messages.DEREGISTER_RECEIVER, stream=0, run=run, ends=False, **error)
        world.register(run=run)
        world.runner.endings[0, run]("ExecutorLostFailure (executor 1 exited)")

    assert after_runs(world, runs, 20, restarts_then_is_lost) == []


def test_errors_that_end_no_run_and_those_of_earlier_runs_are_not_counted() -> None:
    world, runs = World(executors="1"), iter(range(1, 100))

    def only_reports(world: World, run: int) -> None:
        for number, ends in ((run, False), (run - 1, True)):
            world.ask(messages.REPORT_ERROR, stream=0, run=number, message="a fault", error="ValueError: no", ends=ends)
        world.runner.endings[0, run]("")

    assert after_runs(world, runs, 20, only_reports) == []


def test_a_receiver_that_ends_by_an_exception_during_a_stop_fails_no_job() -> None:
    world, runs = World(executors="1"), iter(range(1, 100))
    assert after_runs(world, runs, 9, task_raises) == []
    assert not world.tracker.stop(0)
    task_raises(world, next(runs))
    assert world.failures == []
