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
    context: Any = sc._jsc  # pyright: ignore[reportPrivateUsage]
    jsc = context.sc()
    if jsc.isLocal():
        return []
    ids = str(jsc.getExecutorIds().mkString(","))
    with _lock:
        kept: tuple[str, list[tuple[str, str]]] | None = sc.__dict__.get(_KEPT)
        if kept is not None and kept[0] == ids:
            return kept[1]
        living = set(filter(None, ids.split(",")))
        found = _listed(jsc, living)
        if len(found) == len(living):
            sc.__dict__[_KEPT] = (ids, found)
        return found


def _listed(jsc: Any, living: set[str]) -> list[tuple[str, str]]:
    """The status store knows the hosts; it may be a moment behind about who lives, and about where."""
    summaries = jsc.statusStore().executorList(True)
    rows = [summaries.apply(i) for i in range(summaries.size())]
    found = [(str(row.hostPort()).rpartition(":")[0], str(row.id())) for row in rows if row.id() in living]
    return [(host, executor) for host, executor in found if host]
