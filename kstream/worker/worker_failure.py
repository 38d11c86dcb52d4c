"""WorkerFailure: what a worker knows of the exception that ends its task, in the text that Spark carries to the driver.

Spark carries an exception of a Python worker as text alone. So the worker adds one line to that text, `kstream-failure: SIGNATURE {JSON}`,
and the driver takes it out again: the record, the operator, and the exception itself, so that the driver can raise it once more.

The driver loads the pickled exception. So it believes only a line that is signed with a key of its own, which its workers have in their
environment: the message of an exception may have any text, also that of a record with such a line.

An exception is pickled with its classes by name. A class of the user's main program is `__main__.BadOrder` on both sides; pickle would not
find it in the worker, and cloudpickle would send the driver another class of the same name, which no `except` clause matches.
"""

from __future__ import annotations

import base64
import builtins
import hmac
import importlib
import io
import json
import pickle
import re
from ast import literal_eval
from dataclasses import asdict, dataclass
from typing import Any

from kstream.errors import BEGIN, last_exception

KEY = "KSTREAM_FAILURE_KEY"
"""The variable of the environment in which a worker has the key of the application."""
MARK = "kstream-failure: "
"""The line of a failure begins so."""
MOST_PICKLED = 4096
"""The most bytes of a pickled exception. Spark keeps the text of an error several times."""
MOST_TEXT = 1000
"""The most characters of any text in the line."""


_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+), in (?P<name>[^\n]+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True)
class WorkerFailure:
    """What a worker knows of the exception that ended its task.

    Attributes:
        type: the module and the qualified name of the exception's class.
        message: the text of the exception, cut after MOST_TEXT characters.
        record: the record, as `topic-partition@offset` or its place in words; "" if none is known.
        certain: whether the exception is of this record. Otherwise it is the last one that was handed out, and the user's function may have
            worked on an earlier one.
        timestamp: the timestamp of the record, in ms since the epoch; None if it has none.
        operator: the operation of the RDD whose function failed, such as `map`; `function NAME` for a function of the user that kstream
            calls, such as one that updates a state; "" if unknown.
        function: the file and the first line of the user's function, as `file:line`; the line that failed, if kstream calls it; "" if
            unknown.
        pickled: the exception, see `pickled_exception`; "" if it cannot be pickled or is too large.
        worker: the host and the Python of the worker, in words, for an import that failed; "" for other failures.
    """

    type: str
    message: str = ""
    record: str = ""
    certain: bool = False
    timestamp: int | None = None
    operator: str = ""
    function: str = ""
    pickled: str = ""
    worker: str = ""

    @property
    def raised(self) -> str:
        """The type and the message, as a traceback has them."""
        name = self.type.removeprefix("__main__.")
        return f"{name}: {self.message}" if self.message.strip() else name

    def to_line(self, key: str) -> str:
        """Return the line for the text of the error, signed with the key of the application."""
        values = json.dumps({name: value for name, value in asdict(self).items() if value not in ("", None, False)})
        return f"{MARK}{_signature(key, values)} {values}"


def failure_in(text: str, key: str) -> WorkerFailure | None:
    """Return the failure whose line is in the text of an error of Spark. None if there is none, or if the line was cut.

    Args:
        text: the text. The message of the exception is in it, which may have a line that looks like one.
        key: the key with which the line must be signed; "" finds none.
    """
    for line in reversed(text.split("\n")) if key else ():
        signature, _, rest = line.removeprefix(MARK).partition(" ")
        if not line.startswith(MARK):
            continue
        try:
            values, end = json.JSONDecoder().raw_decode(rest)
            if hmac.compare_digest(signature.encode(), _signature(key, rest[:end]).encode()):
                return WorkerFailure(**values)
        except (ValueError, TypeError):
            continue
    return None


def _signature(key: str, values: str) -> str:
    return hmac.new(key.encode(), values.encode(), "sha256").hexdigest()


def cut(text: str, most: int = MOST_TEXT) -> str:
    """Return the first `most` characters of a text."""
    return text if len(text) <= most else text[: most - 1] + "…"


def message_of(error: BaseException, most: int = MOST_TEXT) -> str:
    """Return the first `most` characters of an exception's message. An exception whose `__str__` fails has a message that says so."""
    try:
        return cut(str(error), most)
    except Exception as e:
        return f"its message cannot be made: {type(e).__name__}"


# -- exceptions as text


def class_name(cls: type) -> str:
    """Return the module and the qualified name of a class; of a builtin only its name. A traceback shows it the same way."""
    return cls.__qualname__ if cls.__module__ == "builtins" else f"{cls.__module__}.{cls.__qualname__}"


