"""TaskScheduler and SimulatedPartitions: Spark's part. Each attempt of a task is a process, which may die, or outlive its job."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kstream_kafka.sink.producer_record import Encoded

from tests.simulator.strands import Killed

from .turns import SimulatedProcess, Turns

FAILURES = 2
"""So many failures of one partition fail the job."""

Work = Callable[[int, Iterator[Encoded]], Iterator[Any]]


class UsersError(Exception):
    """An error of the user's code."""


class TaskScheduler:
    """Runs the jobs of one driver."""

    def __init__(self, turns: Turns, driver: SimulatedProcess) -> None:
        self.turns = turns
        self.driver = driver
        self.known: dict[SimulatedProcess, SimulatedJob] = {}
        """All attempts, and their jobs."""

    @property
    def running(self) -> list[SimulatedProcess]:
        return [process for process, job in self.known.items() if process in job.running]

    def copy(self, process: SimulatedProcess) -> None:
        """Start a second attempt beside one that runs (speculation)."""
        self.turns.note("is slow, so a copy of it is started", process.name)
        job = self.known[process]
        job.launch(job.running[process])

    def run(self, work: Work, records: Callable[[int], Iterator[Encoded]], chosen: Sequence[int], title: str) -> list[Any]:
        return SimulatedJob(self, work, records, title).run(chosen)


class SimulatedJob:
    """One job: a task for each partition."""

    def __init__(self, tasks: TaskScheduler, work: Work, records: Callable[[int], Iterator[Encoded]], title: str) -> None:
        self._tasks, self._turns, self._driver, self._title = tasks, tasks.turns, tasks.driver, title
        self._work, self._records = work, records
        self._results: dict[int, list[Any]] = {}
        self._failures: dict[int, int] = {}
        self._error: Exception | None = None
        self.running: dict[SimulatedProcess, int] = {}
        """The attempts that run → their partitions."""
        self._attempts: dict[int, int] = {}
        self.is_over = False

    def run(self, chosen: Sequence[int]) -> list[Any]:
        """Return the results of these partitions. The error of a task that has failed too often is raised."""
        for partition in chosen:
            self.launch(partition)
        self._turns.wait(lambda: self._error is not None or len(self._results) == len(chosen))
        self.is_over = True
        for process in list(self.running):
            if self._turns.rng.random() < 0.5:
                self._turns.kill(process, "is ended, its job is over")
        if self._error is not None:
            raise self._error
        return [result for partition in chosen for result in self._results[partition]]

    def launch(self, partition: int) -> None:
        """Start another attempt. In a new attempt of a stage the numbers of attempts begin again."""
        number = self._attempts[partition] = self._attempts.get(partition, -1) + 1
        attempt = 0 if number and self._turns.rng.random() < 0.2 else number
        name = f"{self._driver.name} {self._title} task {partition}.{number}"

        def work() -> None:
            self._attempt(process, partition)

        process = self._turns.process(name, work, hashing=self._driver.hashing, attempt=attempt)
        process.on_death = lambda: self._failed(process, None)
        self.running[process] = partition
        self._tasks.known[process] = self

    def _attempt(self, process: SimulatedProcess, partition: int) -> None:
        try:
            result = list(self._work(partition, self._records(partition)))
        except Killed:
            raise
        except Exception as e:
            self._turns.note(f"fails: {type(e).__name__}: {str(e)[:150]}")
            self._failed(process, e)
            return
        self._turns.note("has succeeded")
        del self.running[process]
        self._results.setdefault(partition, result)

    def _failed(self, process: SimulatedProcess, error: Exception | None) -> None:
        partition = self.running.pop(process)
        if self.is_over or self._driver.is_dead or partition in self._results or self._error is not None:
            return
        failures = self._failures[partition] = self._failures.get(partition, 0) + 1
        if failures >= FAILURES:
            self._error = error or UsersError("the executors of a task were lost")
        elif partition not in self.running.values():
            self.launch(partition)


class SimulatedPartitions:
    """Stands for an RDD of encoded records."""

    def __init__(
        self, tasks: TaskScheduler, num_partitions: int, records: Callable[[int], Iterator[Encoded]], title: str, is_shuffled: bool
    ) -> None:
        self.is_shuffled = is_shuffled
        self._tasks, self._num, self._records, self._title = tasks, num_partitions, records, title
        self.context = self._jrdd = self

    def getNumPartitions(self) -> int:
        return self._num

    def rdd(self) -> Any:
        return self

    def outputDeterministicLevel(self) -> Any:
        return self

    def toString(self) -> str:
        return "UNORDERED"

    def mapPartitionsWithIndex(self, function: Work) -> Work:
        return function

    def runJob(self, function: Work, _collect: Any, chosen: Sequence[int]) -> list[Any]:
        return self._tasks.run(function, self._records, chosen, self._title)
