"""A file stream on a whole engine: each file in one batch, whatever becomes of the driver. No JVM."""

from __future__ import annotations

import logging
import uuid
from pathlib import Path

import fsspec
import pytest

from kstream.checkpoint.history import read_ledger
from kstream.errors import DataLossError, FileLostError, PlanFailedError, UnsupportedStoreError
from kstream.files import FixedRecords
from tests.harness import INTERVAL, START, World
from tests.inputs import FileDriver, arrives, batches, last, write

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
    """Spark behaviour IS3."""
    driver = FileDriver(world, directory, format=FixedRecords(1)).start()
    for text in ("abc", "de"):
        arrives(world, directory, text, text)
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[b"a", b"b", b"c"], [b"d", b"e"]]


@pytest.mark.parametrize(("new_only", "taken"), [(True, ["new"]), (False, ["new", "there"])])
def test_what_was_there_before_is_taken_only_if_that_is_asked_for(world: World, directory: str, new_only: bool, taken: list[str]) -> None:
    """Spark behaviour IS4."""
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
    """Spark behaviour IS5."""
    driver = FileDriver(world, f"{directory}/*/").start()
    for number in range(10):
        arrives(world, f"{directory}/sub{number % 2}", str(number))
        driver.tick()
    assert [list(a.records) for a in world.attempts] == [[str(number)] for number in range(10)]


def test_of_a_directory_moved_in_only_the_files_of_the_window_are_read(world: World, tmp_path: Path) -> None:
    """Spark behaviour IS6."""
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
