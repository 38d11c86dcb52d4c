"""The direct stream of a Log in a Spark application: a table of SQLite, drivers that die, and the commands on its checkpoint."""

from __future__ import annotations

import importlib.metadata
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner
from pyspark import SparkContext

from kstream import Log, LogInputDStream, OffsetRange, StreamingContext
from kstream.cli import inputs, main
from kstream.clock import clock_of_new_contexts
from kstream.crash_point import CRASH_POINTS
from kstream.direct.connector import LogTools
from kstream.testing import CollectedOutput, ManualClock, restart_produces_the_same_batches


@dataclass(frozen=True)
class Table(Log):
    """The rows of a table by their id."""

    name = "sqlite"
    path: str

    def latest(self) -> dict[tuple[str, int], int]:
        with closing(sqlite3.connect(self.path)) as db:
            return {("rows", 0): db.execute("SELECT count(*) FROM rows").fetchone()[0]}

    def read(self, offsets: OffsetRange) -> Iterator[Any]:
        with closing(sqlite3.connect(self.path)) as db:
            where = (offsets.fromOffset, offsets.untilOffset)
            yield from db.execute("SELECT value FROM rows WHERE id >= ? AND id < ? ORDER BY id", where)


@pytest.fixture
def table(tmp_path: Path) -> str:
    path = str(tmp_path / "rows.db")
    with closing(sqlite3.connect(path)) as db, db:
        db.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, value INTEGER)")
        db.executemany("INSERT INTO rows VALUES (?, ?)", [(n, n * n) for n in range(12)])
    return path


def test_a_log_read_by_drivers_that_die_at_every_step_gives_each_batch_the_same_records(
    table: str, setting: Callable[[str, str], None]
) -> None:
    setting("spark.streaming.kstream.log.maxRatePerPartition", "4")

    def setup() -> StreamingContext:
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        LogInputDStream(ssc, Table(table), startingOffsets="earliest", maxRecordsPerTask=3).pprint()
        return ssc

    assert restart_produces_the_same_batches(setup, 3) == [(point, 2) for point in CRASH_POINTS]


@pytest.mark.parametrize("mode", ["setup", "graph"])
@pytest.mark.usefixtures("sc")
def test_the_commands_show_ask_and_move_the_offsets_of_a_log(
    mode: str, table: str, tmp_path: Path, setting: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    setting("spark.streaming.kstream.log.maxRatePerPartition", "4")
    setting("spark.streaming.kstream.recovery", mode)
    checkpoint = str(tmp_path / "checkpoint")
    clock = ManualClock(1_000_000)
    made: list[CollectedOutput] = []

    def setup() -> StreamingContext:
        ssc = StreamingContext(SparkContext.getOrCreate(), 1)
        made.append(CollectedOutput(LogInputDStream(ssc, Table(table), startingOffsets="earliest")))
        return ssc

    def run_a_batch() -> None:
        with clock_of_new_contexts(clock):
            ssc = StreamingContext.getOrCreate(checkpoint, setup)
        ssc.start()
        clock.advance(1000)
        ssc.stop(stopSparkContext=False, stopGraceFully=True)

    def command(*words: str) -> dict[str, Any]:
        result = CliRunner().invoke(main, [*words])
        assert result.exit_code == 0, result.output
        return json.loads(result.output) if "--json" in words else {}

    run_a_batch()
    assert command("offsets", "show", checkpoint, "--json")["partitions"][0]["next"] == 4

    tools = SimpleNamespace(name="sqlite", load=lambda: SimpleNamespace(connector_tools=lambda: LogTools(Table)))
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **asked: [tools] * (asked["group"] == "kstream.connectors"))
    inputs.tools.cache_clear()
    assert command("lag", checkpoint, "--json")["partitions"][0]["lag"] == 8
    command("offsets", "reset", checkpoint, "--to", "-5", "--take-over")
    run_a_batch()
    assert made[-1].batches[-1] == [(n * n,) for n in (7, 8, 9, 10)]
    inputs.tools.cache_clear()
