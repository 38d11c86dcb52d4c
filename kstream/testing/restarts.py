"""restart_produces_the_same_batches: compares a job that is killed at crash points with the same job without a kill."""

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
from kstream.context.factories import services_of_context
from kstream.crash_point import CRASH_POINTS
from kstream.errors import IllegalStateError
from kstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from pyspark import RDD

Handed = dict[tuple[int, int], list[list[Any]]]
"""(batch time in ms, number of the output) → the records that were passed to that output, a list for each run of the batch."""

START_MS = 1_000_000_000_000


def restart_produces_the_same_batches(
    setup: Callable[[], StreamingContext],
    batches: int = 5,
    *,
    kills: Sequence[tuple[str, int]] | None = None,
    down: int = 0,
) -> list[tuple[str, int]]:
    """Check that restarts do not change the outputs of a job: run it without a kill, then once for each kill with a restart after it.

    The job runs on a ManualClock. The functions of the output operations are not called: the records that they would get are compared.
    Everything that a killed driver does after the kill is ignored. Blocks while the runs last.

    Args:
        setup: makes the context, without a clock, on an existing SparkContext or on a new one. Temporary directories replace its
            checkpoint directory. The input must give each batch time the same records in every run, as TestInputStream does.
        batches: the number of batches of a run.
        kills: (crash point, n): the driver is killed when it reaches the point for the nth time. By default the second time for each of
            CRASH_POINTS.
        down: the number of batch intervals between a kill and the next start.

    Returns:
        The kills that happened. A job may not reach every crash point.

    Raises:
        AssertionError: an output gets other records for a batch than in the run without a kill, or does not get a batch.
        IllegalStateError: a StreamingContext is active.
    """
    if StreamingContext.getActive() is not None:
        raise IllegalStateError("a StreamingContext is active: stop it first, this function runs jobs one after the other", state="active")
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
    """Raise AssertionError unless every run of every batch got the expected records, and no other batch ran."""
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
    """One run of the job: one driver, or two if the first is killed. A "life" is the time of one driver, 0 or 1."""

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
        """Whether the kill has happened."""
        return self._life > 0

    def go(self) -> Handed:
        """Run all lives. Return the records that drivers passed to the outputs before they were killed. Blocks."""
        life = -1
        while life != self._life:
            life = self._life
            self._live(life)
        return self._handed

    def _live(self, life: int) -> None:
        """Run one driver until it is killed or the run ends, with `_note` in place of each output. Blocks.

        After a kill, move the clock over the downtime.
        """
        with clock_of_new_contexts(self._clock):
            ssc = StreamingContext.getOrCreate(str(self._place / str(life)), self._setup)
        graph = services_of_context(ssc).graph
        for number, output in enumerate(graph.output_streams):
            output.redirect(partial(self._note, life, number))
        interval = graph.batch_duration.milliseconds
        crash_point.install(self._at_crash_point)
        try:
            ssc.start()
            self._clock.advance(0)  # runs the batches that a restart makes up for
            while self._left > 0 and self._life == life:
                self._left -= 1
                self._clock.advance(interval)
            if self._life == life:
                ssc.awaitTerminationOrTimeout(0)  # raises the error of a job
        finally:
            crash_point.install(None)
            ssc.stop(stopSparkContext=False, stopGraceFully=self._life == life)
        if self._life != life:
            down = min(self._down, self._left)
            self._left -= down
            self._clock.advance(down * interval)

    def _note(self, life: int, number: int, time: Time, rdd: RDD[Any]) -> None:
        """Collect the records of a batch, unless the driver was killed meanwhile. Runs in a job thread, instead of an output function."""
        records = rdd.collect()
        with self._lock:
            if life == self._life:
                self._handed.setdefault((time.milliseconds, number), []).append(records)

    def _at_crash_point(self, name: str) -> None:
        """Kill the driver if this is the moment of the kill: copy its checkpoint for the next life. Any thread."""
        with self._lock:
            if self.killed or self._kill is None or name != self._kill[0]:
                return
            self._reached += 1
            if self._reached == self._kill[1]:
                _copy(self._place / str(self._life), self._place / str(self._life + 1))
                self._life += 1


def _copy(source: Path, target: Path) -> None:
    """Copy a checkpoint in the order of its names: completions before plans. A batch that ends meanwhile is then pending at worst."""
    for path in sorted(source.rglob("*")):
        if path.is_file() and not path.name.startswith(".tmp"):
            place = target / path.relative_to(source)
            place.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileNotFoundError):
                shutil.copyfile(path, place)
