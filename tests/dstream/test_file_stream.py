"""A file stream on a whole engine: each file in one batch, whatever becomes of the driver. No JVM."""

from __future__ import annotations

import json
import logging
import operator
import uuid
from functools import reduce
from pathlib import Path
from typing import Any

import fsspec
import pytest

from kstream import crash_point
from kstream.batch import InputPlan
from kstream.batch_time import Seconds, Time
from kstream.checkpoint.ledger import read_ledger
from kstream.dstream import DStream, FileInputDStream
from kstream.errors import DataLossError, FileLostError, NotRecoverableError, PlanFailedError, UnsupportedStoreError
from kstream.files import FixedRecords
from tests.fakes import FakeRDD
from tests.harness import INTERVAL, START, Killed, World
from tests.inputs import FileDriver, batches, write

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


def arrives(world: World, directory: str, name: str, text: str | None = None, ago: int = 0) -> None:
    """A file that is modified half a batch from now, so that the next batch takes it; or so long ago."""
    mtime = world.clock.time_ms() + INTERVAL // 2 if not ago else world.clock.time_ms() - ago
    write(f"{directory}/{name}", text or f"{name}\n", mtime)


def last(world: World) -> list[Any]:
    return list(world.attempts[-1].records)


# -- the rules


def test_each_batch_has_the_lines_of_the_files_that_came_since_the_last(world: World, directory: str) -> None:
    driver = FileDriver(world, directory).start()
    for names in (["a"], ["b", "c"], [], ["d"]):
        for name in names:
            arrives(world, directory, name, f"{name}1\n{name}2\n")
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [["a1", "a2"], ["b1", "b2", "c1", "c2"], [], ["d1", "d2"]]
    assert driver.source.listings == 4, "one listing a batch"


def test_records_of_a_fixed_length_come_file_by_file(world: World, directory: str) -> None:
    """IS3."""
    driver = FileDriver(world, directory, format=FixedRecords(1)).start()
    for text in ("abc", "de"):
        arrives(world, directory, text, text)
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[b"a", b"b", b"c"], [b"d", b"e"]]


@pytest.mark.parametrize(("new_only", "taken"), [(True, ["new"]), (False, ["new", "there"])])
def test_what_was_there_before_is_taken_only_if_that_is_asked_for(world: World, directory: str, new_only: bool, taken: list[str]) -> None:
    """IS4."""
    arrives(world, directory, "there", ago=5000)
    driver = FileDriver(world, directory, newFilesOnly=new_only).start()
    arrives(world, directory, "new")
    driver.tick()
    driver.tick()
    assert [list(a.records) for a in world.attempts] == [taken, []]


def test_a_file_that_came_between_making_the_stream_and_starting_it_is_new(world: World, directory: str) -> None:
    driver = FileDriver(world, directory)
    arrives(world, directory, "early")
    world.clock.advance(3 * INTERVAL)
    driver.start()
    driver.tick()
    assert last(world) == ["early"]


def test_directories_that_match_are_watched_and_may_come_later(world: World, directory: str) -> None:
    """IS5."""
    driver = FileDriver(world, f"{directory}/*/").start()
    for number in range(10):
        arrives(world, f"{directory}/sub{number % 2}", str(number))
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[str(number)] for number in range(10)]


def test_of_a_directory_moved_in_only_the_files_of_the_window_are_read(world: World, tmp_path: Path) -> None:
    """IS6."""
    write(tmp_path / "generated" / "sub" / "existing", "existing\n", START - 1)
    (tmp_path / "streaming").mkdir()
    driver = FileDriver(world, tmp_path / "streaming" / "sub*").start()
    driver.tick()
    write(tmp_path / "generated" / "sub" / "renamed", "renamed\n", world.clock.time_ms() + INTERVAL // 2)
    (tmp_path / "generated" / "sub").rename(tmp_path / "streaming" / "subdir")
    driver.tick()
    assert [list(a.records) for a in world.attempts] == [[], ["renamed"]]


def test_a_file_that_shows_up_late_is_taken_within_the_remember_window(world: World, directory: str) -> None:
    """IS10, with a window of three batches."""
    conf = {"spark.streaming.fileStream.minRememberDuration": "2500ms"}
    driver = FileDriver(world, directory, conf).start()
    for _ in range(5):
        driver.tick()
    arrives(world, directory, "late", ago=1999)
    arrives(world, directory, "too late", ago=2000)
    driver.tick()
    assert last(world) == ["late"]


def test_a_file_of_a_clock_that_is_ahead_is_taken_by_the_batch_of_its_time(world: World, directory: str) -> None:
    driver = FileDriver(world, directory).start()
    arrives(world, directory, "ahead", ago=-2500)
    for _ in range(4):
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[], [], ["ahead"], []]


