"""How an error of the streams is logged, and printed by Python if nobody catches it: the user's frames, the error, and one line of context.

The line has the operation, the batch and the record. Python alone prints such an error with its cause, Spark's error, which has some three
hundred lines of the JVM and of threads. The log has all of them at DEBUG, and so has `error.__cause__`. Errors that `awaitTermination` has
not raised are printed as ever.

Ctrl-C ends a program with the user's frames alone, and the JVM is silent about the batches that it cuts short.
"""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Iterator
from types import TracebackType

from kstream.errors import (
    BEGIN,
    LOGGED_ERROR,
    KStreamError,
    in_a_line,
    is_reported,
    last_exception,
    note_reported,
    task_traceback,
    where_of,
)
from kstream.printable import printable_lines
from kstream.spark.jvm_log import silence_jvm
from kstream.spark.spark_context import active_spark_context
from kstream.user_code import frames_of_the_user

_MOST_FRAMES = 2
"""The most frames that are printed of the driver below the call of `awaitTermination`, and of the task: the innermost ones."""
_MOST_LINES = 3
"""The most lines that are printed of the error's message."""


def log_error(logger: logging.Logger, message: str, error: BaseException) -> None:
    """Log an error of the streams in one line, and the whole of it at DEBUG. From now on it is printed in the short form.

    Args:
        logger: the logger.
        message: the step that failed.
        error: the error, which `awaitTermination` raises.
    """
    where = where_of(error)
    logger.error("%s%s: %s", message, f" ({where})" if where else "", in_a_line(error), extra={LOGGED_ERROR: error})
    logger.debug("%s, the whole error:", message, exc_info=error)
    note_reported(error)


def print_errors_shortly() -> None:
    """Let this process print errors of the streams, and Ctrl-C, in the short form. Does nothing if the user has a `sys.excepthook`."""
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print


def _print(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an uncaught exception, as `sys.excepthook`."""
    if isinstance(error, KeyboardInterrupt):
        text = None if _is_interactive() else interrupted_form(trace)
    else:
        text = short_form(error, trace) if is_reported(error) else None
    if text is None:
        sys.__excepthook__(kind, error, trace)
    else:
        silence_jvm(active_spark_context())  # the program ends, and batches that are cut short by that are no errors
        sys.stderr.write(printable_lines(text))


def _is_interactive() -> bool:
    """Return whether Python asks for the next line after an error: then the streams go on after Ctrl-C."""
    return bool(sys.flags.interactive) or hasattr(sys, "ps1")


def interrupted_form(trace: TracebackType | None) -> str | None:
    """Return what is printed of Ctrl-C: the innermost frames of the user. None if there is none.

    Args:
        trace: the traceback of the KeyboardInterrupt.
    """
    frames = traceback.StackSummary.extract((entry.tb_frame, entry.tb_lineno) for entry in frames_of_the_user(trace))
    return "\n".join([BEGIN, *_lines_of(frames[-_MOST_FRAMES:]), KeyboardInterrupt.__name__, ""]) if frames else None


def short_form(error: BaseException, trace: TracebackType | None) -> str | None:
    """Return the short form of an error of the streams, with a line break at its end. None if it would have no frame of the user.

    Such an error, unless it is one of kstream's own types, is a bug of kstream, and every frame counts.

    Args:
        error: the error.
        trace: its traceback, from the call of `awaitTermination` on.
    """
    frames = traceback.StackSummary.extract((entry.tb_frame, entry.tb_lineno) for entry in frames_of_the_user(trace))
    in_task = list(_frames_of_task(task_traceback(error)))
    if len(frames) < 2 and not task_traceback(error) and not isinstance(error, KStreamError):
        return None
    waiting, below = frames[:1], frames[1:][-_MOST_FRAMES:]
    lines = [BEGIN, *_lines_of([*waiting, *below]), *in_task[-2 * _MOST_FRAMES :], *_words(error)[:_MOST_LINES]]
    return "\n".join([*lines, where_of(error)]).rstrip() + "\n"


def _words(error: BaseException) -> list[str]:
    """Return the lines that name an error. For one that only Spark could carry, they are those of the worker's exception."""
    own = "".join(traceback.TracebackException(type(error), error, None).format_exception_only()).splitlines()
    notes = len("\n".join(getattr(error, "__notes__", ())).splitlines()) if sys.version_info >= (3, 11) else 0
    own = own[: len(own) - notes]
    told = last_exception(task_traceback(error)).splitlines()
    return told if told and type(error).__name__ in ("Py4JJavaError", "PythonException") else own


def _lines_of(frames: list[traceback.FrameSummary]) -> Iterator[str]:
    """Yield two lines for each frame, without marks below the code."""
    for frame in frames:
        yield f'  File "{frame.filename}", line {frame.lineno}, in {frame.name}'
        if frame.line:
            yield f"    {frame.line}"


def _frames_of_task(text: str) -> Iterator[str]:
    """Yield the lines of the frames of the last exception in a worker's traceback, without marks below the code."""
    for line in text.rpartition(BEGIN)[2].strip("\n").split("\n"):
        if not line.startswith("  "):  # the exception, whose message may have any lines
            return
        if line.strip(" ^~"):
            yield line
