"""The driver's half of `once`: what it asks the database, and when it refuses to write. On SQLite; partitions run in this process."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.errors import ConfigurationError, OutputChangedError
from kstream.output import OutputBatch, Writer
from kstream.sinks import once, receipt_table
from kstream.sinks.database import OnceOutput


class Partitions:
    """Stands for an RDD: its partitions run in this process."""

    def __init__(self, *partitions: Sequence[int]) -> None:
        self.partitions = partitions
        self.context = self
        self.ran: list[int] = []

    def getNumPartitions(self) -> int:
        return len(self.partitions)

    def mapPartitionsWithIndex(self, function: Callable[[int, Iterator[int]], Iterator[Any]]) -> Any:
        return function

    def runJob(self, function: Any, _collect: Any, chosen: Sequence[int]) -> list[Any]:
        self.ran += chosen
        return [result for number in chosen for result in function(number, iter(self.partitions[number]))]


def insert(connection: sqlite3.Connection, records: Iterator[int]) -> None:
    connection.executemany("INSERT INTO numbers VALUES (?)", ((number,) for number in records))


class Jobs:
    """Drivers of one checkpoint that write to one database."""

    def __init__(self, path: str) -> None:
        self.path = path
        with sqlite3.connect(path) as connection:
            connection.execute("CREATE TABLE numbers (number INTEGER)")
        self.plans: dict[int, str] = {}
        self.nonces: dict[int, str] = {}

    def driver(self, stored: Any = None) -> OnceOutput:
        """The output of the next driver. `stored`: of the newest completion."""
        output = once(partial(sqlite3.connect, self.path), insert)
        assert isinstance(output, OnceOutput)
        epoch = len(self.nonces) + 1
        self.nonces[epoch] = f"nonce {epoch}"
        known = dict(self.plans)
        output.restore(
            Writer("job", epoch, self.nonces[epoch], self.nonces.get, lambda time, nonce: known.get(time.milliseconds) == nonce), stored
        )
        return output

    def batch(self, time_ms: int, is_first_try: bool = True) -> OutputBatch:
        return OutputBatch(Time(time_ms), self.plans.setdefault(time_ms, f"plan of {time_ms}"), is_first_try)

    def write(self, output: OnceOutput, time_ms: int, rdd: Partitions, is_first_try: bool = True, partitions: Any = ...) -> Any:
        """Write a batch, and return its outcome."""
        batch, given = self.batch(time_ms, is_first_try), rdd
        missing = output.prepare(batch, given)  # pyright: ignore[reportArgumentType]
        output.run(batch, given, missing if partitions is ... else partitions)  # pyright: ignore[reportArgumentType]
        return output.outcome(Time(time_ms))

    def numbers(self) -> list[int]:
        with sqlite3.connect(self.path) as connection:
            return [number for (number,) in connection.execute("SELECT number FROM numbers ORDER BY number")]


@pytest.fixture
def jobs(tmp_path: Path) -> Jobs:
    return Jobs(str(tmp_path / "sink.db"))


def test_the_outcome_of_a_batch_names_it_and_counts_its_records_until_the_completion_is_stored(jobs: Jobs) -> None:
    output = jobs.driver()
    assert output.outcome(Time(500)) is None, "nothing is written"
    assert jobs.write(output, 1000, Partitions([1, 2], [3])) == {"batch": 1000, "partitions": 2, "records": 3}
    output.committed(Time(1000))


def test_batches_without_partitions_tell_of_the_newest_written_batch(jobs: Jobs) -> None:
    """The next driver reads only the newest completion. Without it a lost database would be taken for a new one."""
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1], [2]))
    for time in (2000, 3000):
        stored = jobs.write(output, time, Partitions())
        output.committed(Time(time))
        assert stored == {"batch": 1000, "partitions": 2, "records": 0}
    again = jobs.driver(stored)
    assert again.outcome(Time(3000)) == stored, "nor does a batch that never ran forget it"
    with sqlite3.connect(jobs.path) as connection:
        connection.execute("DROP TABLE kstream_receipts")
    with pytest.raises(OutputChangedError, match="the table kstream_receipts is gone"):
        jobs.write(again, 4000, Partitions([4]))


def test_a_batch_that_runs_again_writes_the_partitions_that_are_missing_and_counts_all(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    rdd = Partitions([1, 2], [3])
    assert jobs.write(jobs.driver(), 1000, rdd, is_first_try=False) == {"batch": 1000, "partitions": 2, "records": 3}
    assert rdd.ran == [0] and jobs.numbers() == [1, 2, 3]


def test_where_an_input_reports_all_partitions_run_and_the_missing_ones_are_written(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1, 2], [3]), partitions=[1])
    rdd = Partitions([1, 2], [3])
    assert jobs.write(jobs.driver(), 1000, rdd, is_first_try=False, partitions=None) == {"batch": 1000, "partitions": 2, "records": 3}
    assert rdd.ran == [0, 1] and jobs.numbers() == [1, 2, 3]


def test_a_batch_that_was_left_to_a_restart_writes_nothing_whatever_its_partitions_are_now(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    jobs.write(output, 2000, Partitions([2]))
    again = Partitions([1], [])
    jobs.write(jobs.driver(), 1000, again, is_first_try=False, partitions=None)
    assert again.ran == [0, 1] and jobs.numbers() == [1, 2]


def test_a_checkpoint_of_before_is_refused_at_each_start_though_it_has_planned_batches_of_those_times(jobs: Jobs) -> None:
    output = jobs.driver({"batch": 1000, "partitions": 1, "records": 1})
    with pytest.raises(OutputChangedError):  # nothing was written before: the database is another one
        jobs.write(output, 2000, Partitions([2]))
    first = jobs.driver()
    jobs.write(first, 1000, Partitions([1]))
    jobs.write(first, 2000, Partitions([2]))
    jobs.plans = {1000: "plan of 1000", 2000: "planned anew"}
    for _ in range(2):
        with pytest.raises(OutputChangedError, match="older than what was written"):
            jobs.write(jobs.driver(), 1000, Partitions([1]), is_first_try=False)
    assert jobs.numbers() == [1, 2]


def test_a_database_that_has_lost_a_completed_batch_is_refused(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]))
    with pytest.raises(OutputChangedError, match="batch 2000 ms was written, and partition 0 of it is not there"):
        jobs.write(jobs.driver({"batch": 2000, "partitions": 1, "records": 1}), 3000, Partitions([3]))
    assert jobs.write(jobs.driver({"batch": 1000, "partitions": 1, "records": 1}), 2000, Partitions([2])) == {
        "batch": 2000,
        "partitions": 1,
        "records": 1,
    }


def test_a_first_try_asks_nothing_but_the_first_one_of_a_driver(jobs: Jobs, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    taken = receipt_table.take_over
    monkeypatch.setattr("kstream.sinks.database.take_over", lambda *given: (asked.append(1), taken(*given))[1])
    output = jobs.driver()
    for time in (1000, 2000, 3000):
        jobs.write(output, time, Partitions([time]))
    assert asked == [1]
    jobs.write(output, 3000, Partitions([3000]), is_first_try=False)
    assert asked == [1, 1] and jobs.numbers() == [1000, 2000, 3000]


def test_without_a_checkpoint_directory_it_is_refused() -> None:
    output = once(lambda: None, insert)
    with pytest.raises(ConfigurationError, match="needs a checkpoint directory"):
        output.restore(Writer("", 0, "", lambda _: None, lambda _time, _nonce: False), None)


def generator(_connection: Any, records: Iterator[int]) -> Iterator[int]:
    yield from records


@pytest.mark.parametrize("given", [{"name": ""}, {"name": "a,b"}, {"table": "a b"}, {"table": "a.b.c"}, {"table": "x; DROP"}], ids=str)
def test_names_that_cannot_be_used_are_refused(given: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"once: (name|table) is"):
        once(lambda: None, insert, **given)


@pytest.mark.parametrize(
    "functions",
    [(None, insert), (sqlite3.connect, "insert"), (sqlite3.connect, generator)],
    ids=("connect is none", "write is text", "write is a generator function"),
)
def test_what_is_no_function_or_a_generator_is_refused(functions: Any) -> None:
    with pytest.raises(TypeError, match=r"once: (connect|write)"):
        once(*functions)
