"""Failed batches in a job with state: what is kept for them, what later batches go on from, and a lineage that stays short. No JVM."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import Any

import pytest

from kstream import State, StateSpec
from kstream.batch import BatchPlan, StateCheckpoint, SucceededOutput
from kstream.batch_time import Duration, Time
from kstream.checkpoint import PlanLog, read_log
from kstream.checkpoint.outcomes import read_failure
from kstream.checkpoint.settled import read_settled
from kstream.checkpoint.state_log import read_states
from kstream.dstream.stateful_dstream import StatefulDStream
from kstream.errors import CorruptRecordError
from kstream.scheduler.state_checkpointer import SavedStates, StoredStateCheckpointer
from kstream.storage import MemoryFileStore
from tests.fakes import FakeRDD, FakeStateDStream
from tests.harness import INTERVAL, START, Driver, World
from tests.stores import FaultyStore

MOST_DEEP = 100
"""About the number of batches after which the JVM's serializer overflows its stack."""
FAILED_BYTES = (
    b'{"at":5,"checksum":"94641f5e2db730f89336f651348528aa3abd95617b15fb5afaca87aa8acba20a","epoch":2,"kind":"failed","reason":"boom","states":{"s0":{"files":["state/a","state/b"],'
    b'"hashing":7,"partitions":2,"time":1000}},"time":1000,"version":1}'
)
FAILED_BEFORE_BYTES = (
    b'{"at":5,"checksum":"9b3c7e8a9807b8ecbcb0340968a9e77eebe5dfc5a7edabdcc876e578dc6c63b1",'
    b'"epoch":2,"kind":"failed","reason":"boom","time":1000,"version":1}'
)


class StackOverflow(Exception):
    """What a JVM meets that serializes too long a lineage."""


class LineageRDD(FakeRDD):
    """A state that is computed when it is read, of the state before; a local checkpoint cuts its lineage once it is computed."""

    def __init__(self, before: Any, new: Any) -> None:
        super().__init__([])
        self.before, self.new = before, new
        self.computed: list[Any] | None = None

    @property
    def depth(self) -> int:
        depth, rdd = 0, self
        while isinstance(rdd, LineageRDD) and not (rdd.cut and rdd.computed is not None):
            depth, rdd = depth + 1, rdd.before
        return depth

    @property
    def records(self) -> list[Any]:  # pyright: ignore
        if self.computed is None:
            if self.depth > MOST_DEEP:
                raise StackOverflow(f"a lineage of {self.depth} states")
            before = [] if self.before is None else self.before.records
            self.computed = [*before, *([] if self.new is None else self.new.records)]
        return self.computed

    @records.setter
    def records(self, _records: Any) -> None:
        """FakeRDD sets them."""


class LazyStateDStream(StatefulDStream):
    """As FakeStateDStream, computed when it is read."""

    def compute(self, time: Time) -> Any:
        new = self.dependencies[0].getOrCompute(time)
        return LineageRDD(self.previous(time), new)


def job(every: int = 10, lazy: bool = False) -> Callable[[Any, Driver], None]:
    def build(_host: Any, driver: Driver) -> None:
        state = (LazyStateDStream if lazy else FakeStateDStream)(driver.input, Duration(INTERVAL))
        state.set_checkpoint_interval(Duration(INTERVAL * every))
        driver.output(state)

    return build


def at(number: int) -> int:
    return START + number * INTERVAL


def failing(world: World, batches: Collection[int], **options: Any) -> Driver:
    """A driver whose output fails in these batches before it reads the state."""
    driver = Driver(world, build=job(**options))
    times = {at(number) for number in batches}
    begin = driver._job

    def job_or_error(time: Time, rdd: Any) -> None:
        if time.milliseconds in times:
            raise ValueError("the sink is away")
        begin(time, rdd)

    driver._job = job_or_error  # pyright: ignore
    for output in driver.host.graph.output_streams:
        output.redirect(job_or_error)
    return driver.start()


def files(world: World) -> dict[str, int]:
    return {folder: len(world.store.list(folder)) for folder in ("plans", "done", "failed", "state", "settled")}


