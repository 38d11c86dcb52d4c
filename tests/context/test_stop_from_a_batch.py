"""A graceful stop that is called inside a batch: the batch ends first, its end is noted, and no restart runs it again."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import StreamingContextState, StreamingListener, crash_point
from kstream.checkpoint import LogContents, read_log
from kstream.storage import LocalFileStore
from tests.harness import INTERVAL, START
from tests.streams import PATIENCE, Stream, numbers

Setting = Callable[[str, str], None]
FIRST = START + INTERVAL


class Run:
    """One life of a program over numbers. Its outputs note what they were handed, and `in_batch` runs in the first of them."""

    def __init__(self, sc: SparkContext, checkpoint: Path | None, in_batch: Callable[[Run], None], outputs: int = 1) -> None:
        self.stream = Stream(sc)
        self.in_batch = in_batch
        self.planned = threading.Semaphore(0)
        self.handed: list[tuple[int, list[int]]] = []
        """(output, its records), when its function has returned."""
        source = numbers(self.stream.ssc, 1)
        for output in range(outputs):
            source.foreachRDD(lambda rdd, output=output: self._output(output, rdd.collect()))
        if checkpoint is not None:
            self.stream.ssc.checkpoint(str(checkpoint))

    def __reduce__(self) -> Any:
        return Forgotten, ()

    def _output(self, output: int, records: list[int]) -> None:
        if output == 0:
            self.in_batch(self)
        self.handed.append((output, records))

    def start(self) -> Run:
        self.stream.start()
        return self

    def tick(self, batches: int = 1) -> Run:
        """So many batches become due at once; waits for none, though the clock does."""
        self.stream.clock.wait_for_waiters()
        threading.Thread(target=self.stream.clock.advance, args=(batches * INTERVAL,), daemon=True).start()
        return self

    def await_end(self) -> None:
        assert self.stream.ssc.awaitTerminationOrTimeout(PATIENCE)
        assert self.stream.ssc.getState() is StreamingContextState.STOPPED


class WhenSubmitted(StreamingListener):
    """Does something once so many batches have been submitted."""

    def __init__(self, batches: int, then: Callable[[], None]) -> None:
        self._left, self._then = batches, then

    def onBatchSubmitted(self, batchSubmitted: Any) -> None:
        self._left -= 1
        if self._left == 0:
            self._then()


class Forgotten:
    """What the stored graph has in the place of a Run: nothing here is restored without setup."""


def stop(run: Run) -> None:
    run.stream.ssc.stop(stopSparkContext=False, stopGraceFully=True)


def nothing(_run: Run) -> None:
    pass


def log_of(checkpoint: Path) -> LogContents:
    return read_log(LocalFileStore(checkpoint))


def complaints(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING and "raceful stop" in record.getMessage()]


def test_the_batch_that_stops_the_context_is_not_waited_for_by_itself_and_no_restart_repeats_it(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = Run(sc, tmp_path, stop).start().tick()
    run.await_end()
    contents = log_of(tmp_path)
    assert run.handed == [(0, [0])]
    assert contents.pending == [] and FIRST in {time.milliseconds for time in contents.done}
    assert complaints(caplog) == []
    again = Run(sc, tmp_path, nothing)
    again.stream.clock.set_time(FIRST)
    again.start().stream.tick()
    again.stream.stop()
    assert again.handed == [(0, [1])]


def test_without_a_checkpoint_it_neither_waits_an_hour_nor_speaks_of_lost_records(
    sc: SparkContext, setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting("spark.streaming.gracefulStopTimeout", "1h")
    run = Run(sc, None, stop).start().tick()
    run.await_end()
    assert run.handed == [(0, [0])] and complaints(caplog) == []


def test_the_other_outputs_of_that_batch_run_before_its_end_is_noted(sc: SparkContext, tmp_path: Path) -> None:
    run = Run(sc, tmp_path, stop, outputs=3).start().tick()
    run.await_end()
    assert run.handed == [(0, [0]), (1, [0]), (2, [0])]
    assert log_of(tmp_path).pending == []


def test_batches_that_wait_behind_it_are_worked_off(sc: SparkContext, tmp_path: Path) -> None:
    """Each of them stops the context once more, and returns at once."""

    def stop_when_others_wait(run: Run) -> None:
        assert run.planned.acquire(timeout=PATIENCE)
        stop(run)

    run = Run(sc, tmp_path, stop_when_others_wait)
    run.stream.ssc.addStreamingListener(WhenSubmitted(2, lambda: run.planned.release(3)))
    run.start().tick(3).await_end()
    assert run.handed == [(0, [0]), (0, [1]), (0, [2])]
    assert log_of(tmp_path).pending == []


def test_another_batch_that_runs_at_the_same_time_is_waited_for(sc: SparkContext, setting: Setting, tmp_path: Path) -> None:
    setting("spark.streaming.concurrentJobs", "2")
    both, stopped = threading.Barrier(2), threading.Event()

    def one_stops(run: Run) -> None:
        if both.wait(PATIENCE) == 0:
            stop(run)
            stopped.set()
        assert stopped.wait(PATIENCE)

    run = Run(sc, tmp_path, one_stops).start().tick(2)
    run.await_end()
    assert sorted(run.handed) == [(0, [0]), (0, [1])]
    assert log_of(tmp_path).pending == []


def test_a_batch_that_fails_after_its_stop_stays_pending_and_its_error_is_raised(sc: SparkContext, tmp_path: Path) -> None:
    def stop_and_fail(run: Run) -> None:
        stop(run)
        raise ValueError("the sink is down")

    run = Run(sc, tmp_path, stop_and_fail).start().tick()
    with pytest.raises(ValueError, match="the sink is down"):
        run.await_end()
    stopped(run)
    assert [time.milliseconds for time in log_of(tmp_path).pending] == [FIRST]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_driver_that_dies_between_its_stop_and_the_end_of_the_batch_runs_it_again(
    sc: SparkContext, setting: Setting, tmp_path: Path
) -> None:
    setting("spark.streaming.gracefulStopTimeout", "100ms")

    def die(at: str) -> None:
        if at == crash_point.JOB_DONE:
            raise SystemExit

    crash_point.install(die)
    run = Run(sc, tmp_path, stop).start().tick()
    run.await_end()
    crash_point.install(None)
    assert [time.milliseconds for time in log_of(tmp_path).pending] == [FIRST]
    again = Run(sc, tmp_path, nothing)
    again.stream.clock.set_time(FIRST)
    again.start()
    again.stream.counter.wait(1)
    again.stream.stop()
    assert again.handed == [(0, [0])]


PROGRAM = """
import sys, threading
from pyspark import SparkConf
from kstream import StreamingContext

