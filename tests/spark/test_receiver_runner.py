"""What the runner of receivers waits for, and what it says of a task that failed."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import SparkContext

from kstream.errors import ConfigurationError, MissingDependencyError
from kstream.receiver.receiver_scheduling_policy import ExecutorLocation
from kstream.spark.executors import Executor
from kstream.spark.receiver_runner import SparkReceiverRunner, check_cores
from tests.harness import PATIENCE
from tests.spark.fake_executors import FakeSparkContext

NOTHING: Any = None


def test_a_start_that_waits_for_a_cluster_to_give_executors_gives_up_when_a_stop_is_wanted() -> None:
    """The start holds the context's lock, and the stop, SIGTERM's too, waits for that."""
    sc: Any = FakeSparkContext([])
    stop_wanted = threading.Event()
    starting = threading.Thread(target=check_cores, args=(sc, 1, stop_wanted))
    starting.start()
    assert sc.looked.wait(PATIENCE)
    stop_wanted.set()
    starting.join(PATIENCE)
    assert not starting.is_alive()


def test_a_start_goes_on_when_the_last_executor_that_was_missing_has_come() -> None:
    sc: Any = FakeSparkContext([Executor("host1", "a", 1)])
    starting = threading.Thread(target=check_cores, args=(sc, 1, threading.Event()))
    starting.start()
    assert sc.looked.wait(PATIENCE)
    sc.living.append(Executor("host2", "b", 1))
    starting.join(PATIENCE)
    assert not starting.is_alive()


def test_in_local_mode_the_cores_of_the_driver_count_and_too_few_are_an_error_at_once() -> None:
    sc: Any = FakeSparkContext([Executor("localhost", "driver", 2)], local=True)
    check_cores(sc, 1, threading.Event())
    with pytest.raises(ConfigurationError, match=r"2 receivers .* there are 2 cores in all"):
        check_cores(sc, 2, threading.Event())


def test_with_dynamic_allocation_nothing_is_waited_for() -> None:
    sc: Any = FakeSparkContext([], conf={"spark.dynamicAllocation.enabled": "true"})
    check_cores(sc, 2, threading.Event())
    assert not sc.looked.is_set()


def missing() -> Any:
    raise MissingDependencyError("this receiver needs a package")


class Unloadable:
    """A receiver that no worker can load."""

    def __reduce__(self) -> Any:
        return missing, ()


def test_the_reason_of_a_failed_task_is_the_last_line_of_what_its_worker_said_and_is_logged(
    sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    ended = threading.Event()
    ends: list[tuple[str, bool]] = []
    receiver: Any = Unloadable()
    SparkReceiverRunner(sc, NOTHING).run(receiver, 0, 1, [], lambda *end: (ends.append(end), ended.set())[1])
    assert ended.wait(6 * PATIENCE), "a worker is started first"
    said = "kstream.errors.MissingDependencyError: this receiver needs a package"
    assert ends == [(said, True)]
    (logged,) = [record for record in caplog.records if record.name.startswith("kstream")]
    assert logged.getMessage() == f"the task of receiver 0 has failed: {said}" and logged.exc_info is None


class Attempts(FakeSparkContext):
    """The attempts of one task, by their numbers, in Spark's status store."""

    def __init__(self, **statuses: str) -> None:
        super().__init__([])
        self.rows = [
            SimpleNamespace(attempt=lambda n=n: n, status=lambda s=s: s) for n, s in ((int(k[1:]), s) for k, s in statuses.items())
        ]
        self._jvm = SimpleNamespace(
            scala=SimpleNamespace(Option=SimpleNamespace(apply=lambda value: value)),
            java=SimpleNamespace(util=SimpleNamespace(ArrayList=list)),
        )

    def statusStore(self) -> Any:
        def task_list(_stage: int, _attempt: int, skip: int, most: int, by: str, rises: bool, statuses: list[str]) -> Any:
            assert (by, rises, statuses) == ("att", True, [])
            found = sorted(self.rows, key=lambda row: row.attempt())[skip : skip + most]
            return SimpleNamespace(size=lambda: len(found), apply=found.__getitem__)

        return SimpleNamespace(taskList=task_list)


def test_whether_the_first_attempt_runs_is_known_after_any_number_of_later_ones() -> None:
    """Spark was asked for the newest hundred: of more of them, a first one that had ended counted as running."""
    assert runner_on(Attempts()).first_attempt_runs(7), "it is not in the list yet"
    later = {f"n{n}": "RUNNING" for n in range(1, 150)}
    assert runner_on(Attempts(**later, n0="RUNNING")).first_attempt_runs(7)
    assert not runner_on(Attempts(**later, n0="FAILED")).first_attempt_runs(7)
    assert not runner_on(Attempts(**later)).first_attempt_runs(7), "Spark has forgotten it"


class Runtime:
    """A clock that moves by the waits of its events."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def event(self) -> Any:
        def wait(seconds: float) -> bool:
            self.now += seconds
            return False

        return SimpleNamespace(wait=wait)


def runner_on(sc: Any) -> SparkReceiverRunner:
    runtime: Any = Runtime()
    return SparkReceiverRunner(sc, NOTHING, runtime=runtime)


def test_the_driver_is_an_executor_in_local_mode_only() -> None:
    """A cluster that has not given an executor yet has none: no receiver is placed on the driver, which has no worker."""
    assert runner_on(FakeSparkContext([])).executors() == []
    assert runner_on(FakeSparkContext([], local=True)).executors() == [ExecutorLocation("localhost", "driver")]
    assert runner_on(FakeSparkContext([Executor("host1", "a", 1)])).executors() == [ExecutorLocation("host1", "a")]


def test_the_first_receiver_waits_for_a_store_also_while_a_cluster_has_no_executor(caplog: pytest.LogCaptureFixture) -> None:
    runner_on(FakeSparkContext([])).start_stores(1)
    assert "0 executors have a block store, so blocks have fewer than 1 replicas" in caplog.text


def test_the_executors_with_a_store_are_counted_under_the_lock_only() -> None:
    """Another thread may forget a store meanwhile."""

    class Guarded(set[str]):
        def __len__(self) -> int:
            assert runner._lock.locked()
            return super().__len__()

    runner = runner_on(FakeSparkContext([]))
    runner._start_missing_stores = lambda: None
    runner._with_store = Guarded({"a"})
    runner.start_stores(1)


def test_stores_that_cannot_be_started_are_told_in_one_line_with_the_error_of_their_worker(
    sc: SparkContext, caplog: pytest.LogCaptureFixture
) -> None:
    runner = SparkReceiverRunner(sc, NOTHING)
    runner.executors = lambda: [ExecutorLocation("host1", "1"), ExecutorLocation("host2", "2")]
    runner._start_missing_stores()
    (said,) = [record for record in caplog.records if record.name.startswith("kstream")]
    assert said.getMessage().startswith("block stores could not be started on executors 1 (host1), 2 (host2): AttributeError: ")
    assert "\n" not in said.getMessage() and said.exc_info is None