def pickled_exception(error: BaseException) -> str:
    """Return an exception as base64 text of at most MOST_PICKLED bytes; "" if it cannot be pickled or is larger.

    It has the class, the arguments, the attributes that can be pickled, and what `__reduce__` says. Its cause stays behind.
    """
    cls, args = type(error), error.args
    attributes = {name: value for name, value in vars(error).items() if _can_be_pickled(value)}
    try:
        reduced = error.__reduce_ex__(4)
        pickled = _dumps((cls, args, attributes, reduced[:2] if isinstance(reduced, tuple) and _can_be_pickled(reduced[:2]) else None))
    except Exception:  # anything may be in an exception, and a failure must be reported whatever happens
        return ""
    return base64.b64encode(pickled).decode() if len(pickled) <= MOST_PICKLED else ""


def failure_of_traceback(traceback: str) -> WorkerFailure | None:
    """Return what the text of a traceback says of its last exception, for a worker that has added no line. None if it says nothing.

    Args:
        traceback: with frames of the user's functions only. The outermost one is named.
    """
    type_name, _, message = last_exception(traceback).partition(": ")
    if not all(part.isidentifier() for part in type_name.split(".")):
        return None
    called = _FRAME.search(traceback, traceback.rfind(f"{BEGIN}\n") + 1)
    operator, function = ("", "") if called is None else (f"function {called['name']}", f"{called['file']}:{called['line']}")
    return WorkerFailure(type_name, cut(message), operator=operator, function=function)


def rebuilt_exception(failure: WorkerFailure) -> Exception | None:
    """Return the exception of a failure, made again in this process; None if that is not possible or gives another text.

    The module of the exception's class may be imported.
    """
    for make in (_from_reduced, _without_its_constructor, _from_text):
        try:
            made = make(failure)
            if isinstance(made, Exception) and class_name(type(made)) == failure.type and cut(str(made)) == failure.message:
                return made
        except Exception:  # a class that is not there, or a constructor with ideas of its own
            continue
    return None


def _loaded(failure: WorkerFailure) -> tuple[type[BaseException], tuple[Any, ...], dict[str, Any], tuple[Any, ...] | None]:
    """Return the class, the arguments, the attributes and the reduced form of a pickled exception."""
    return _Unpickler(io.BytesIO(base64.b64decode(failure.pickled))).load()


def _from_reduced(failure: WorkerFailure) -> Any:
    """Return the exception as pickle makes it: mostly its class, called with its arguments."""
    _, _, attributes, reduced = _loaded(failure)
    if reduced is None:
        raise TypeError("what makes the exception cannot be pickled")
    return _with(reduced[0](*reduced[1]), attributes)


def _without_its_constructor(failure: WorkerFailure) -> Any:
    """Return the exception without a call of `__init__`, which may take other arguments than the exception keeps. This is common."""
    cls, args, attributes, _ = _loaded(failure)
    made = cls.__new__(cls, *args)
    made.args = args
    return _with(made, attributes)


def _with(made: Any, attributes: dict[str, Any]) -> Any:
    """Return an exception that was made again, with its attributes."""
    made.__dict__.update(attributes)
    return made


def _from_text(failure: WorkerFailure) -> Any:
    """Return an exception made of its class and its message alone."""
    module, _, name = failure.type.rpartition(".")
    cls = _class_of(module or "builtins", name)
    if cls is KeyError:
        return KeyError(literal_eval(failure.message))
    return cls(failure.message) if failure.message else cls()


def _dumps(value: Any) -> bytes:
    """Return a pickled value, with classes of exceptions by their names."""
    file = io.BytesIO()
    _Pickler(file, protocol=4).dump(value)
    return file.getvalue()


def _can_be_pickled(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:
        return False
    return True


class _Pickler(pickle.Pickler):
    """Pickles classes by their names, without looking whether they are found under these names here."""

    def persistent_id(self, obj: Any) -> Any:
        return (obj.__module__, obj.__qualname__) if isinstance(obj, type) and issubclass(obj, BaseException) else None


class _Unpickler(pickle.Unpickler):
    """Finds classes of exceptions by their names."""

    def persistent_load(self, pid: Any) -> Any:
        return _class_of(*pid)


def _class_of(module: str, qualified_name: str) -> type[BaseException]:
    """Return the class of an exception. AttributeError, ImportError or TypeError if there is none of this name."""
    found: Any = builtins if module == "builtins" else importlib.import_module(module)
    for name in qualified_name.split("."):
        found = getattr(found, name)
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise TypeError(f"{module}.{qualified_name} is no exception")
    return found
