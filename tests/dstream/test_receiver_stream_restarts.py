"""What a receiver stream stores, and what a restart has of it: with a write-ahead log everything, without one no silent loss. No JVM."""

from __future__ import annotations

import json

import pytest

from kstream import crash_point
from kstream.batch_time import Time
from kstream.checkpoint.history import read_ledger
from kstream.dstream.ports import InputServices
from kstream.errors import BlocksLostError, ConfigurationError, NotRecoverableError
from kstream.receiver.received_block_tracker import ReceivedBlockInfo
from kstream.wal import FileBasedWriteAheadLogSegment
from tests.harness import INTERVAL, START, World
from tests.receiver_driver import ReceiverDriver, WaitingBlocks, killed_with_a_pending_batch, records, together, windowed

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of threads of dead drivers


@pytest.fixture
def world() -> World:
    return World()


# -- what is stored, and restarts without a log


def test_the_stored_form_of_a_batch_of_blocks(world: World) -> None:
    """Golden bytes: what a restart finds must not depend on the version."""
    driver = ReceiverDriver(world).start()
    assert json.dumps(driver.received.starting_point().encode()) == '{"kind": "blocks", "blocks": []}'
    waiting = WaitingBlocks(
        [
            ReceivedBlockInfo(1, "input-1-0123abcd-1", 2),
            ReceivedBlockInfo(1, "input-1-0123abcd-2", None, handle=FileBasedWriteAheadLogSegment("receivedData/1/log-0-60000", 4, 90)),
        ]
    )
    driver.received.services = InputServices(received_blocks=waiting)
    data = driver.received.plan(Time(START + INTERVAL)).encode()
    assert json.dumps(data) == (
        '{"kind": "blocks", "blocks": [["input-1-0123abcd-1", 2], ["input-1-0123abcd-2", null, ["receivedData/1/log-0-60000", 4, 90]]]}'
    )
    before = json.loads('{"blocks": [["input-1-0123abcd-1", 2], ["input-1-0123abcd-2", null, ["receivedData/1/log-0-60000", 4, 90]]]}')
    assert driver.received.decode(before).encode() == data, "the form of before, without the kind"


def test_blocks_that_died_with_the_driver_fail_their_batch_with_names_and_counts(world: World) -> None:
    time = killed_with_a_pending_batch(world)
    driver = ReceiverDriver(world).start()
    driver.wait_error(BlocksLostError)
    (error,) = [e for _, e in driver.errors if isinstance(e, BlocksLostError)]
    assert error.facts["time"] == time and [count for _, count in error.facts["blocks"]] == [2]
    assert "(2 records)" in str(error) and "onDataLoss=skip" in str(error)
    driver.receiver.store(4)
    driver.tick()
    assert records(world)[-1] == [4], "the stream goes on"


def test_a_batch_that_fails_at_every_restart_ends_in_the_ledger_with_its_blocks(world: World) -> None:
    time = killed_with_a_pending_batch(world)
    conf = {"spark.streaming.kstream.maxBatchFailures": "3"}
    for failures in (1, 2, 3, 4):
        driver = ReceiverDriver(world, conf).start()
        world.wait(lambda failures=failures: len(world.store.list("failed")) == failures)
        driver.kill()
    ReceiverDriver(world, conf).start()
    (entry,) = read_ledger(world.store)
    ((plan,),) = [list(entry.streams.values())]
    assert (entry.kind, entry.time) == ("given-up", Time(time)) and [count for _, count in plan["blocks"]] == [2]


@pytest.mark.parametrize(("policy", "told"), [("skip", 0), ("report", 1)])
def test_the_user_may_go_on_with_what_there_is_and_the_loss_is_written_down(world: World, policy: str, told: int) -> None:
    time = killed_with_a_pending_batch(world)
    driver = ReceiverDriver(world, {"spark.streaming.kstream.receiver.onDataLoss": policy}).start()
    world.wait(lambda: time in driver.listener.completed())
    assert records(world) == [[1], [2, 3], []] and driver.errors == []
    (entry,) = read_ledger(world.store)
    ((lost,),) = entry.streams.values()
    assert (entry.time, lost["records"], lost["cause"]) == (Time(time), 2, "driver death")
    world.wait(lambda: len(driver.listener.named("onDataLost")) == told)


