"""A receiver stream on a whole engine: what came since the last batch is the next; blocks that go, stops, listeners. No JVM."""

from __future__ import annotations

import socket
import threading
import time as real_time
from typing import Any

import pytest

from kstream.batch_time import Seconds, Time
from kstream.checkpoint import names
from kstream.dstream import DStream, ReceiverInputDStream
from kstream.dstream.ports import InputServices
from kstream.errors import BlocksLostError, ReceiverNotStartedError
from kstream.receiver import SocketReceiver, lines_of
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from tests.harness import INTERVAL, PATIENCE, START, Driver, World
from tests.receiver_driver import Quiet, ReceiverDriver, WaitingBlocks, records, together, windowed

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture
def world() -> World:
    return World()


def infos(driver: Driver) -> list[Any]:
    return [event.batchInfo() for event in driver.listener.named("onBatchCompleted")]


def test_each_batch_has_what_was_stored_since_the_last_in_order(world: World) -> None:
    """IS2: without blocks an empty RDD."""
    driver = ReceiverDriver(world).start()
    for batch in ([1, 2, 3], [], [4]):
        for number in batch:
            driver.receiver.store(number)
        driver.tick()
    assert records(world) == [[1, 2, 3], [], [4]]
    assert [info.numRecords() for info in infos(driver)] == [3, 0, 1]


