"""A window with an inverse whose duration the code has changed, over a restart on Spark: never the totals of the former window."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream, StreamingContext
from kstream.checkpoint.settings import HISTORY
from kstream.context.factories import services_of_context
from kstream.context.settings import RECOVERY_ALLOW
from kstream.errors import WindowChangedError
from kstream.testing import ManualClock
from tests.harness import START
from tests.streams import Stream, numbers

Results = dict[int, Any]
Windowed = Callable[[DStream, int], DStream]


class Job:
    """A job with two numbers a batch of one second and a window over them, which starts again and again on one checkpoint."""

    def __init__(self, sc: SparkContext, path: Path, build: Windowed, history: str = "1d") -> None:
        self.sc, self.path, self.build, self.history = sc, path, build, history
        self.clock = ManualClock(START)

    def live(self, window: int, ticks: int, allow: str = "", slide: int = 1) -> Results:
        """One life: batch time in seconds after START → the records of the window. `slide` is that of `build`."""
        found: Results = {}
        ssc = StreamingContext(self.sc, 1, clock=self.clock)
        ssc.checkpoint(str(self.path))
        settings = services_of_context(ssc).settings
        settings.override(RECOVERY_ALLOW, allow)
        settings.override(HISTORY, self.history)
        stream = Stream(self.sc, self.clock, ssc)
        self.build(numbers(ssc), window).foreachRDD(
            lambda time, rdd: found.update({(time.milliseconds - START) // 1000: sorted(rdd.collect())})
        )
        stream.start()
        for _ in range(ticks):
            self.clock.wait_for_waiters()
            self.clock.advance(1000)
        stream.counter.wait(ticks // slide)
        stream.stop()
        return found

    def files(self) -> list[tuple[str, bytes]]:
        return sorted((str(file), file.read_bytes()) for file in self.path.rglob("*") if file.is_file())


def total(source: DStream, window: int) -> DStream:
    return source.map(lambda n: (0, n)).reduceByKeyAndWindow(operator.add, operator.sub, window, 1, 1).checkpoint(1)


def recount(batches: range, window: int, since: int = 1) -> Results:
    """The totals of the windows of these batches, over the batches from `since` on: batch n has the numbers 2n − 2 and 2n − 1."""
    return {n: [(0, sum(4 * b - 3 for b in range(max(since, n - window + 1), n + 1)))] for n in batches}


KINDS: dict[str, Windowed] = {
    "reduceByKeyAndWindow": total,
    "reduceByWindow": lambda source, window: source.reduceByWindow(operator.add, operator.sub, window, 1),
    "countByWindow": lambda source, window: source.countByWindow(window, 1),
    "countByValueAndWindow": lambda source, window: source.countByValueAndWindow(window, 1),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_changed_duration_is_refused_and_nothing_in_the_checkpoint_changes(sc: SparkContext, tmp_path: Path, kind: str) -> None:
    job = Job(sc, tmp_path, KINDS[kind])
    job.live(3, 11)
    before = job.files()
    with pytest.raises(WindowChangedError) as caught:
        job.live(5, 0)
    for words in ("reduceByKeyAndWindow at", "3000 ms", "5000 ms", "--allow window:s0", "recovery.allow=window:s0"):
        assert words in str(caught.value)
    assert caught.value.facts["stored_ms"] == 3000 and caught.value.facts["given_ms"] == 5000
    assert job.files() == before
    job.live(3, 1)


@pytest.mark.parametrize("window", [2, 5])
def test_with_a_word_of_allow_the_window_begins_anew_from_the_plans_that_are_kept(sc: SparkContext, tmp_path: Path, window: int) -> None:
    job = Job(sc, tmp_path, total)
    assert job.live(3, 6) == recount(range(1, 7), 3)
    assert job.live(window, 2, "window:s0") == recount(range(7, 9), window)
    assert job.live(window, 3) == recount(range(9, 12), window)
    with pytest.raises(WindowChangedError, match=f"{window}000 ms.*3000 ms"):
        job.live(3, 0)
    assert job.live(3, 3, "window:s0") == recount(range(12, 15), 3)


def test_a_longer_window_is_partial_until_it_is_filled_and_then_right(sc: SparkContext, tmp_path: Path) -> None:
    job = Job(sc, tmp_path, total, history="0")
    assert job.live(2, 12) == recount(range(1, 13), 2)
    after = {**job.live(5, 3, "window:s0"), **job.live(5, 6)}
    exact = recount(range(13, 22), 5)
    assert {n: after[n] for n in range(17, 22)} == {n: exact[n] for n in range(17, 22)}
    assert any(after == recount(range(13, 22), 5, since) for since in range(1, 14))


def test_a_driver_that_dies_before_it_has_written_totals_has_begun_the_window_anew(sc: SparkContext, tmp_path: Path) -> None:
    def seldom(source: DStream, window: int) -> DStream:
        return source.map(lambda n: (0, n)).reduceByKeyAndWindow(operator.add, operator.sub, window, 1, 1)

    job = Job(sc, tmp_path, seldom)
    assert job.live(3, 11) == recount(range(1, 12), 3)
    assert job.live(5, 2, "window:s0") == recount(range(12, 14), 5)
    assert job.live(5, 2) == recount(range(14, 16), 5)


def test_the_same_duration_goes_on_with_its_totals(sc: SparkContext, tmp_path: Path) -> None:
    job = Job(sc, tmp_path, total, history="0")
    assert {**job.live(3, 6), **job.live(3, 6)} == recount(range(1, 13), 3)


def test_totals_of_an_older_kstream_have_no_duration_and_go_on(sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Job(sc, tmp_path, total, history="0")
    with monkeypatch.context() as older:
        older.setattr("kstream.scheduler.state_checkpointer.replace", lambda state, window: state)
        first = job.live(3, 6)
    assert not any(b'"window"' in data for _, data in job.files())
    assert {**first, **job.live(3, 6), **job.live(3, 1)} == recount(range(1, 14), 3)
    assert any(b'"window":3000' in data for _, data in job.files())


def test_a_changed_slide_goes_on_with_the_totals(sc: SparkContext, tmp_path: Path) -> None:
    def sliding(slide: int) -> Windowed:
        return lambda source, window: source.map(lambda n: (0, n)).reduceByKeyAndWindow(operator.add, operator.sub, window, slide, 1)

    job = Job(sc, tmp_path, sliding(1))
    assert job.live(4, 11) == recount(range(1, 12), 4)
    job.build = sliding(2)
    exact = recount(range(12, 19), 4)
    assert job.live(4, 8, slide=2) == {n: exact[n] for n in (12, 14, 16, 18)}
