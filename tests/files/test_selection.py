"""Which files a batch takes: the rules of Spark's file stream."""

from __future__ import annotations

from kstream.batch_time import Duration, Seconds, Time
from kstream.dstream.file_input_dstream import remember_window
from kstream.files import Change, FileStatus, Selection

WINDOW = Seconds(60)
SINCE = 1_000_000


def at(path: str, mtime_ms: int, size: int = 1) -> FileStatus:
    return FileStatus(path, mtime_ms, size)


def names(selection: Selection, time_ms: int, *files: FileStatus) -> list[str]:
    return [file.path for file in selection.select(Time(time_ms), files, lambda _path: True)]


def take(selection: Selection, time_ms: int, *files: FileStatus) -> list[str]:
    """As a batch whose plan becomes durable."""
    taken = selection.select(Time(time_ms), files, lambda _path: True)
    selection.mark_taken(Time(time_ms), taken)
    selection.listed_ms = time_ms
    return [file.path for file in taken]


def test_files_modified_after_the_threshold_and_up_to_the_batch_are_taken() -> None:
    """IS10: mtime ≤ threshold and mtime > batch time are rejected."""
    selection = Selection(WINDOW, SINCE)
    edge = [at("older", SINCE - 1), at("equal", SINCE), at("new", SINCE + 1), at("now", SINCE + 1000), at("future", SINCE + 1001)]
    assert names(selection, SINCE + 1000, *edge) == ["new", "now"]


def test_a_file_is_taken_once() -> None:
    """Spark behaviour IS4."""
    selection = Selection(WINDOW, SINCE)
    file = at("a", SINCE + 500)
    assert take(selection, SINCE + 1000, file) == ["a"]
    assert take(selection, SINCE + 2000, file, at("b", SINCE + 600)) == ["b"]


def test_the_threshold_follows_the_batches_at_the_distance_of_the_window() -> None:
    """Spark behaviour IS10."""
    selection = Selection(WINDOW, SINCE)
    selection.listed_ms = SINCE + 99_000
    assert selection.threshold(Time(SINCE + 100_000)) == SINCE + 40_000
    late = [at("late", SINCE + 40_001), at("too late", SINCE + 40_000)]
    assert names(selection, SINCE + 100_000, *late) == ["late"]


def test_a_file_of_a_clock_that_is_ahead_waits_for_its_time() -> None:
    selection = Selection(WINDOW, SINCE)
    ahead = at("ahead", SINCE + 2500)
    assert [take(selection, SINCE + n * 1000, ahead) for n in (1, 2, 3, 4)] == [[], [], ["ahead"], []]


def test_nothing_that_came_since_the_last_listing_is_too_old() -> None:
    """A stream whose listings failed, or whose batches were left out, for longer than the window loses no file."""
    selection = Selection(WINDOW, SINCE)
    take(selection, SINCE + 1000)
    meanwhile = [at("a", SINCE + 1001), at("b", SINCE + 500_000)]
    assert take(selection, SINCE + 600_000, at("seen by then", SINCE + 1000), *meanwhile) == ["a", "b"]


def test_without_newFilesOnly_the_window_alone_decides() -> None:
    """IS4: false includes what was there before, as far as the window reaches."""
    selection = Selection(WINDOW, 0)
    selection.listed_ms = SINCE
    assert names(selection, SINCE + 1000, at("there", SINCE - 58_999), at("old", SINCE - 59_000)) == ["there"]


def test_hidden_files_empty_files_and_those_the_user_refuses_are_left_alone() -> None:
    """The default filter of Spark: names that begin with a dot."""
    selection = Selection(WINDOW, SINCE)
    files = [
        at("/in/.tmp", SINCE + 1),
        at("/in/_x", SINCE + 1),
        at("/.in/a", SINCE + 1),
        at("/in/empty", SINCE + 1, 0),
        at("/in/no", SINCE + 1),
    ]
    taken = selection.select(Time(SINCE + 1000), files, lambda path: not path.endswith("no"))
    assert [file.path for file in taken] == ["/.in/a", "/in/_x"]


def test_a_file_that_was_empty_is_taken_when_it_has_something() -> None:
    selection = Selection(WINDOW, SINCE)
    assert take(selection, SINCE + 1000, at("a", SINCE + 900, 0)) == []
    assert take(selection, SINCE + 2000, at("a", SINCE + 900, 5)) == ["a"]


def test_a_file_that_grew_after_it_was_taken_is_told_once() -> None:
    selection = Selection(WINDOW, SINCE)
    take(selection, SINCE + 1000, at("a", SINCE + 500, 3))
    grown = [at("a", SINCE + 1500, 5)]
    assert names(selection, SINCE + 2000, *grown) == []
    assert selection.changes([at("a", SINCE + 1500, 3)]) == []  # touched, no more
    changes = selection.changes(grown)
    assert changes == [Change("a", 3, 5)]
    selection.mark_reported(changes)
    assert selection.changes(grown) == []


def test_only_the_names_of_the_window_are_remembered() -> None:
    selection = Selection(WINDOW, SINCE)
    for n in range(1, 1001):
        take(selection, SINCE + n * 1000, at(f"file-{n}", SINCE + n * 1000 - 1))
        selection.forget(Time(SINCE + n * 1000) - WINDOW)
    assert len(selection) == 60


def test_a_file_that_was_forgotten_comes_back_only_if_it_is_modified() -> None:
    selection = Selection(WINDOW, SINCE)
    take(selection, SINCE + 1000, at("a", SINCE + 500))
    for n in range(2, 100):
        selection.forget(Time(SINCE + n * 1000) - WINDOW)
        assert take(selection, SINCE + n * 1000, at("a", SINCE + 500)) == []
    assert take(selection, SINCE + 100_000, at("a", SINCE + 99_500)) == ["a"]


def test_the_remember_window_is_a_minute_in_whole_batches() -> None:
    """IS10: batch × ceil(60 s / batch)."""
    sizes = {1000: 60_000, 7000: 63_000, 60_000: 60_000, 90_000: 90_000, 250: 60_000}
    assert {ms: remember_window(Duration(ms), 60_000).milliseconds for ms in sizes} == sizes
    assert remember_window(Seconds(1), 0) == Seconds(1)
