"""Which executors a SparkContext has, by py4j: pyspark does not say."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

_KEPT = "_kstream_executors"
_lock = threading.Lock()


def executors(sc: SparkContext) -> list[tuple[str, str]]:
    """(host, executor id) of every executor that lives, the driver left out; empty in local mode.

    One call into the JVM; more when executors have come or gone since the last time.
    """
    if is_local(sc):
        return []
    ids = str(_jvm_context(sc).getExecutorIds().mkString(","))
    with _lock:
        kept: tuple[str, list[tuple[str, str]]] | None = sc.__dict__.get(_KEPT)
        if kept is not None and kept[0] == ids:
            return kept[1]
        living = set(filter(None, ids.split(",")))
        found = _listed(sc, living)
        if len(found) == len(living):
            sc.__dict__[_KEPT] = (ids, found)
        return found


def is_local(sc: SparkContext) -> bool:
    """Whether the driver's process is the only executor."""
    return bool(_jvm_context(sc).isLocal())


def total_cores(sc: SparkContext) -> int:
    """Of all executors that live. They come one by one after the application has started."""
    return sum(row.totalCores() for row in _summaries(sc))


def task_attempts(sc: SparkContext, stage: int, most: int = 100) -> list[Any]:
    """What Spark's status store knows of the tasks of a stage's first attempt: TaskData of its API. It may be seconds behind."""
    return _rows(_jvm_context(sc).statusStore().taskList(stage, 0, most))


def _listed(sc: SparkContext, living: set[str]) -> list[tuple[str, str]]:
    """The status store knows the hosts; it may be a moment behind about who lives, and about where."""
    found = [(str(row.hostPort()).rpartition(":")[0], str(row.id())) for row in _summaries(sc) if row.id() in living]
    return [(host, executor) for host, executor in found if host]


def _summaries(sc: SparkContext) -> list[Any]:
    """Of the executors that live, and of the driver: ExecutorSummary of Spark's API."""
    return _rows(_jvm_context(sc).statusStore().executorList(True))


def _rows(found: Any) -> list[Any]:
    return [found.apply(i) for i in range(found.size())]


def _jvm_context(sc: SparkContext) -> Any:
    context: Any = sc._jsc  # pyright: ignore[reportPrivateUsage]
    return context.sc()