def test_the_users_filter_sees_whole_paths(world: World, directory: str) -> None:
    driver = FileDriver(world, directory, filter=lambda path: path.startswith(("/", "memory://")) and path.endswith(".csv")).start()
    arrives(world, directory, "a.csv")
    arrives(world, directory, "b.txt")
    driver.tick()
    assert last(world) == ["a.csv"]


def test_a_filter_that_raises_leaves_the_files_to_the_next_batch(world: World, directory: str) -> None:
    answers = iter([ZeroDivisionError("the user's"), True])

    def keep(_path: str) -> bool:
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    driver = FileDriver(world, directory, filter=keep).start()
    arrives(world, directory, "a")
    driver.tick_only()
    driver.wait_error(ZeroDivisionError)
    driver.tick()
    assert batches(world) == {START + 2 * INTERVAL: ["a"]}


def test_listeners_are_told_the_files_and_no_number_of_records(world: World, directory: str) -> None:
    """IS10: file streams report numRecords 0."""
    driver = FileDriver(world, directory).start()
    arrives(world, directory, "a", "1\n2\n")
    arrives(world, directory, "b")
    driver.tick()
    info = driver.listener.named("onBatchCompleted")[0].batchInfo()
    (source,) = info.streamIdToInputInfo().values()
    assert info.numRecords() == 0
    assert source.metadataDescription() == "\n".join(source.metadata()["files"]) and len(source.metadata()["files"]) == 2
    assert source.metadata()["progress"] == {"description": f"FileStream[{directory}]", "metrics": {"files": 2, "bytes": 6}}


def test_no_work_and_no_memory_grows_with_the_batches_that_were(world: World, tmp_path: Path) -> None:
    conf = {"spark.streaming.fileStream.minRememberDuration": "5s"}
    (tmp_path / "in").mkdir()
    driver = FileDriver(world, tmp_path / "in", conf).start()
    for number in range(30):
        arrives(world, str(tmp_path / "in"), str(number))
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[str(number)] for number in range(30)]
    assert len(driver.files._selection) <= 6 and len(driver.files._plans) <= 6


# -- trouble


def test_a_listing_that_fails_is_a_batch_without_files_and_loses_none(
    world: World, directory: str, caplog: pytest.LogCaptureFixture
) -> None:
    conf = {"spark.streaming.fileStream.minRememberDuration": "2s"}
    driver = FileDriver(world, directory, conf).start()
    driver.tick()
    driver.source.failing = OSError("the mount has gone")
    arrives(world, directory, "a")
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            driver.tick()
    assert sum("the mount has gone" in record.getMessage() for record in caplog.records) == 1, "told once"
    driver.source.failing = None
    driver.tick()
    assert last(world) == ["a"] and driver.errors == []
    driver.tick()
    assert last(world) == []


