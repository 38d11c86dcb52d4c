"""What a file stream stores, and where it goes on after a restart, a death or a downtime. No JVM."""

from __future__ import annotations

import json
import operator
import uuid
from dataclasses import replace
from functools import reduce
from pathlib import Path
from typing import Any

import fsspec
import pytest

from kstream import crash_point
from kstream.batch import PlannedInput
from kstream.batch_time import Seconds, Time
from kstream.checkpoint import names, read_log
from kstream.checkpoint.format import encode_plan
from kstream.dstream import DStream, FileInputDStream
from kstream.errors import CorruptRecordError, NotRecoverableError
from tests.fakes import FakeHost, FakeRDD
from tests.harness import INTERVAL, START, World
from tests.inputs import FileDriver, arrives, batches, file_stream, last, write

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # of threads of dead drivers


@pytest.fixture(params=["local", "memory"])
def directory(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where files arrive: a local directory, or one of fsspec's."""
    if request.param == "memory":
        url = f"memory://{uuid.uuid4().hex}"
        fsspec.filesystem("memory").makedirs(url)
        return url
    (tmp_path / "in").mkdir()
    return str(tmp_path / "in")


@pytest.fixture
def world() -> World:
    return World()


def test_the_stored_form_of_a_batch_of_files(world: World, directory: str) -> None:
    """Golden bytes: what a restart finds must not depend on the version."""
    stream = FileDriver(world, directory).files
    assert _bytes(stream.starting_point()) == '{"files":[],"kind":"files","listed":1000000,"since":1000000}'
    arrives(world, directory, "ü", "1\n")
    where = stream._source.list(0)[0].path.removesuffix("ü")
    plan = stream.plan(Time(START + INTERVAL))
    assert _bytes(plan) == f'{{"files":[["{where}\\u00fc",1000500,2]],"kind":"files","listed":1001000,"since":1000000}}'
    stream.remember_plan(Time(START + INTERVAL), plan)
    arrives(world, directory, "ü", "1\n2\n")
    grown = stream.plan(Time(START + 2 * INTERVAL))
    assert _bytes(grown) == f'{{"changed":[["{where}\\u00fc",2,4]],"files":[],"kind":"files","listed":1002000,"since":1000000}}'


def test_a_batch_of_files_that_was_stored_without_its_kind_is_read_as_before(world: World, directory: str) -> None:
    stream = FileDriver(world, directory).files
    before = json.loads('{"changed":[["/in/a",2,4]],"files":[["/in/b",1000500,2]],"listed":1002000,"since":1000000}')
    assert stream.decode(before).encode() == {"kind": "files", **before}


def _bytes(plan: PlannedInput) -> str:
    return json.dumps(plan.encode(), sort_keys=True, separators=(",", ":"))


def test_a_new_stream_stores_from_when_on_files_count_before_its_first_batch(world: World, directory: str) -> None:
    """A driver that dies before its first plan: the next one does not skip what came in between."""
    driver = FileDriver(world, directory).start()
    driver.kill()
    arrives(world, directory, "between")
    world.clock.advance(10 * INTERVAL)
    second = FileDriver(world, directory).start()
    second.tick()
    assert [records for records in batches(world).values() if records] == [["between"]]


def test_a_file_taken_before_a_restart_is_not_taken_again_and_a_late_one_is(world: World, directory: str) -> None:
    driver = FileDriver(world, directory).start()
    for name in "abc":
        arrives(world, directory, name)
        driver.tick()
    driver.kill()
    arrives(world, directory, "late", ago=2900)
    second = FileDriver(world, directory).start()
    second.tick()
    assert last(world) == ["late"]
    assert {name for names in second.plans().values() for name in names} == {"a", "b", "c", "late"}


@pytest.mark.parametrize("downtime", ["catch-up", "by-timestamp"])
def test_missed_batches_take_the_files_of_their_times(world: World, directory: str, downtime: str) -> None:
    """CP8: what comes while no driver runs belongs to the missed batches, by its modification time; one listing for all of them."""
    driver = FileDriver(world, directory).start()
    driver.tick()
    driver.kill()
    for name in "abc":
        arrives(world, directory, name)
        world.clock.advance(INTERVAL)
    second = FileDriver(world, directory, {"spark.streaming.kstream.downtime": downtime}).start()
    arrives(world, directory, "d")
    second.tick()
    assert list(batches(world).values()) == [[], ["a"], ["b"], ["c"], ["d"]]
    assert second.source.listings == 2


def test_a_long_downtime_leaves_out_empty_batches_and_no_file(world: World, tmp_path: Path) -> None:
    directory = str(tmp_path / "in")
    (tmp_path / "in").mkdir()
    conf = {"spark.streaming.fileStream.minRememberDuration": "3s"}
    driver = FileDriver(world, directory, conf).start()
    driver.tick()
    driver.kill()
    begin = world.clock.time_ms()
    for number in (0, 700, 1500, 2999):
        write(f"{directory}/{number}", f"{number}\n", begin + number * INTERVAL + 1)
    write(f"{directory}/late", "late\n", begin - 500)  # appeared after the batch of its time
    world.clock.advance(3000 * INTERVAL)
    FileDriver(world, directory, conf).start()
    last = begin + 3000 * INTERVAL
    world.wait(lambda: any(a.time == last and a.finished for a in world.attempts) and all(a.finished for a in world.attempts))
    found = {time: records for time, records in batches(world).items() if records}
    assert found == {
        begin + INTERVAL: ["0", "late"],
        begin + 701 * INTERVAL: ["700"],
        begin + 1501 * INTERVAL: ["1500"],
        begin + 3000 * INTERVAL: ["2999"],
    }
    assert len(world.attempts) < 100


@pytest.mark.parametrize("point", crash_point.CRASH_POINTS)
def test_a_driver_killed_anywhere_gives_the_batches_of_one_that_never_stopped(world: World, tmp_path: Path, point: str) -> None:
    """FS1 by hand: a file a batch, a death at every moment of a batch's life; and a window over them."""
    twin_world = World()
    twin = FileDriver(twin_world, tmp_path / "in", over=_windowed).start()
    driver = FileDriver(world, tmp_path / "in", over=_windowed).start()
    (tmp_path / "in").mkdir()
    deaths = 0
    for number in range(12):
        write(tmp_path / "in" / str(number), f"{number}\n", world.clock.time_ms() + INTERVAL // 2)
        twin.tick()
        if number % 3 == 2 and deaths < 3:
            deaths += 1
            driver.die_at(point)
            driver = FileDriver(world, tmp_path / "in", over=_windowed).start()
        else:
            driver.tick()
    world.wait(lambda: max(world.times()) == max(twin_world.times()) and world.attempts[-1].finished)
    assert batches(world) == batches(twin_world)
    assert deaths == 3


def _windowed(stream: FileInputDStream) -> DStream:
    return stream.map(int).window(Seconds(4), Seconds(1))


def test_sums_over_a_window_come_out_as_if_the_driver_had_been_up(world: World, tmp_path: Path) -> None:
    """CP8: files 1, 2, 3, killed in batch 3; 4, 5, 6 while down; then 7, 8, 9. A sum over thirty batches."""
    directory = tmp_path / "in"
    directory.mkdir()

    def total(stream: FileInputDStream) -> DStream:
        whole = stream.map(int).window(Seconds(30), Seconds(1))
        return whole.transform(lambda rdd: FakeRDD([reduce(operator.add, rdd.records)] if rdd.records else []))

    driver = FileDriver(world, directory, over=total).start()
    blocked: list[int] = []

    def die_in_batch_three(time: int) -> None:
        if time == START + 3 * INTERVAL:
            blocked.append(time)
            driver.die()
            driver.check_alive()

    driver.before_job = die_in_batch_three
    for number in (1, 2, 3):
        arrives(world, str(directory), str(number))
        driver.tick() if number < 3 else driver.tick_only()
    world.wait(lambda: blocked)
    driver.kill()
    for number in (4, 5, 6):
        arrives(world, str(directory), str(number))
        world.clock.advance(INTERVAL)
    second = FileDriver(world, directory, over=total)
    second.start()
    world.wait(lambda: [n for names in second.plans().values() for n in names] == ["1", "2", "3", "4", "5", "6"])
    for number in (7, 8, 9):
        arrives(world, str(directory), str(number))
        second.tick()
    assert list(batches(world).values()) == [[n] for n in (1, 3, 6, 10, 15, 21, 28, 36, 45)]
    assert [a.time for a in world.attempts if a.driver == second.number] == [START + n * INTERVAL for n in range(3, 10)]
    assert [n for names in second.plans().values() for n in names] == [str(n) for n in range(1, 10)]


def test_stored_data_of_another_kind_of_input_is_refused(world: World, directory: str) -> None:
    stream = FileDriver(world, directory).files
    with pytest.raises(NotRecoverableError, match="order in which the inputs are made"):
        stream.decode({"from": 0, "until": 3})


@pytest.mark.parametrize("which", [0, -1], ids=["an older plan", "the newest plan"])
@pytest.mark.parametrize("data", [{"files": 7, "since": 0, "listed": 0}, {"files": []}, {"files": [["a"]], "since": 0, "listed": 0}])
def test_data_that_the_stream_cannot_read_is_a_damaged_plan(world: World, directory: str, data: dict[str, Any], which: int) -> None:
    first = FileDriver(world, directory)
    first.start()
    for number in (1, 2, 3):
        arrives(world, directory, str(number))
        first.tick()
    first.stop()
    plans = sorted(read_log(world.store).plans.values(), key=lambda plan: plan.time)
    name = names.plan(plans[which].time, plans[which].epoch)
    world.store.replace(name, encode_plan(replace(plans[which], inputs=dict.fromkeys(plans[which].inputs, data))))
    with pytest.raises(CorruptRecordError, match=rf"{name} is damaged \(its contents are of another form"):
        FileDriver(world, directory).start()


def test_an_input_made_by_its_class_says_why_its_graph_is_not_stored(world: World) -> None:
    stream = file_stream(FakeHost({}), "/in", world.clock)
    stream.register_recipe()
    assert stream.recorder.why_not == stream.no_recipe_reason
