"""The failure of one record in words: its place, its step, the exception and its stack trace. Pure.

The words go into dead letters, which others read, and into the log. So they have no secret: the error of a sink may repeat its URL.
Thousands of records may fail alike, and to format frames takes longer than to decode a record. So the text of each place is made once.
"""

from __future__ import annotations

import traceback
from dataclasses import dataclass
from functools import lru_cache
from types import CodeType, TracebackType
from typing import Any

from kstream.secret import without_secrets
from kstream.user_code import Owner, owner_of
from kstream.worker.current_record import CurrentRecord
from kstream.worker.worker_failure import class_name, cut, message_of

LONGEST_MESSAGE = 500
"""The most characters of an exception's message."""
_SEARCHED = 4 * LONGEST_MESSAGE
"""The characters of a message that are searched for secrets. What is cut here is far behind what is told."""
LONGEST_STACK = 4000
"""The most characters of a stack trace; its end is kept."""
MOST_FRAMES = 30
"""The most frames of a stack trace, the innermost ones."""
KEY_CONVERTER, VALUE_CONVERTER, TRANSFORMATION = "KEY_CONVERTER", "VALUE_CONVERTER", "TRANSFORMATION"
"""The stages in which a record fails, by the names of Kafka Connect."""
_CAUSED = "The above exception was the direct cause of the following exception"
_HANDLING = "During handling of the above exception, another exception occurred"
_MOST_KNOWN = 1000
_known_frames: dict[tuple[tuple[CodeType, int], ...], str] = {}


@dataclass(frozen=True, slots=True)
class RecordStep:
    """A step of a stream in which a record can fail.

    Attributes:
        stage: the stage, by the name of Kafka Connect.
        operator: the operator and its line, or the argument that is the function: `map at job.py:12`, `valueDecoder`.
        function: the name of the user's function.
    """

    stage: str
    operator: str
    function: str


@dataclass(frozen=True, slots=True)
class RecordFailure:
    """The failure of one record, as the dead letters describe it.

    Attributes:
        record: the record as its source gave it, with its place.
        step: the step in which it failed.
        exception: the class of the exception, with its module.
        message: the exception's message without secrets, cut to LONGEST_MESSAGE.
        stacktrace: its stack trace without secrets and without kstream's own frames, cut to LONGEST_STACK.
    """

    record: CurrentRecord
    step: RecordStep
    exception: str
    message: str
    stacktrace: str


def failure_of(error: Exception, record: CurrentRecord, step: RecordStep) -> RecordFailure:
    """Return the description of a failure.

    Args:
        error: the exception, just caught.
        record: the record.
        step: the step in which it failed.
    """
    message = told_message(error)
    return RecordFailure(record, step, class_name(type(error)), message, _stack_trace(error, message)[-LONGEST_STACK:])


def told_message(error: BaseException) -> str:
    """Return an exception's message without secrets, cut to LONGEST_MESSAGE."""
    return cut(without_secrets(message_of(error, _SEARCHED)), LONGEST_MESSAGE)


def name_of(function: Any) -> str:
    """Return the name of a function with its module, such as `job.parse`; of an object without a name that of its class."""
    name: str = getattr(function, "__qualname__", "") or type(function).__qualname__
    module: str | None = getattr(function, "__module__", None)  # methods of built-in types have none
    return f"{module}.{name}" if module and module != "builtins" else name


def _stack_trace(error: BaseException, message: str, depth: int = 3) -> str:
    """Return the stack trace of an exception and of its causes, as Python prints it, without the frames of kstream.

    `message`: that of the exception, as it may be told.
    """
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    before = ""
    if cause is not None and depth > 0:
        before = f"{_stack_trace(cause, told_message(cause), depth - 1)}\n{_CAUSED if error.__cause__ else _HANDLING}:\n\n"
    return f"{before}Traceback (most recent call last):\n{_frames(error.__traceback__)}{type(error).__name__}: {message}\n"


def _frames(trace: TracebackType | None) -> str:
    """Return the lines of the frames of a traceback. The text of each place in the code is made once."""
    places: list[tuple[CodeType, int]] = []
    while trace is not None:
        frame = trace.tb_frame
        if not _is_own(frame.f_code, frame.f_globals.get("__name__", "")):
            places.append((frame.f_code, trace.tb_lineno))
        trace = trace.tb_next
    key = tuple(places[-MOST_FRAMES:])
    if key not in _known_frames:
        if len(_known_frames) >= _MOST_KNOWN:
            _known_frames.clear()
        lines = [traceback.FrameSummary(code.co_filename, line, code.co_name) for code, line in key]
        _known_frames[key] = without_secrets("".join(traceback.format_list(lines)))
    return _known_frames[key]


@lru_cache(maxsize=1000)
def _is_own(code: CodeType, module: str) -> bool:
    """Return whether this is code of kstream or of a connector, such as that which calls functions of users."""
    return owner_of(code.co_filename, module) is Owner.KSTREAM