conf = SparkConf().setMaster("local[1]").setAppName("job").set("spark.ui.enabled", "false").set("spark.driver.host", "127.0.0.1")
ssc = StreamingContext(conf, 0.5)
called = threading.Event()


def stop(rdd):
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    called.set()
    threading.main_thread().join()
    print("COUNTED", rdd.count(), flush=True)


ssc.queueStream([[1, 2, 3]]).foreachRDD(stop)
ssc.start()
assert called.wait(60)
"""


def test_a_program_that_ends_after_the_stop_does_not_cut_the_batch_short(tmp_path: Path) -> None:
    """`main_thread().join()` returns when the interpreter waits for the other threads.

    On a slow machine a second batch, which is empty, may be planned before the first one asks for the stop.
    """
    done = subprocess.run([sys.executable, "-c", PROGRAM], cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    counted = done.stdout.splitlines()
    assert done.returncode == 0 and counted[:1] == ["COUNTED 3"] and set(counted[1:]) <= {"COUNTED 0"}, done.stderr[-2000:]


def test_spark_is_stopped_after_the_batch_has_ended(sc: SparkContext, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(sc, "stop", lambda: order.append("Spark"))

    def stop_all(run: Run) -> None:
        run.stream.ssc.stop(stopSparkContext=True, stopGraceFully=True)
        order.append("the batch")

    run = Run(sc, None, stop_all).start().tick()
    run.await_end()
    assert order == ["the batch", "Spark"]


def test_a_function_of_transform_may_stop_the_context_too(sc: SparkContext) -> None:
    stream, handed = Stream(sc), list[list[int]]()

    def stop_while_planned(rdd: Any) -> Any:
        stream.ssc.stop(stopSparkContext=False, stopGraceFully=True)
        return rdd

    numbers(stream.ssc, 1).transform(stop_while_planned).foreachRDD(lambda rdd: handed.append(rdd.collect()))
    stream.start()
    stream.clock.wait_for_waiters()
    threading.Thread(target=stream.clock.advance, args=(INTERVAL,), daemon=True).start()
    assert stream.ssc.awaitTerminationOrTimeout(PATIENCE)
    assert handed == [[0]]


def stopped(run: Run) -> None:
    """Blocks until the thread that stops the context has ended."""
    for thread in threading.enumerate():
        if thread.name == "graceful-stop":
            thread.join(PATIENCE)
    assert run.stream.ssc.getState() is StreamingContextState.STOPPED
