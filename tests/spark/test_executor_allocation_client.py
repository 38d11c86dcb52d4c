"""What the JVM's SparkContext is asked about executors. The cluster itself is in the integration suite."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from pyspark import SparkContext

from kstream.spark.executors import Executor, SparkExecutorAllocationClient
from tests.spark.fake_executors import FakeSparkContext


def test_local_mode_cannot_give_executors(sc: SparkContext) -> None:
    assert not SparkExecutorAllocationClient(sc).can_allocate()


def test_executors_are_counted_with_the_tasks_that_each_can_run() -> None:
    sc: Any = FakeSparkContext([Executor("a", "0", 4), Executor("b", "1", 3)], conf={"spark.task.cpus": "2"})
    assert SparkExecutorAllocationClient(sc).executors() == {"0": 2, "1": 1}


def test_a_request_is_for_executors_in_all_and_a_busy_executor_does_not_end() -> None:
    """The SparkContext's own `killExecutor` would end it, too, and fail its tasks."""
    asked: list[Any] = []
    sc: Any = SimpleNamespace(_jvm=SimpleNamespace(PythonUtils=SimpleNamespace(toScalaMap=dict)))
    backend = SimpleNamespace(killExecutor=lambda executor: asked.append(executor) or False)
    context = SimpleNamespace(requestTotalExecutors=lambda *arguments: asked.append(arguments) or True, schedulerBackend=lambda: backend)
    sc._jsc = SimpleNamespace(sc=lambda: context)
    client = SparkExecutorAllocationClient(sc)
    assert client.request_total_executors(3) is True and client.kill_executor("7") is False
    assert asked == [(3, 0, {}), "7"]
