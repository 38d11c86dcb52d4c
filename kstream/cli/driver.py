"""run_driver: runs a job in this process until it ends, and says why it ended.

With a supervisor this process is its child; with `--no-restart`, and under spark-submit, it is `kstream run` itself.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from kstream.batch_time import Time
from kstream.checkpoint.given_path import given_checkpoint
from kstream.checkpoint.offline import forget_batch, forget_missing
from kstream.checkpoint.reader import newest_plan
from kstream.cli.cluster_start import ClusterStart
from kstream.cli.exit_codes import RunCode
from kstream.cli.job import load_setup, ship
from kstream.cli.terminal import echo, one_line, require_pyspark
from kstream.errors import (
    CheckpointError,
    ConfigurationError,
    FencedError,
    JavaNotFoundError,
    JvmLostError,
    KStreamError,
    MissingDependencyError,
    NotSerializableError,
    UnsupportedStoreError,
    where_of,
)
from kstream.public_call import was_refused
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.spark.submit_args import NO_OPTIONS, SubmitOptions
from kstream.user_code import frames_of_the_user

if TYPE_CHECKING:
    from kstream.context import StreamingContext

logger = logging.getLogger(__name__)
_MOST_FRAMES = 3
"""The most frames in a traceback of the user's code."""
_MOST_LINES = 4
"""The most lines of the error's text below them."""
_CANNOT_WORK = (ConfigurationError, MissingDependencyError, JavaNotFoundError, NotSerializableError, UnsupportedStoreError)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """How a driver has ended.

    Attributes:
        code: the exit code.
        reason: one line; "" if the job has ended or was stopped.
        traceback: the way through the user's code to an error in `setup` or in the import of the job; "" for another end.
    """

    code: RunCode
    reason: str = ""
    traceback: str = ""


def run_driver(
    job: str,
    path: str,
    forget_ms: int | None = None,
    allow: Sequence[str] = (),
    verbose: bool = False,
    submit: SubmitOptions = NO_OPTIONS,
    supervised: bool = False,
) -> RunEnd:
    """Run a job from its checkpoint. Blocks until the context has stopped, and stops it after an error or Ctrl-C.

    Args:
        job: `module:name` or `file.py:name` of the function that makes the context.
        path: the checkpoint.
        forget_ms: the batch time whose plans are set aside before the start; None for none.
        allow: the values of `--allow`.
        verbose: print the traceback of an error.
        submit: the options for Spark.
        supervised: whether a supervisor has started this driver, and starts the next one.
    """
    context: StreamingContext | None = None
    started = False
    try:
        require_pyspark()
        cluster = ClusterStart.prepare(submit)
        if forget_ms is not None:
            forget(path, forget_ms)
        with given_checkpoint(path):
            context = _make(load_setup(job), path, allow, submit)
        cluster.check(context, path)
        context.is_supervised = supervised
        context.start()
        started = True
        await_end(context)
    except BaseException as e:
        if verbose and not isinstance(e, SystemExit | KeyboardInterrupt):
            echo(traceback.format_exc(), err=True, nl=False)
        end = end_of(e, started, _has_lost_its_jvm(e), partial(_has_run, path))
        if context is not None:
            context.is_started_again = supervised and not end.code.final  # a request to stop that comes now changes that no more
        _stop(context, started, stop_spark=end.code is not RunCode.LOST_JVM)
        return end
    logger.info("job stopped")
    return RunEnd(RunCode.ENDED)


def await_end(context: StreamingContext) -> None:
    """Block until the context has stopped.

    After `kstream stop`, the error of a batch does not end the driver: the stop goes on, and a supervisor starts no other driver. The batch
    is pending.

    Raises:
        Exception: the first error of a context that was not asked to stop; also FencedError and JvmLostError of one that was.
    """
    try:
        context.awaitTermination()
    except (FencedError, JvmLostError):
        raise
    except Exception as e:
        if not context.stop_requested:
            raise
        logger.warning("error while the context stops as asked, the next start runs the batch again: %s", one_line(e))
        context.await_stop()  # every later `awaitTermination` would raise this error again, at once


def _make(setup: Callable[[], Any], path: str, allow: Sequence[str], submit: SubmitOptions) -> StreamingContext:
    """Make the context of the job, and send the file of the job to executors. Raises as `getOrCreate`."""
    from kstream.context import StreamingContext
    from kstream.context.factories import services_of_context
    from kstream.context.settings import RECOVERY_ALLOW

    context = StreamingContext.getOrCreate(path, setup)
    if allow:
        services_of_context(context).settings.override(RECOVERY_ALLOW, ",".join(allow))
    ship(setup, context, submit.modules)
    return context


def _stop(context: StreamingContext | None, started: bool, stop_spark: bool) -> None:
    """Stop a context, if there is one, after an error. A further error is logged: the first one is the reason of the end.

    Args:
        context: the context, or None.
        started: whether its start has succeeded. A start that fails has stopped all but Spark.
        stop_spark: whether to stop Spark, too. Without a JVM, pyspark would only warn.
    """
    if context is None:
        return
    try:
        if stop_spark:
            from kstream.spark.jvm_log import silence_jvm

            silence_jvm(context.sparkContext)
        if started:
            context.stop(stopSparkContext=stop_spark, stopGraceFully=False)
        elif stop_spark:
            context.sparkContext.stop()
    except Exception as e:
        logger.warning("context not stopped in order: %s", one_line(e))


