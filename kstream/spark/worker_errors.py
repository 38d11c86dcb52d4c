"""What a worker said: the user's own traceback, out of the middle of the JVM's exception around it."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager

from py4j.protocol import Py4JJavaError

from kstream.errors import add_words

_BEGIN = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "')
_PYSPARKS = re.compile(r'  File "[^"]*[/\\]pyspark[/\\]')
_JVM = re.compile(r"\tat |\s*SQLSTATE: ")


@contextmanager
def workers_words_told() -> Generator[None]:
    """Adds to an error of the body what the worker said, in a note below: the message has it between a hundred lines of the JVM's."""
    try:
        yield
    except Py4JJavaError as e:
        words = words_of_worker(_text(e))
        if words is not None:
            add_words(e, words)
        raise


def words_of_worker(text: str) -> str | None:
    """The traceback of a Python worker in the text of a JVM's exception, less pyspark's own frames. None if no worker raised."""
    _, python_exception, rest = text.partition("PythonException: ")
    _, begin, rest = rest.partition(_BEGIN)
    if not (python_exception and begin):
        return None
    return "\n".join([_BEGIN, *_of_the_user(rest.strip("\n").split("\n"))]).rstrip()


def _of_the_user(lines: list[str]) -> Iterator[str]:
    leaving_out = False
    for line in lines:
        if _JVM.match(line):
            return
        if _FRAME.match(line):
            leaving_out = _PYSPARKS.match(line) is not None
        elif not line.startswith("    "):
            leaving_out = False
        if not leaving_out:
            yield line


def _text(error: Py4JJavaError) -> str:
    try:
        return str(error)  # asks the JVM
    except Exception:  # which may be gone
        return ""