def test_a_window_over_blocks_that_died_tells_of_each_once(world: World) -> None:
    killed_with_a_pending_batch(world, windowed)
    driver = ReceiverDriver(world, {"spark.streaming.kstream.receiver.onDataLoss": "skip"}, over=windowed).start()
    for number in (4, 5):
        driver.receiver.store(number)
        driver.tick()
    assert records(world)[-2:] == [[4], [4, 5]]
    lost = [entry for found in read_ledger(world.store) for entries in found.streams.values() for entry in entries]
    assert sorted(entry["records"] for entry in lost) == [1, 2]


def test_missed_batches_exist_and_what_comes_goes_to_the_next(world: World) -> None:
    driver = ReceiverDriver(world).start()
    driver.tick()
    driver.kill()
    world.clock.advance(3 * INTERVAL)
    second = ReceiverDriver(world).start()
    world.wait(lambda: len(world.attempts) == 4)  # a missed batch that is planned later takes what has come by then
    second.receiver.store(1)
    second.tick()
    assert records(world) == [[], [], [], [], [1]]


def test_an_unknown_policy_is_refused_at_the_start(world: World) -> None:
    with pytest.raises(ConfigurationError, match="perhaps"):
        ReceiverDriver(world, {"spark.streaming.kstream.receiver.onDataLoss": "perhaps"}).start()


def test_stored_data_of_another_kind_of_input_is_refused(world: World) -> None:
    with pytest.raises(NotRecoverableError, match="order in which the inputs are made"):
        ReceiverDriver(world).received.decode({"files": []})


# -- with a write-ahead log


def test_with_a_log_a_pending_batch_runs_again_with_the_same_blocks_and_what_waited_is_in_the_next(world: World) -> None:
    """BD1: all blocks have handles, and none is in a store any more."""
    time = killed_with_a_pending_batch(world, logged=True, meanwhile=[4, 5])
    second = ReceiverDriver(world, logged=True).start()
    second.receiver.store(6)
    second.tick()
    assert [(a.time, list(a.records)) for a in world.attempts[1:]] == [(time, [2, 3]), (time, [2, 3]), (time + INTERVAL, [4, 5, 6])]
    assert second.errors == [] and read_ledger(world.store) == []


def test_with_a_log_a_driver_that_dies_anywhere_loses_nothing_and_gives_no_block_to_two_batches(world: World) -> None:
    """One record a batch, and a death at each point of a batch's life in turn."""
    stored: list[int] = []
    for point in crash_point.CRASH_POINTS:
        driver = ReceiverDriver(world, logged=True).start()
        for _ in range(4):
            stored.append(len(stored))
            driver.receiver.store(stored[-1])
            driver.tick()
        stored.append(len(stored))
        driver.receiver.store(stored[-1])
        driver.die_at(point)
    last = ReceiverDriver(world, logged=True).start()
    last.tick()
    found = [record for records in world.records_by_time().values() for record in records]
    assert sorted(found) == stored and last.errors == []


def test_with_a_log_a_window_over_a_restart_is_whole(world: World) -> None:
    driver = ReceiverDriver(world, over=windowed, logged=True).start()
    for number in (1, 2):
        driver.receiver.store(number)
        driver.tick()
    driver.kill()
    second = ReceiverDriver(world, over=windowed, logged=True).start()
    second.receiver.store(3)
    second.tick()
    assert records(world)[-1] == [1, 2, 3]


def test_a_replaced_driver_acknowledges_no_block_any_more(world: World) -> None:
    """Its successor has read the log, and would not hear of it."""
    old = ReceiverDriver(world, logged=True).start()
    new = ReceiverDriver(world, logged=True).start()
    with pytest.raises(AssertionError):  # the sink's: the tracker said no
        old.receiver.store(1)
    new.receiver.store(2)
    new.tick()
    assert together(world) == [2]


def test_old_files_of_both_logs_go_with_the_batches_and_what_is_needed_stays(world: World) -> None:
    """Spark behaviours RC2 and BT6."""
    driver = ReceiverDriver(world, logged=True).start()
    for number in range(200):  # of which each is in a file of its own, of a minute
        driver.receiver.store(number)
        driver.tick()
    world.wait(lambda: len(world.store.list("receivedData/1")) < 100)
    world.wait(lambda: len(world.store.list("receivedBlockMetadata")) < 200)
    driver.receiver.store(200)
    driver.kill()
    second = ReceiverDriver(world, logged=True).start()
    second.tick()
    assert records(world)[-1] == [200]