def end_of(error: BaseException, started: bool, jvm_ended: bool, has_run: Callable[[], bool] = lambda: False) -> RunEnd:
    """Return the exit code and the reason for an error of a driver.

    Args:
        error: the error, or the exception by which the program ends.
        started: whether the context had been started.
        jvm_ended: whether Spark's JVM was there, and has ended. Then nearly any error may have come of it.
        has_run: returns whether the job may have run before. May block on the store.
    """
    if isinstance(error, KeyboardInterrupt):
        logger.info("job interrupted: batches that are planned and not done run at the next start")
        return RunEnd(RunCode.INTERRUPTED)
    if isinstance(error, SystemExit):
        return RunEnd(RunCode.ENDED) if error.code in (None, 0) else RunEnd(RunCode.FAILED, f"the job called sys.exit({error.code!r})")
    if isinstance(error, FencedError):
        return RunEnd(RunCode.FENCED, one_line(error))
    if isinstance(error, JvmLostError):
        return RunEnd(RunCode.LOST_JVM, one_line(error))
    if jvm_ended:
        return RunEnd(RunCode.LOST_JVM, f"Spark's JVM has ended, the first error was: {_told(error)}")
    if started:
        return RunEnd(RunCode.FAILED_BATCH, _told(error))
    return RunEnd(
        _code_of_start(error, has_run),
        _told(error),
        "" if isinstance(error, KStreamError) or was_refused(error) else _way_through_users_code(error),
    )


def _code_of_start(error: BaseException, has_run: Callable[[], bool]) -> RunCode:
    """Return the exit code for an error that came before the context had started.

    Brokers may refuse a job that has run, for example while its password is replaced. That passes.
    """
    if isinstance(error, _CANNOT_WORK) or was_refused(error):
        return RunCode.CONFIGURATION
    if isinstance(error, KStreamError) and error.is_refusal and not has_run():
        return RunCode.CONFIGURATION
    if isinstance(error, CheckpointError):
        return RunCode.REFUSED
    if isinstance(error, ImportError | SyntaxError):
        return RunCode.IMPORT
    return RunCode.FAILED


def _has_run(path: str) -> bool:
    """Return whether the checkpoint has a plan: the brokers have accepted the job then. True if nobody can tell. Blocks on the store."""
    try:
        return newest_plan(open_checkpoint(path)) is not None
    except Exception as e:  # of the store, or of a damaged plan
        logger.debug("it is not known whether the job has run before: %s", one_line(e))
        return True


def _told(error: BaseException) -> str:
    """Return an error as one line. The place in the streams follows, or that in the code of the user."""
    where = where_of(error)
    if not where and not isinstance(error, SyntaxError):  # the text of a SyntaxError has its place
        own = list(frames_of_the_user(error.__traceback__))
        where = "".join(f"{entry.tb_frame.f_code.co_filename}, line {entry.tb_lineno}" for entry in own[-1:])
    return f"{one_line(error)} ({where})" if where else one_line(error)


def _way_through_users_code(error: BaseException) -> str:
    """Return the traceback of an error with the user's frames only, the innermost ones; "" for one frame: the reason names its line."""
    own = [(entry.tb_frame, entry.tb_lineno) for entry in frames_of_the_user(error.__traceback__)]
    if len(own) < 2:
        return ""
    frames = traceback.StackSummary.extract(iter(own[-_MOST_FRAMES:]))
    left_out = f"  … {len(own) - _MOST_FRAMES} more\n" if len(own) > _MOST_FRAMES else ""
    return "".join(["Traceback (most recent call last):\n", left_out, *frames.format(), *_last_lines(error)])


def _last_lines(error: BaseException) -> list[str]:
    """Return the lines that end a traceback: the type and the text of an error."""
    return "".join(traceback.format_exception_only(type(error), error)).splitlines(keepends=True)[:_MOST_LINES]


def _has_lost_its_jvm(error: BaseException) -> bool:
    """Return whether the JVM of this process has ended. Without pyspark there is none."""
    if "pyspark" not in sys.modules:
        return False
    from kstream.spark.jvm_watch import jvm_has_ended

    return jvm_has_ended(error)


def forget(path: str, time_ms: int) -> None:
    """Set the plans of a batch aside, or record that its plan is missing. Logs the change.

    Raises:
        ConfigurationError: there is no plan of that time, and it does not lie between two plans.
    """
    store = open_checkpoint(path)
    moved = forget_batch(store, Time(time_ms))
    if not moved and forget_missing(store, Time(time_ms)):
        logger.warning("batch %d ms has no plan: this is recorded, and the stream continues without the records of the batch", time_ms)
    elif not moved:
        raise ConfigurationError(
            f"{store.url} holds no plan of batch {time_ms} ms: see `kstream checkpoint show {path}`", key="forget-batch", value=time_ms
        )
    for place in moved:
        logger.warning("plan %s is set aside: the next batch reads the offsets of its batch again", place)
