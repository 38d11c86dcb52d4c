"""Which executors a SparkContext has, by py4j: pyspark does not say."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstream.spark.executor_cores import Executor, executors_with_free_core

if TYPE_CHECKING:
    from pyspark import SparkContext

_KEPT = "_kstream_executors"
_RECEIVERS = "_kstream_receivers_on_executors"
_TASK_CPUS = "_kstream_task_cpus"
_lock = threading.Lock()


def executors(sc: SparkContext) -> list[Executor]:
    """The executors that live, without the driver; empty in local mode. Any thread.

    Three short calls to the JVM. More calls when executors have come or gone since the last time.
    """
    if is_local(sc):
        return []
    ids = str(_jvm_context(sc).getExecutorIds().mkString(","))
    with _lock:
        kept: tuple[str, list[Executor]] | None = sc.__dict__.get(_KEPT)
        if kept is not None and kept[0] == ids:
            return kept[1]
        living = set(filter(None, ids.split(",")))
        found = _listed(sc, living)
        if len(found) == len(living):
            sc.__dict__[_KEPT] = (ids, found)
        return found


def known_executors(sc: SparkContext) -> list[Executor]:
    """The executors that `executors` found last. No call to the JVM."""
    kept: tuple[str, list[Executor]] | None = sc.__dict__.get(_KEPT)
    return [] if kept is None else kept[1]


def set_receivers(sc: SparkContext, receivers: Callable[[], Mapping[str, int]] | None) -> None:
    """Say how `free_executors` learns the number of receivers on each executor, by executor id. None: there are no receivers any more."""
    sc.__dict__[_RECEIVERS] = receivers


def free_executors(sc: SparkContext, among: Sequence[Executor]) -> list[Executor]:
    """Those of the executors that have a core for the tasks of batches, beside the receivers. Any thread.

    Reads `spark.task.cpus` once in the life of a SparkContext, and not at all without receivers; else no call to the JVM.
    """
    receivers: Callable[[], Mapping[str, int]] | None = sc.__dict__.get(_RECEIVERS)
    return list(among) if receivers is None else executors_with_free_core(among, receivers(), task_cpus(sc))


def task_cpus(sc: SparkContext) -> int:
    """How many cores Spark reserves for each task. Spark's setting is read once."""
    if _TASK_CPUS not in sc.__dict__:
        sc.__dict__[_TASK_CPUS] = int(sc.getConf().get("spark.task.cpus") or 1)
    return sc.__dict__[_TASK_CPUS]


def is_local(sc: SparkContext) -> bool:
    """Whether the driver's process is the only executor."""
    return bool(_jvm_context(sc).isLocal())


def executor_cores(sc: SparkContext) -> list[int]:
    """The number of cores of each executor that is registered now. In local mode the driver's; none a moment after Spark's start."""
    if is_local(sc):
        return [cores for row in _summaries(sc) if (cores := int(row.totalCores()))]
    return [executor.cores for executor in executors(sc)]


def task_attempts(sc: SparkContext, stage: int, most: int = 100) -> list[Any]:
    """What Spark's status store knows of the tasks of a stage's first attempt: TaskData of its API. It may be seconds behind."""
    return _rows(_jvm_context(sc).statusStore().taskList(stage, 0, most))


def _listed(sc: SparkContext, living: set[str]) -> list[Executor]:
    """The executors of these ids that Spark's status store knows with their hosts. The store may be a moment behind."""
    rows = [row for row in _summaries(sc) if row.id() in living]
    found = [Executor(str(row.hostPort()).rpartition(":")[0], str(row.id()), int(row.totalCores())) for row in rows]
    return [executor for executor in found if executor.host]


def _summaries(sc: SparkContext) -> list[Any]:
    """Of the executors that live, and of the driver: ExecutorSummary of Spark's API."""
    return _rows(_jvm_context(sc).statusStore().executorList(True))


def _rows(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.size())]


def _jvm_context(sc: SparkContext) -> Any:
    context: Any = sc._jsc  # pyright: ignore[reportPrivateUsage]
    return context.sc()
