"""The hook on PySpark's way of reporting an exception of a worker: it adds the WorkerFailure to the text that goes to the driver.

PySpark 4 reports every exception of a task by `handle_worker_exception`, and 3.5 writes its text by `write_with_length`, which does nothing
else in a worker. The hook takes their place in the module that runs the worker, once in a process. So it costs nothing for a record, and
covers every function that the worker runs from then on. A second one keeps the daemon from printing that the JVM has closed a socket.
"""

from __future__ import annotations

import io
import os
import socket
import struct
import sys
import traceback
from collections.abc import Callable
from typing import Any

from kstream.user_code import frames_of_the_user, is_own
from kstream.worker.current_record import CurrentRecord, current_record, is_decoding, last_record, was_abandoned
from kstream.worker.pipeline import Failing, users_function, where_failed
from kstream.worker.record_errors import drop_letters_of_this_task
from kstream.worker.worker_failure import KEY, WorkerFailure, class_name, cut, message_of, pickled_exception

_WORKER_MODULES = ("pyspark.worker", "__main__")
"""Where the function is called: the module that the daemon imports, or that runs as a program where Spark forks no workers."""
_DAEMON = "pyspark.daemon"
_NAME = "handle_worker_exception"
_NAME_3_5 = "write_with_length"
_EXCEPTION_THROWN = struct.pack("!i", -2)
"""SpecialLengths.PYTHON_EXCEPTION_THROWN. The text follows, with its length before it."""


def install() -> None:
    """Put both hooks of this module in their places, unless they are there. Outside of a worker this does nothing."""
    for name in _WORKER_MODULES:
        module = sys.modules.get(name)
        for function, hook in ((_NAME, _Hook), (_NAME_3_5, _TextHook)):
            original = getattr(module, function, None)
            if original is not None and not isinstance(original, hook):
                setattr(module, function, hook(original))
            if original is not None:
                break
    _silence_closed_sockets()


def is_fork_of_daemon() -> bool:
    """Return whether this process is a fork of PySpark's daemon: it runs tasks, or it plans or commits for a data source."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") == _DAEMON


def _silence_closed_sockets() -> None:
    """Let PySpark's daemon, whose fork this worker is, print no traceback when the JVM has closed the socket of the worker.

    The JVM does so at a stop, and when it kills a task. It knows why, and this worker ends.
    """
    daemon = sys.modules.get("__main__")
    if is_fork_of_daemon() and not isinstance(vars(daemon).get("traceback"), _Tracebacks):
        setattr(daemon, "traceback", _Tracebacks())  # noqa: B010 – a module has no such attribute for pyright


class _Tracebacks:
    """Stands in for the module `traceback` in PySpark's daemon."""

    def print_exc(self, *args: Any, **kwargs: Any) -> None:
        """Print the exception that is being handled, unless it says that the JVM is gone."""
        if not isinstance(sys.exc_info()[1], BrokenPipeError | ConnectionResetError):
            traceback.print_exc(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(traceback, name)


class _Hook:
    """Stands in for PySpark's `handle_worker_exception`."""

    def __init__(self, original: Callable[..., None]) -> None:
        self._original = original

    def __call__(self, e: BaseException, outfile: Any, *args: Any, **kwargs: Any) -> None:
        """Report an exception as PySpark does, with a line about the failure, and drop the dead letters that the task holds.

        Called while the exception is being handled.
        """
        drop_letters_of_this_task()
        reported = io.BytesIO()
        self._original(e, reported, *args, **kwargs)
        try:
            outfile.write(_with_line(reported.getvalue(), e))
        except OSError:  # the JVM has closed the socket; PySpark passes this over, too
            return


class _TextHook:
    """Stands in for the function by which PySpark 3.5 writes the text of an exception."""

    def __init__(self, original: Callable[[bytes, Any], None]) -> None:
        self._original = original

    def __call__(self, obj: bytes, stream: Any) -> None:
        """Write a text as PySpark does, with a line about the exception that is being handled. It ends the task, as in `_Hook`."""
        error = sys.exc_info()[1]
        if error is not None:
            drop_letters_of_this_task()
        self._original(obj if error is None else _text_with_line(obj, error), stream)


def _with_line(report: bytes, error: BaseException) -> bytes:
    """Return PySpark's report with the line of the failure. The report as it is if it has another form."""
    if report[:4] != _EXCEPTION_THROWN or len(report) != 8 + struct.unpack("!i", report[4:8])[0]:
        return report
    text = _text_with_line(report[8:], error)
    return _EXCEPTION_THROWN + struct.pack("!i", len(text)) + text


def _text_with_line(text: bytes, error: BaseException) -> bytes:
    """Return the text of an exception with the line of its failure; without it in a worker of an application that has given no key."""
    try:
        key = os.environ.get(KEY, "")
        return text.rstrip(b"\n") + f"\n{failure_of(error).to_line(key)}\n".encode() if key else text
    except Exception:  # the user's error must reach the driver, whatever is wrong here
        return text


def failure_of(error: BaseException) -> WorkerFailure:
    """Return what is known of an exception that ends the task of this worker."""
    failing = where_failed(error.__traceback__)
    record, certain = _record_of(error, failing)
    operator, function = _function_of(error, failing)
    return WorkerFailure(
        type=class_name(type(error)),
        message=message_of(error),
        record="" if record is None else cut(str(record)),
        certain=certain,
        timestamp=None if record is None else record.timestamp,
        operator=operator,
        function=function,
        pickled=pickled_exception(error),
        worker=f"{socket.gethostname()}, {sys.executable}" if isinstance(error, ImportError) else "",
    )


def _record_of(error: BaseException, failing: Failing | None) -> tuple[CurrentRecord | None, bool]:
    """Return the record of an exception, or the last one that was handed out, and whether the exception is of this record for certain."""
    if is_decoding():
        return current_record(), True
    if failing is None or not failing.from_reader:
        return None, False
    record = current_record()
    if record is not None:
        return record, failing.one_by_one
    # The reader was closed on the way of the exception, has handed out all it had, or failed itself. An error of its own is of no record.
    last = None if is_own(type(error).__module__) else last_record()
    return last, last is not None and was_abandoned() and failing.one_by_one


def _function_of(error: BaseException, failing: Failing | None) -> tuple[str, str]:
    """Return the operation that failed, and the line of the user's function; "" for what is unknown.

    A function of kstream or of PySpark may have called the user's: an update of a state, the reduce side of a shuffle. Then it is the
    outermost function of the user in the traceback, with the line in it that failed.
    """
    if failing is None or is_decoding():
        return "", ""
    given = users_function(failing.each)
    code = getattr(given, "__code__", None)
    own = is_own(str(getattr(given, "__module__", "")))
    operator = "" if own else failing.operator
    if code is not None and not own:
        return operator, f"{code.co_filename}:{code.co_firstlineno}"
    called = next(frames_of_the_user(error.__traceback__), None)
    if called is None:
        return operator, ""
    code = called.tb_frame.f_code
    return operator or f"function {code.co_name}", f"{code.co_filename}:{called.tb_lineno}"
