"""Spark's log without the traces of failed tasks: the error of such a task is raised, and printed, in Python.

Spark logs each failed task once by its executor (in local mode that is in the driver) and once by its scheduler, each with the traceback of
the worker and the frames of the JVM: a hundred lines for one bad record.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger("kstream.spark")

_REPEATED = (
    r"(?s)(Exception in task \S+ in stage .*|Lost task .* org\.apache\.spark\.api\.python\.Python(Exception|WorkerFactory).*"
    r"|Task \d+ in stage \S+ failed \d+ times; aborting job)"
)
"""The messages that say what the error of the job says again. A worker that cannot be started is such an error. The line
about a task that is lost by the JVM's fault stays."""


def quiet_failed_tasks(sc: SparkContext) -> None:
    """Leave the lines about failed tasks of Python out of the log of Spark's JVM, once for each SparkContext.

    At the level DEBUG all lines stay. They also stay where Spark's log cannot be changed, such as under another logging library.
    """
    if sc.__dict__.setdefault("_kstream_quiet", False):
        return
    sc.__dict__["_kstream_quiet"] = True
    try:
        _add_filter(sc._jvm)  # pyright: ignore[reportPrivateUsage]
    except Exception as e:  # a log is no reason not to start
        logger.debug("lines about failed tasks stay in Spark's log: %s", e)


def _add_filter(jvm: Any) -> None:
    """Add a filter to the root logger. A logger of its own would take Spark's classes out of the level that shells set."""
    log4j = jvm.org.apache.logging.log4j
    if log4j.LogManager.getRootLogger().isDebugEnabled():
        return
    context = log4j.LogManager.getContext(False)
    deny, neutral = _results(jvm)
    repeated = log4j.core.filter.RegexFilter.createFilter(_REPEATED, None, False, deny, neutral)
    context.getConfiguration().getRootLogger().addFilter(repeated)
    context.updateLoggers()


def _results(jvm: Any) -> tuple[Any, Any]:
    """Return what a filter answers for a line that it leaves out, and for one that it leaves to others."""
    result = jvm.java.lang.Class.forName("org.apache.logging.log4j.core.Filter$Result")
    return jvm.java.lang.Enum.valueOf(result, "DENY"), jvm.java.lang.Enum.valueOf(result, "NEUTRAL")


def silence_jvm(sc: SparkContext | None) -> None:
    """Let Spark's JVM log nothing more: the program stops at once and ends, and jobs that are cut short are no errors. Any thread.

    By a filter, and not by another level: Spark compares levels to find the threshold by which the log of a Python program begins at WARN.
    While a level changes, lines that other threads write just then would pass, whatever their level.
    """
    try:
        if sc is not None:
            jvm: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
            log4j = jvm.org.apache.logging.log4j
            context, (deny, neutral) = log4j.LogManager.getContext(False), _results(jvm)
            all_lines = log4j.core.filter.ThresholdFilter.createFilter(log4j.Level.OFF, neutral, deny)
            context.getConfiguration().getRootLogger().addFilter(all_lines)
            context.updateLoggers()
    except Exception as e:  # the JVM may have ended
        logger.debug("log of the JVM not silenced: %s", e)
