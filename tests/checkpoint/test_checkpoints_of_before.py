"""A checkpoint that an earlier version has left goes on: its offsets, its state, its pending, failed and held batches."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka.demo.embedded_broker import EmbeddedBroker
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.storage import LocalFileStore
from kstream.testing import ManualClock
from tests.checkpoint.fixtures import failed_batches
from tests.checkpoint.fixtures import two_streams as job
from tests.harness import INTERVAL, START
from tests.streams import Stream

PENDING = START + (job.DONE + 1) * INTERVAL


@pytest.mark.timeout(300)
def test_a_checkpoint_with_two_streams_state_and_a_pending_batch_goes_on(sc: SparkContext, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(job.CHECKPOINT, checkpoint)
    assert [time.milliseconds for time in read_log(LocalFileStore(checkpoint)).pending] == [PENDING]
    clock, handed = ManualClock(PENDING), list[tuple[str, int, list[Any], list[Any]]]()
    with EmbeddedBroker() as broker:
        for batch in job.BATCHES:
            job.send(broker.bootstrap, batch)
        ssc = StreamingContext.getOrCreate(
            str(checkpoint), lambda: job.make(sc, broker.bootstrap, clock, lambda *what: handed.append(what))
        )
        stream = Stream(sc, clock, ssc).start()
        stream.counter.wait(1)
        job.send(broker.bootstrap, {"orders": [("b", "8")], "returns": []})
        stream.tick()
        stream.stop()
    assert handed == [
        ("totals", PENDING, [], [("a", 10), ("b", 6), ("c", 12)]),
        ("orders", PENDING, [("orders", 3, 3, 5)], [("a", "6"), ("c", "7")]),
        ("returns", PENDING, [("returns", 2, 0, 1)], [("r4", "x")]),
        ("totals", PENDING + INTERVAL, [], [("a", 10), ("b", 14), ("c", 12)]),
        ("orders", PENDING + INTERVAL, [("orders", 1, 2, 3)], [("b", "8")]),
        ("returns", PENDING + INTERVAL, [], []),
    ]


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("policy", "pending"), [("continue", [3]), ("hold", [3, 4, 5])])
def test_a_checkpoint_with_a_failed_batch_and_with_held_ones_goes_on(
    policy: str, pending: list[int], sc: SparkContext, tmp_path: Path
) -> None:
    checkpoint = tmp_path / "checkpoint"
    shutil.copytree(failed_batches.CHECKPOINTS[policy], checkpoint)
    contents = read_log(LocalFileStore(checkpoint))
    assert contents.pending == [Time(START + number * INTERVAL) for number in pending]
    assert contents.failures == {Time(START + failed_batches.REFUSED * INTERVAL): 1}
    newest = START + failed_batches.BATCHES * INTERVAL
    clock, handed = ManualClock(newest), list[tuple[int, list[str]]]()
    with EmbeddedBroker() as broker:
        for number in range(1, failed_batches.BATCHES + 1):
            failed_batches.send(broker.bootstrap, str(number))
        ssc = StreamingContext.getOrCreate(
            str(checkpoint), lambda: failed_batches.make(sc, broker.bootstrap, clock, lambda *batch: handed.append(batch))
        )
        stream = Stream(sc, clock, ssc).start()
        stream.counter.wait(len(pending))
        failed_batches.send(broker.bootstrap, "6")
        stream.tick()
        stream.stop()
    assert handed == [(START + number * INTERVAL, [str(number)]) for number in [*pending, 6]]
    assert read_log(LocalFileStore(checkpoint)).pending == []
