"""A state job with a backlog, on Spark: its states are written, its batches are right, and a batch costs no more than on time."""

from __future__ import annotations

import logging
import operator
from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkContext

from kstream import DStream
from kstream.batch_time import Time
from tests.harness import INTERVAL, START
from tests.streams import Stream, numbers, total

pytestmark = pytest.mark.timeout(600)
BATCHES, BEHIND = 44, 6


def totals(stream: DStream) -> DStream:
    return stream.updateStateByKey(total, 1).checkpoint(4)


def test_a_backlog_of_batches_writes_its_states_and_each_batch_is_right(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Six batches are due at once, and with each that runs another one becomes due."""
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    ones = numbers(stream.ssc, 1, lambda _number: (0, 1))
    seen = list[Any]()

    def output(time: Any, rdd: Any) -> None:
        seen.append(rdd.collect())
        if time.milliseconds <= START + (BATCHES - BEHIND) * INTERVAL:
            stream.clock.advance(INTERVAL)

    totals(ones).foreachRDD(output)
    ones.reduceByKeyAndWindow(operator.add, operator.sub, 4, 1, 1).checkpoint(4).foreachRDD(lambda rdd: seen.append(rdd.collect()))
    stream.start()
    with caplog.at_level(logging.WARNING):
        stream.clock.wait_for_waiters()
        stream.clock.advance(BEHIND * INTERVAL)
        stream.counter.wait(BATCHES)
        stream.stop()
    stream.ssc.awaitTermination(1)
    assert seen == [[(0, count)] for n in range(1, BATCHES + 1) for count in (n, min(n, 4))]
    assert not [record for record in caplog.records if record.name.startswith("kstream.scheduler")]
    newest = {int(file.name.split("-")[0]) for file in (tmp_path / "state").iterdir()}
    assert max(newest) == START + BATCHES * 1000 and len(newest) <= 3


def test_a_state_whose_files_are_gone_is_made_again_from_the_one_that_was_written_last(
    sc: SparkContext, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A person has removed the files from which a generated batch is made. A newer state is written meanwhile."""
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    ones = numbers(stream.ssc, 1, lambda _number: (0, 1))
    state = totals(ones)
    seen: dict[int, Any] = {}

    def output(time: Any, rdd: Any) -> None:
        if time.milliseconds == START + 6000 and not seen.get(time.milliseconds):
            seen[time.milliseconds] = "files gone"
            for other in sc._jsc.getPersistentRDDs().values():  # pyright: ignore
                other.unpersist(True)
            for file in (tmp_path / "state").iterdir():
                file.rename(tmp_path / file.name)
            try:
                rdd.collect()
            finally:
                for file in tmp_path.glob("*-s0-*"):
                    file.rename(tmp_path / "state" / file.name)
        seen[time.milliseconds] = rdd.collect()

    state.foreachRDD(output)
    stream.start()
    with caplog.at_level(logging.WARNING):
        for _ in range(9):
            stream.tick()
        stream.stop()
    stream.ssc.awaitTermination(1)
    assert seen == {START + n * 1000: [(0, n)] for n in range(1, 10)}
    said = [
        record.getMessage() for record in caplog.records if "made again" in record.getMessage() or "generated again" in record.getMessage()
    ]
    assert len(said) == 1 and said[0].startswith(f"batch {Time(START + 6000)}: blocks or files of a state are gone")
