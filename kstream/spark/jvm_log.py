"""Spark's log without the traces of failed tasks: the error of such a task is raised, and printed, in Python.

Spark logs each failed task twice: by its executor (in local mode that is in the driver), and by its scheduler. Both have the traceback of
the worker and the frames of the JVM: a hundred lines for one bad record. What Python raised is left out, as the error of the job says it
again. What remains, such as a block that is lost with its executor, is one line for each task.

On a cluster a task is tried four times, which takes long on a busy machine. A module that is missing is a fact at the first try, so the log
has it then, in one line. Spark knows no way to give such a job up earlier.
"""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

from kstream.spark.workers_python import is_local_master

if TYPE_CHECKING:
    from pyspark import SparkContext

logger = logging.getLogger("kstream.spark")

_IMPORT = "(?:ModuleNotFoundError|ImportError): "
_BY_PYTHON = r"org\.apache\.spark\.api\.python\.Python(Exception|WorkerFactory)"
"""In the message of a task that failed in Python. A worker that cannot be started is such a failure."""
_OF_CONNECTION = (
    r"Exception in connection from .*|Error sending result .*|Error while invoking RpcHandler.*|Failed to update accumulator .*"
)
"""What Spark says of a connection that ends with an executor, or with the Python of the driver. Its trace names no cause."""
_LONG = rf"(?s)(?:Lost task [^\n]*\n.*|{_OF_CONNECTION})"
"""What is logged with a trace: a lost task, by whosever fault, and a connection that has ended."""
_SHORT = rf"(?s)\A(Lost task [^\n]*?: )(?:[^\n]*\n.*?\n(?={_IMPORT}))?([^\n]*).*\z"
"""The same. Its groups: the task, and the first line of the error; of a failed import in Python, the last line of the traceback."""
_OF_LOST_EXECUTOR = r"No more replicas available for .*|Error trying to remove (?:broadcast|RDD|shuffle) .*|Failed to send RPC .*"
"""What Spark says of each block of an executor that is lost, and of each message to it. That it is lost, and why, is a line of its own."""
_OF_FAILED_BLOCK = r"Putting block \S+ failed due to exception .*|Block \S+ could not be removed as it was not found on disk or in memory"
"""What Spark says of a block of a state or of a persisted stream whose task has failed, again with the whole trace."""
_NOT_LOCAL = r"(?s)Spark is not running in local mode, therefore the checkpoint directory must not be on the local filesystem.*"
_TRACE = re.compile(r"%[xr]?(?:ex|Ex|exception|throwable)\b(?:\{[^}]*\})*")
_MESSAGE = re.compile(r"%(m|msg|message)\b(?!\{)")


def repeated(local: bool) -> str:
    """Return the pattern of the messages that say again what the error of the job, or the line about a lost executor, says.

    Args:
        local: whether a job fails at the first failure of a task. Else a failed import is no repetition yet.
    """
    but = "" if local else rf"(?!.*\n{_IMPORT})"
    return (
        rf"(?s)(Exception in task \S+ in stage .*|Lost task {but}.* {_BY_PYTHON}.*|Task \d+ in stage \S+ failed \d+ times; aborting job"
        rf"|Lost task .* TaskKilled \(Stage cancelled.*(?:{_BY_PYTHON}|PYTHON_EXCEPTION).*|{_OF_FAILED_BLOCK}|{_OF_LOST_EXECUTOR})"
    )


def quiet_failed_tasks(sc: SparkContext) -> None:
    """Leave lines about failed tasks of Python and about lost executors out of Spark's log, and shorten others, once a SparkContext.

    At the level DEBUG all lines stay. They also stay where Spark's log cannot be changed, such as under another logging library.
    """
    if sc.__dict__.setdefault("_kstream_quiet", False):
        return
    sc.__dict__["_kstream_quiet"] = True
    try:
        _quiet(sc)
    except Exception as e:  # a log is no reason not to start
        logger.debug("lines about failed tasks stay in Spark's log: %s", e)


def _quiet(sc: SparkContext) -> None:
    """Add filters to Spark's root logger: `repeated` messages are left out, and on the console `_LONG` ones are shortened.

    A logger of its own would take Spark's classes out of the level that shells set.
    """
    jvm: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
    log4j = jvm.org.apache.logging.log4j
    if log4j.LogManager.getRootLogger().isDebugEnabled():
        return
    context = log4j.LogManager.getContext(False)
    deny, neutral = _results(jvm)
    regex = log4j.core.filter.RegexFilter
    configuration = context.getConfiguration()
    root = configuration.getRootLogger()
    root.addFilter(regex.createFilter(repeated(is_local_master(sc.master)), None, False, deny, neutral))
    consoles = [appender for appender in root.getAppenders().values() if appender.getClass().getSimpleName() == "ConsoleAppender"]
    for number, appender in enumerate(consoles):
        if short := _with_short_messages(log4j, configuration, appender, f"kstream-{number}"):
            if (of_shell := appender.getFilter()) is not None:  # keeps lines below the level of shells out
                short.addFilter(of_shell)
            short.addFilter(regex.createFilter(_LONG, None, False, neutral, deny))
            short.start()
            root.addAppender(short, None, None)
            appender.addFilter(regex.createFilter(_LONG, None, False, deny, neutral))
    context.updateLoggers()


def quiet_checkpoint_warning(sc: SparkContext) -> None:
    """Leave Spark's warning about a local checkpoint directory out: the executors have been asked, and see the same one."""
    try:
        jvm: Any = sc._jvm  # pyright: ignore[reportPrivateUsage]
        log4j = jvm.org.apache.logging.log4j
        context, (deny, neutral) = log4j.LogManager.getContext(False), _results(jvm)
        warning = log4j.core.filter.RegexFilter.createFilter(_NOT_LOCAL, None, False, deny, neutral)
        context.getConfiguration().getRootLogger().addFilter(warning)
        context.updateLoggers()
    except Exception as e:  # a log is no reason not to start
        logger.debug("line about the checkpoint directory stays in Spark's log: %s", e)


def _with_short_messages(log4j: Any, configuration: Any, appender: Any, name: str) -> Any:
    """Return an appender to the same console, in the same form, with short messages and no traces. None if the form is no pattern.

    Files, and logs in another form, keep what Spark says.
    """
    layout = appender.getLayout()
    if layout.getClass().getSimpleName() != "PatternLayout":
        return None
    pattern = _MESSAGE.sub(lambda _: f"%replace{{%m}}{{{_SHORT}}}{{$1$2}}", _TRACE.sub("", str(layout.getConversionPattern())))
    builder = log4j.core.layout.PatternLayout.newBuilder().withPattern(pattern).withConfiguration(configuration)
    shorter = builder.withAlwaysWriteExceptions(False).build()
    builder = log4j.core.appender.ConsoleAppender.newBuilder()
    return builder.setTarget(appender.getTarget()).setName(name).setLayout(shorter).setConfiguration(configuration).build()


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