def test_a_directory_that_is_not_there_yet_is_watched_for(world: World, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    driver = FileDriver(world, tmp_path / "later").start()
    driver.tick()
    assert any(f"there is no directory {tmp_path / 'later'}" in record.getMessage() for record in caplog.records)
    arrives(world, str(tmp_path / "later"), "a")
    driver.tick()
    assert [list(a.records) for a in world.attempts] == [[], ["a"]]


def test_a_directory_that_can_never_be_watched_is_an_error_and_no_warning(world: World, directory: str) -> None:
    driver = FileDriver(world, directory).start()
    driver.source.failing = UnsupportedStoreError("tells no times", path=directory)
    driver.tick_only()
    driver.wait_error(PlanFailedError)
    assert "tells no times" in str(driver.errors[0][1])


def test_a_planned_file_that_is_gone_fails_its_batch_and_says_so(world: World, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    driver = FileDriver(world, tmp_path / "in").start()
    arrives(world, str(tmp_path / "in"), "a")
    plan = driver.files.plan
    driver.files.plan = lambda time: (plan(time), (tmp_path / "in" / "a").unlink())[0]  # between the plan and the reading
    driver.tick_only()
    driver.wait_error(FileLostError)
    assert isinstance(driver.errors[0][1], DataLossError) and str(tmp_path / "in" / "a") in str(driver.errors[0][1])


def test_what_is_added_to_a_taken_file_goes_to_the_ledger_and_the_listeners(world: World, directory: str) -> None:
    driver = FileDriver(world, directory).start()
    arrives(world, directory, "a", "1\n")
    driver.tick()
    arrives(world, directory, "a", "1\n2\n")
    for _ in range(3):
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [["1"], [], [], []]
    (entry,) = read_ledger(world.store)
    ((lost,),) = entry.streams.values()
    assert (Path(lost["path"]).name, lost["cause"], lost["size"], lost["found"]) == ("a", "changed", 2, 4)
    assert len(driver.listener.named("onDataLost")) == 1


# -- what is stored, and restarts


def test_the_stored_form_of_a_batch_of_files(world: World, directory: str) -> None:
    """Golden bytes: what a restart finds must not depend on the version."""
    stream = FileDriver(world, directory).files
    assert _bytes(stream.starting_point()) == '{"files":[],"listed":1000000,"since":1000000}'
    arrives(world, directory, "ü", "1\n")
    where = stream._source.list(0)[0].path.removesuffix("ü")
    plan = stream.plan(Time(START + INTERVAL))
    assert _bytes(plan) == f'{{"files":[["{where}\\u00fc",1000500,2]],"listed":1001000,"since":1000000}}'
    stream.remember_plan(Time(START + INTERVAL), plan.data)
    arrives(world, directory, "ü", "1\n2\n")
    grown = stream.plan(Time(START + 2 * INTERVAL))
    assert _bytes(grown) == f'{{"changed":[["{where}\\u00fc",2,4]],"files":[],"listed":1002000,"since":1000000}}'


def _bytes(plan: InputPlan) -> str:
    return json.dumps(plan.data, sort_keys=True, separators=(",", ":"))


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
    world.wait(lambda: sum(a.finished for a in world.attempts) == len(world.attempts) > 5)
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
            _die_at(point, driver)
            driver.tick_only()
            world.wait(lambda driver=driver: not driver.alive)
            crash_point.install(None)
            driver.kill()
            driver = FileDriver(world, tmp_path / "in", over=_windowed).start()
        else:
            driver.tick()
    world.wait(lambda: max(world.times()) == max(twin_world.times()) and world.attempts[-1].finished)
    assert batches(world) == batches(twin_world)
    assert deaths == 3


def _windowed(stream: FileInputDStream) -> DStream:
    return stream.map(int).window(Seconds(4), Seconds(1))


def _die_at(point: str, driver: Any) -> None:
    def die(reached: str) -> None:
        if reached == point and driver.alive:
            driver.die()
            raise Killed(point)

    crash_point.install(die)


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
    assert [n for names in second.plans().values() for n in names] == ["1", "2", "3", "4", "5", "6"]
    for number in (7, 8, 9):
        arrives(world, str(directory), str(number))
        second.tick()
    assert list(batches(world).values()) == [[n] for n in (1, 3, 6, 10, 15, 21, 28, 36, 45)]
    assert [a.time for a in world.attempts if a.driver == second.number] == [START + n * INTERVAL for n in range(3, 10)]


def test_stored_data_of_another_kind_of_input_is_refused(world: World, directory: str) -> None:
    stream = FileDriver(world, directory).files
    with pytest.raises(NotRecoverableError, match="order in which the inputs are made"):
        stream.restored(Time(START), {"from": 0, "until": 3})


def test_an_input_made_by_its_class_says_why_its_graph_is_not_stored(world: World) -> None:
    stream = FileDriver(world, "/in").files
    stream.register_recipe()
    assert stream.recorder.why_not == stream.no_recipe_reason