def times_of_states(world: World) -> list[int]:
    return sorted({(int(name.split("-")[0]) - START) // INTERVAL for name in world.store.list("state")})


def settle(driver: Driver) -> None:
    """Until everything that is due is cleaned up."""
    driver.engine.wait_idle(20)
    driver.engine._generator._cleaner.stop(drain=True)


def tick_and_clean(driver: Driver) -> None:
    """One batch and its clean-up. A cleaner that is late takes several batches at once, and then fewer plans wait for their interval."""
    driver.tick(1)
    generator = driver.engine._generator
    assert driver.engine.wait_idle(20) and generator._loop.drain(20) and generator._cleaner.drain(20)


def test_the_cleaner_changes_nothing_that_the_thread_of_completions_may_be_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    """An iterator over a dict fails if the dict grows meanwhile."""
    reading: list[Iterator[Time]] = []
    broken: list[RuntimeError] = []
    needs = StoredStateCheckpointer._needs

    def read_meanwhile(checkpointer: StoredStateCheckpointer, *arguments: Any) -> Any:
        for iterator in reading:
            try:
                next(iterator, None)
            except RuntimeError as e:
                broken.append(e)
        reading.append(iter(checkpointer._needed))
        return needs(checkpointer, *arguments)

    monkeypatch.setattr(StoredStateCheckpointer, "_needs", read_meanwhile)
    driver = failing(World(), [3, 5], every=2)
    for _ in range(10):
        tick_and_clean(driver)
    driver.stop()
    assert len(reading) > 10 and not broken


@pytest.mark.parametrize("batches", [40, 400])
def test_one_failed_batch_keeps_one_old_state_and_the_plans_since_it_however_many_follow(batches: int) -> None:
    world, healthy = World(), World()
    for each, failed in ((world, [13]), (healthy, [])):
        driver = failing(each, failed)
        for _ in range(batches + 13):
            tick_and_clean(driver)
        settle(driver)
        driver.stop()
    assert times_of_states(world)[0] == 10 and times_of_states(world)[1:] == times_of_states(healthy)
    own, without = files(world), files(healthy)
    needed = {"plans": 14, "done": 13, "failed": 1, "state": 2, "settled": 1}  # two checkpoint intervals are remembered
    assert {folder: own[folder] - without[folder] for folder in own} == needed


def test_new_batches_go_on_from_the_newest_state_though_the_data_of_the_failed_batch_is_gone() -> None:
    """Retention has removed the records of all batches before the newest state."""
    world = World()
    driver = failing(world, [13])
    for _ in range(60):
        driver.tick(1)
    driver.stop()
    second = Driver(world, build=job())
    rdd = second.input.rdd
    read: list[int] = []

    def only_new(time: Time, plan: Any) -> Any:
        if plan["from"] < 50:
            raise ValueError("records removed")
        read.append(plan["from"])
        return rdd(time, plan)

    second.input.rdd = only_new
    second.start()
    for _ in range(3):
        second.tick(1)
    second.stop()
    assert world.records_by_time()[at(63)] == tuple(range(63))
    assert min(read) >= 50 and any("records removed" in str(error) for _, error in second.errors)
    assert read_log(world.store).pending == [Time(at(13))]


def test_a_failed_batch_runs_again_on_its_own_state_and_new_ones_go_on_from_theirs() -> None:
    world = World()
    driver = failing(world, [13, 27, 28])
    for _ in range(60):
        driver.tick(1)
    driver.stop()
    second = Driver(world, build=job()).start()
    for _ in range(30):
        second.tick(1)
    settle(second)
    second.stop()
    seen = world.records_by_time()
    assert [len(seen[at(number)]) for number in (13, 27, 28, 61, 90)] == [13, 27, 28, 61, 90]
    assert read_log(world.store).pending == [] and read_settled(world.store) == () and times_of_states(world)[0] >= 70


@pytest.mark.parametrize("every", [1, 3, 10])
def test_the_results_of_map_with_state_are_known_again_for_each_failed_batch(every: int) -> None:
    """Also where the state of the failed batch itself was written: its results are not in the files."""

    def counted(key: int, _value: int, state: State) -> tuple[int, int]:
        state.update((state.getOption() or 0) + 1)
        return key, state.get()

    def build(_host: Any, driver: Driver) -> None:
        pairs = driver.input.map(lambda n: (n % 2, n))
        states = pairs.mapWithState(StateSpec.function(counted).numPartitions(2)).checkpoint(Duration(INTERVAL * every))
        driver.output(states)

    world = World()
    driver = Driver(world, build=build)
    away = {at(number) for number in (5, 9, 10, 20, 25)}
    driver.before_job = lambda time: (_ for _ in ()).throw(ValueError("away")) if time in away else None
    driver.start()
    for _ in range(25):
        driver.tick(1)
    driver.stop()
    second = Driver(world, build=build).start()
    for _ in range(3):
        second.tick(1)
    second.stop()
    assert second.errors == [] and read_log(world.store).pending == []
    last = {a.time: a for a in world.attempts}
    for number in range(1, 29):
        assert last[at(number)].finished and last[at(number)].records == (((number - 1) % 2, (number + 1) // 2),), number


def test_a_newer_state_whose_files_are_missing_is_an_error_if_the_plans_since_the_older_one_are_removed() -> None:
    world = World()
    driver = failing(world, [13])
    for _ in range(60):
        driver.tick(1)
    settle(driver)
    driver.stop()
    for name in world.store.list("state"):
        if int(name.split("-")[0]) > at(13):
            world.store.delete(f"state/{name}")
    with pytest.raises(CorruptRecordError, match="plans up to batch"):
        Driver(world, build=job()).start()


# -- lineage


def test_five_hundred_failing_batches_leave_a_short_lineage_and_the_next_fifty_succeed() -> None:
    world = World()
    driver = failing(world, range(1, 501), lazy=True)
    state = driver.host.graph.active_states()[0]
    deepest = 0
    for number in range(1, 551):
        driver.tick(1)
        rdd = state._generated.get(Time(at(number)))
        deepest = max(deepest, getattr(rdd, "depth", 0))
    assert deepest <= 2 * state.longest_lineage
    assert [message for message, _ in driver.errors if "job" not in message] == [] and len(driver.errors) == 500
    assert world.attempts[-1].records == tuple(range(550)) and len(world.attempts) == 50
    driver.stop()
    second = Driver(world, build=job(lazy=True))
    rdd_of = second.input.rdd
    second.input.rdd = lambda time, plan: rdd_of(time, plan) if plan["from"] >= 350 else FakeGone()
    second.start()
    for _ in range(5):
        second.tick(1)
    second.stop()
    done = {a.time: a.records for a in world.attempts if a.driver == second.number and a.finished}
    assert [number for number in [*range(361, 501), *range(551, 556)] if done.get(at(number)) != tuple(range(number))] == []


class FakeGone(FakeRDD):
    """Records that retention has removed."""

    def __init__(self) -> None:
        super().__init__([])

    @property
    def records(self) -> list[Any]:  # pyright: ignore
        raise ValueError("records removed")

    @records.setter
    def records(self, _records: Any) -> None:
        """FakeRDD sets them."""


def test_without_computing_the_states_of_failed_batches_the_lineage_overflows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    monkeypatch.setattr("kstream.scheduler.state_checkpointer.StateCheckpointer.compute", lambda self, time: None)
    monkeypatch.setattr("kstream.scheduler.state_checkpointer.StoredStateCheckpointer.save", lambda self, time: SavedStates({}))
    world = World()
    driver = failing(world, range(1, 151), lazy=True)
    for _ in range(152):
        driver.tick(1)
    assert isinstance(driver.errors[-1][1], StackOverflow)
    driver.kill()


# -- the error of a state


def note_errors_of_states(driver: Driver, tries: list[Any]) -> None:
    """Note the error of the state of each try that fails."""
    scheduler: Any = driver.engine._scheduler
    fail = scheduler.fail

    def noting(batch: Any, at_ms: int, reason: str, job_set: Any) -> None:
        tries.append(job_set.state_error)
        fail(batch, at_ms, reason, job_set)

    scheduler.fail = noting


@pytest.mark.parametrize("by", ["output", "state"])
def test_an_error_of_the_state_is_told_from_one_of_an_output(by: str) -> None:
    world = World()
    driver = Driver(world, build=job(lazy=True))
    tries: list[Any] = []
    driver.start()
    note_errors_of_states(driver, tries)
    if by == "output":
        driver.before_job = lambda _time: (_ for _ in ()).throw(ValueError("the sink is away"))
    else:
        driver.input.rdd = lambda _time, _plan: FakeGone()  # pyright: ignore
    driver.tick(1)
    driver.stop()
    assert [type(error) for error in tries] == [type(None) if by == "output" else ValueError]


def test_blocks_that_were_lost_with_an_executor_are_no_error_of_the_state() -> None:
    class Lost(FakeGone):
        @property
        def records(self) -> list[Any]:  # pyright: ignore
            raise ValueError("Checkpoint block rdd_7_0 not found")

        @records.setter
        def records(self, _records: Any) -> None: ...

    world = World()
    driver = Driver(world, build=job(lazy=True)).start()
    tries: list[Any] = []
    note_errors_of_states(driver, tries)
    driver.input.rdd = lambda _time, _plan: Lost()  # pyright: ignore
    driver.tick(1)
    driver.stop()
    assert tries == [None]


# -- what is stored


def test_the_bytes_of_a_failure_with_states_and_without_as_before() -> None:
    store = MemoryFileStore("memory://failure-bytes")
    log = PlanLog(store, 2)
    for time, states in ((1000, {"s0": StateCheckpoint(Time(1000), ("state/a", "state/b"), 7)}), (1000, None)):
        log.fail(Time(time), 1, 5, "boom", states)
        expected = FAILED_BYTES if states else FAILED_BEFORE_BYTES
        assert store.read("failed/000000000001000-000001-000002") == expected
        store.delete("failed/000000000001000-000001-000002")


def test_the_bytes_of_a_failure_with_the_outputs_that_had_succeeded() -> None:
    store = MemoryFileStore("memory://failure-outputs")
    succeeded = (SucceededOutput(0, "foreachRDD at job.py:47", ("sums",)), SucceededOutput(2, "pprint at job.py:50"))
    PlanLog(store, 2).fail(Time(1000), 1, 5, "boom", succeeded=succeeded)
    name = "failed/000000000001000-000001-000002"
    assert b'"succeeded":[[0,"foreachRDD at job.py:47",["sums"]],[2,"pprint at job.py:50",[]]],"time":1000' in store.read(name)
    found = read_failure(store, name)
    assert found is not None and found.succeeded == succeeded
    store.replace(name, FAILED_BEFORE_BYTES)
    before = read_failure(store, name)
    assert before is not None and before.succeeded == ()


def test_states_that_a_failure_names_are_found_and_a_second_failure_names_those_of_the_first() -> None:
    store = MemoryFileStore("memory://failure-states")
    log = PlanLog(store, 1)
    log.write_plan(BatchPlan(Time(1000), 1, "n", {0: {}}, {}, Time(1000)))
    first, second = (StateCheckpoint(Time(1000), (f"state/000000000001000-000001-s0-00000-{n}",), 7) for n in "12")
    for state in (first, second):
        store.create(state.files[0], b"")
        assert log.fail(Time(1000), 1, 5, "boom", {"s0": state}) == {"s0": first}
    found = read_states(store, read_log(store), wanted=True)
    assert found.checkpoints == {"s0": [first]} and [name for name, _, _ in found.unnamed] == list(second.files)


def test_a_failure_that_the_store_refuses_names_no_state_and_the_next_batch_writes_it() -> None:
    world = World(FaultyStore(World().store))
    driver = failing(world, [2], every=2)
    world.store.fault = lambda verb, name: "before" if verb == "create" and name.startswith("failed/") else None
    for _ in range(5):
        driver.tick(1)
    driver.stop()
    assert driver.host.graph.active_states()[0]._written.time == Time(at(4))  # pyright: ignore
    again = Driver(world, build=job(2)).start()
    again.tick(1)
    again.stop()
    assert again.errors == [] and world.records_by_time()[at(6)] == tuple(range(6))


def test_a_state_that_is_named_while_old_ones_are_removed_is_kept() -> None:
    """The cleaner's thread has chosen what goes; then the end of a batch names a newer state."""
    world = World(FaultyStore(World().store))
    driver = failing(world, [], every=2)
    for _ in range(4):
        driver.tick(1)
    settle(driver)
    states = driver.engine._generator._parts.states
    newer = StateCheckpoint(Time(at(99)), ("state/newer",), 7)
    older = StateCheckpoint(Time(at(1)), ("state/older",), 7)
    states.named({"s0": older})

    def name_one(verb: str, name: str) -> None:
        if verb == "delete" and name == "state/older":
            states.named({"s0": newer})

    world.store.fault = name_one
    states.clean(Time(at(4)), set())
    assert isinstance(states, StoredStateCheckpointer) and newer in states._kept["s0"] and older not in states._kept["s0"]
    world.store.fault = lambda _verb, _name: None
    driver.kill()