def test_a_server_sends_five_lines_and_five_are_processed(world: World) -> None:
    """IS1: received = processed = 5."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        driver = ReceiverDriver(world, receiver=SocketReceiver("127.0.0.1", server.getsockname()[1], lines_of)).start()
        server.settimeout(PATIENCE)
        connection, _ = server.accept()
        with connection:
            for number in range(1, 6):
                connection.sendall(f"{number}\n".encode())
                world.wait(driver.waiting)
                driver.tick()
    assert records(world) == [[str(number)] for number in range(1, 6)]
    assert sum(info.numRecords() for info in infos(driver)) == 5
    driver.stop(graceful=False)


def test_a_batch_says_at_which_rate_its_receiver_was_told_to_store(world: World) -> None:
    driver = ReceiverDriver(world).start()
    driver.tick()
    driver.received.update_rate(700)
    driver.tick()
    told = [info.inputs[driver.received.id].facts["progress"].get("backpressureRate") for info in infos(driver)]
    assert told == [None, 700]


def test_a_plan_names_blocks_and_counts_in_the_order_of_arrival(world: World) -> None:
    """One that nobody has counted counts for nothing."""
    driver = ReceiverDriver(world).start()
    driver.receiver.storeAll([1, 2])
    driver.receiver.store(3)
    with_none = [*driver.waiting(), ReceivedBlockInfo(driver.received.id, "uncounted")]
    driver.received.services = InputServices(received_blocks=WaitingBlocks(with_none))
    plan = driver.received.plan(Time(START + INTERVAL))
    assert [block.num_records for block in plan.blocks] == [2, 1, None] and plan.num_records == 3


def test_input_ids_count_over_all_kinds_in_order_of_creation(world: World) -> None:
    """Spark behaviour IS9."""
    driver = ReceiverDriver(world)
    more = [ReceiverInputDStream(driver.host, Quiet()) for _ in range(2)]
    assert [driver.input.id, driver.received.id, *(stream.id for stream in more)] == [0, 1, 2, 3]


def test_an_input_that_feeds_no_output_is_not_started(world: World) -> None:
    """Spark behaviour SC19."""
    idle = Quiet()
    driver = ReceiverDriver(world)
    ReceiverInputDStream(driver.host, idle)
    driver.start().tick()
    assert not idle.started.is_set() and driver.errors == []


def test_what_a_plan_held_that_could_not_be_stored_goes_to_the_next_batch(world: World) -> None:
    driver = ReceiverDriver(world).start()
    driver.receiver.store(1)
    driver.received.plan(Time(START + INTERVAL))
    driver.receiver.store(2)
    driver.tick()
    assert records(world) == [[1, 2]]


def test_a_batch_time_that_has_its_blocks_gets_the_same_ones_again_and_new_blocks_go_to_the_next_batch(world: World) -> None:
    """BT2. The stream remembers its plans itself, so this holds without a checkpoint, too."""
    driver = ReceiverDriver(world).start()
    driver.receiver.store(1)
    driver.tick()
    driver.receiver.storeAll([2, 3])
    first = Time(START + INTERVAL)
    before = driver.received._plans[first]
    again = driver.received.plan(first)
    assert again == before and again.num_records == 1
    driver.received.remember_plan(first, again)
    driver.received.planned(first, again)
    driver.tick()
    assert records(world) == [[1], [2, 3]]


def test_blocks_go_when_no_batch_or_window_needs_them(world: World) -> None:
    """Spark behaviour BO22."""
    driver = ReceiverDriver(world, over=windowed).start()
    for number in range(20):
        driver.receiver.store(number)
        driver.tick()
    assert records(world)[-1] == [17, 18, 19]
    world.wait(lambda: len(driver.receivers.blocks) <= 4)


def test_of_a_persisted_stream_only_the_newest_batch_is_kept_and_old_blocks_are_gone_for_good(world: World) -> None:
    """BO22: six batches; the newest RDD is alive, the oldest let go, its blocks are away, and whoever asks for them is told."""
    made: list[Any] = []

    def persisted(stream: DStream) -> DStream:
        return stream.transform(lambda rdd: (made.append(rdd.map(lambda x: x)), made[-1])[1]).cache()

    driver = ReceiverDriver(world, over=persisted).start()
    plans: list[Any] = []
    for number in range(6):
        driver.receiver.store(number)
        plans.append(driver.received.plan(Time(world.clock.time_ms() + INTERVAL)))
        driver.tick()
    world.wait(lambda: all(rdd.unpersisted for rdd in made[:-1]))
    assert made[-1].is_cached and not made[-1].unpersisted
    world.wait(lambda: all(name not in driver.receivers.blocks for name in plans[0].block_ids))
    assert plans[0].blocks
    with pytest.raises(BlocksLostError):
        driver.received.rdd(Time(START + INTERVAL), plans[0])


def test_blocks_of_a_batch_that_waits_are_kept_while_later_ones_are_made(world: World) -> None:
    """JG1: batch 3 is held up until batch 10 has been made; its records are still there."""
    driver, gate = ReceiverDriver(world), threading.Event()
    driver.before_job = lambda time: gate.wait(PATIENCE) if time == START + 3 * INTERVAL else None
    driver.start()
    for number in range(1, 11):
        driver.receiver.store(number)
        driver.tick_only()
        made = START + number * INTERVAL
        world.wait(lambda made=made: any(names.parse_key(name)[0] == Time(made) for name in world.store.list("plans")))
    world.wait(lambda: len(world.attempts) == 3)
    assert len(driver.listener.completed()) < 3 and driver.received.remember_duration == Seconds(1)
    names_of_blocks = driver.received._plans[Time(START + 3 * INTERVAL)].block_ids
    assert [driver.receivers.blocks[name] for name in names_of_blocks] == [[3]]
    gate.set()
    world.wait(lambda: len(driver.listener.completed()) == 10)
    assert together(world) == list(range(1, 11)) and driver.errors == []


# -- stopping


def graceful_stop(driver: ReceiverDriver) -> threading.Thread:
    thread = threading.Thread(target=driver.stop)
    thread.start()
    return thread


def test_a_graceful_stop_runs_what_has_been_received(world: World) -> None:
    """Spark behaviour SC10."""
    driver = ReceiverDriver(world).start()
    driver.receiver.store(1)
    driver.tick()
    for number in (2, 3):
        driver.receiver.store(number)
    _advance_while(graceful_stop(driver), world)
    assert together(world) == [1, 2, 3]
    assert all(attempt.finished for attempt in world.attempts) and driver.errors == []


def test_a_graceful_stop_waits_until_a_slow_receiver_has_stored_its_last(world: World) -> None:
    """SC9: onStop blocks until all fifteen are in; batches go on meanwhile."""
    receiver = Quiet()
    driver = ReceiverDriver(world, receiver=receiver).start()
    paced = threading.Semaphore(0)

    def produce() -> None:
        for number in range(15):
            assert paced.acquire(timeout=PATIENCE)
            receiver.store(number)

    receiver.on_stop = produce
    stopping = graceful_stop(driver)
    for _ in range(15):
        paced.release()
        world.wait(lambda: driver.waiting() or not receiver.isStarted())
        world.clock.advance(INTERVAL)
    _advance_while(stopping, world)
    assert together(world) == list(range(15))


def test_a_graceful_stop_with_nothing_received_needs_no_further_batch(world: World) -> None:
    """SC8: and is over at once, even if the receiver has only just been started."""
    driver = ReceiverDriver(world).start()
    driver.stop()
    assert world.attempts == [] and driver.receiver.isStopped()


def test_a_graceful_stop_that_comes_while_the_receiver_is_still_starting_ends(world: World) -> None:
    """Spark behaviour SC8."""
    receiver, entered, stopped = Quiet(), threading.Event(), threading.Event()
    receiver.onStart = lambda: (entered.set(), stopped.wait(PATIENCE))
    receiver.on_stop = stopped.set
    driver = ReceiverDriver(world, receiver=receiver)
    Driver.start(driver)
    assert entered.wait(PATIENCE)
    stopping = graceful_stop(driver)
    stopping.join(PATIENCE)
    assert not stopping.is_alive() and stopped.is_set() and receiver.isStopped() and driver.errors == []


def test_a_graceful_stop_long_after_computes_no_batch_on_what_is_stopped(world: World) -> None:
    """Spark behaviour SC20."""
    driver = ReceiverDriver(world).start()
    driver.receiver.store(1)
    stopping = graceful_stop(driver)
    world.wait(driver.engine._generator._timer._stopping.is_set)
    world.clock.advance(1000 * INTERVAL)
    stopping.join(PATIENCE)
    assert not stopping.is_alive() and driver.errors == []
    assert len(world.attempts) <= 3 and together(world) == [1]


def _advance_while(stopping: threading.Thread, world: World) -> None:
    """Batch after batch until the stop has finished."""
    end = real_time.monotonic() + PATIENCE
    while stopping.is_alive() and real_time.monotonic() < end:
        world.clock.advance(INTERVAL)
        stopping.join(0.02)
    assert not stopping.is_alive()


# -- listeners


def test_listeners_hear_of_starts_errors_and_stops(world: World) -> None:
    """SL3: started 1, stopped 1, error message and exception text present, stream id."""
    driver = ReceiverDriver(world).start()
    driver.receiver.reportError("test report error", ValueError("test exception"))
    driver.receiver.stop("test stop")
    world.wait(lambda: driver.listener.named("onReceiverStopped"))
    (started, *_), (error,), (stopped,) = (driver.listener.named(f"onReceiver{kind}") for kind in ("Started", "Error", "Stopped"))
    assert started.receiverInfo().streamId() == driver.received.id and started.receiverInfo().active()
    assert error.receiverInfo().lastErrorMessage() == "test report error" and "test exception" in error.receiverInfo().lastError()
    assert stopped.receiverInfo().lastErrorMessage() == "test stop" and not stopped.receiverInfo().active()


def test_a_receiver_whose_start_always_fails_fails_the_job_with_its_own_error(world: World) -> None:
    """Otherwise the job would run on with empty batches for ever."""
    receiver = Quiet()

    def fails() -> None:
        receiver.started.set()
        raise ConnectionError("queue.example:5672 refuses the connection")

    receiver.onStart = fails
    driver = ReceiverDriver(world, receiver=receiver).start()
    driver.wait_error(ReceiverNotStartedError)
    ((message, error),) = driver.errors
    assert message == "a receiver does not start" and str(error).startswith("ConnectionError: queue.example:5672 refuses the connection. ")
    assert "Error starting receiver" in driver.listener.named("onReceiverStopped")[0].receiverInfo().lastErrorMessage()
