"""restart_produces_the_same_batches: a job, killed at every step of a batch, against its twin that never stopped."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kstream import crash_point
from kstream.batch_time import Time
from kstream.clock import clock_of_new_contexts
from kstream.context import StreamingContext
from kstream.crash_point import CRASH_POINTS
from kstream.errors import IllegalStateError
from kstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark import RDD

Handed = dict[tuple[int, int], list[list[Any]]]
"""(batch time in ms, number of the output) → what that output was handed, each time the batch ran."""

START_MS = 1_000_000_000_000


def restart_produces_the_same_batches(
    setup: Callable[[], StreamingContext],
    batches: int = 5,
    *,
    kills: Sequence[tuple[str, int]] | None = None,
    down: int = 0,
) -> list[tuple[str, int]]:
    """Runs the job of `setup` for so many batches on a ManualClock; then again and again, each time killed once and started again.

    AssertionError if any output is ever handed other records for a batch than in the run that was not killed, or is not handed a batch.
    `kills` are (crash point, how many-th time it is reached): default the second time of each of CRASH_POINTS. `down`: so many batch
    intervals pass between a death and the next start. Returns the kills that happened: a point that the job never reaches kills nobody.

    `setup` makes its context without a clock of its own, on a SparkContext that is there or that it makes; the checkpoint directory it
    sets gives way to temporary ones. Its input must give each batch time the same records in every run, as TestInputStream does. The
    functions of its output operations are not called: what they would have been handed is compared. What a killed driver still does
    after its death counts for nothing. Blocks; each run costs what the batches cost.
    """
    if StreamingContext.getActive() is not None:
        raise IllegalStateError("a StreamingContext is active: stop it first, jobs are run here one after the other", state="active")
    with tempfile.TemporaryDirectory(prefix="kstream-restarts-") as directory:
        twin = _Run(setup, Path(directory) / "twin", batches, None, 0)
        expected = twin.go()
        happened: list[tuple[str, int]] = []
        for number, kill in enumerate(kills if kills is not None else [(point, 2) for point in CRASH_POINTS]):
            run = _Run(setup, Path(directory) / f"run-{number}", batches, kill, down)
            _compare(expected, run.go(), kill)
            if run.killed:
                happened.append(kill)
    return happened


def _compare(expected: Handed, seen: Handed, kill: tuple[str, int]) -> None:
    point, nth = kill
    where = f"killed at {point}, reached for the {nth}. time:"
    for (time, output), (records, *_) in sorted(expected.items()):
        attempts = seen.get((time, output), [])
        assert attempts, f"{where} output {output} was not handed batch {time} ms, without the kill it was handed {records!r}"
        for again in attempts:
            assert again == records, f"{where} output {output} of batch {time} ms was handed {again!r}, without the kill {records!r}"
    more = sorted(set(seen) - set(expected))
    assert not more, f"{where} batches ran that were not there without it (time, output): {more}"


class _Run:
    """One run of the job, of one or two lives."""

    def __init__(self, setup: Callable[[], StreamingContext], place: Path, batches: int, kill: tuple[str, int] | None, down: int) -> None:
        self._setup = setup
        self._place = place
        self._left = batches
        self._kill = kill
        self._down = down
        self._clock = ManualClock(START_MS)
        self._life = 0
        self._reached = 0
        self._lock = threading.Lock()
        self._handed: Handed = {}

    @property
    def killed(self) -> bool:
        return self._life > 0

    def go(self) -> Handed:
        """What the outputs were handed by drivers that lived."""
        life = -1
        while life != self._life:
            life = self._life
            self._live(life)
        return self._handed

    def _live(self, life: int) -> None:
        """One life: to its end, or to the end of the run."""
        with clock_of_new_contexts(self._clock):
            ssc = StreamingContext.getOrCreate(str(self._place / str(life)), self._setup)
        for number, output in enumerate(ssc.graph.output_streams):
            output.redirect(partial(self._note, life, number))
        interval = ssc.graph.batch_duration.milliseconds
        crash_point.install(self._at_crash_point)
        try:
            ssc.start()
            self._clock.advance(0)  # until what a restart makes up for has run
            while self._left > 0 and self._life == life:
                self._left -= 1
                self._clock.advance(interval)
            if self._life == life:
                ssc.awaitTerminationOrTimeout(0)  # raises what failed
        finally:
            crash_point.install(None)
            ssc.stop(stopSparkContext=False, stopGraceFully=self._life == life)
        if self._life != life:
            down = min(self._down, self._left)
            self._left -= down
            self._clock.advance(down * interval)

    def _note(self, life: int, number: int, time: Time, rdd: RDD[Any]) -> None:
        records = rdd.collect()
        with self._lock:
            if life == self._life:
                self._handed.setdefault((time.milliseconds, number), []).append(records)

    def _at_crash_point(self, name: str) -> None:
        """On whichever thread got there: what is stored now is what the next life finds."""
        with self._lock:
            if self.killed or self._kill is None or name != self._kill[0]:
                return
            self._reached += 1
            if self._reached == self._kill[1]:
                _copy(self._place / str(self._life), self._place / str(self._life + 1))
                self._life += 1


def _copy(source: Path, target: Path) -> None:
    """A checkpoint as it stands, in the order of names: completions before plans, so that what changes meanwhile looks pending at most."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.startswith(".tmp"):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(path, place)
