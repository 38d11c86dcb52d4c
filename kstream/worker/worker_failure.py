"""WorkerFailure: what a worker knows of the exception that ends its task, in the text that Spark carries to the driver.

Spark carries an exception of a Python worker as text alone. So the worker adds one line to that text, `kstream-failure: {JSON}`, and the
driver takes it out again: the record, the operator, and the exception itself, so that the driver can raise it once more.

An exception is pickled with its classes by name. A class of the user's main program is `__main__.BadOrder` on both sides; pickle would not
find it in the worker, and cloudpickle would send the driver another class of the same name, which no `except` clause matches.
"""

from __future__ import annotations

import base64
import builtins
import importlib
import io
import json
import pickle
from ast import literal_eval
from dataclasses import asdict, dataclass
from typing import Any

MARK = "kstream-failure: "
"""The line of a failure begins so."""
MOST_PICKLED = 4096
"""The most bytes of a pickled exception. Spark keeps the text of an error several times."""
MOST_TEXT = 1000
"""The most characters of any text in the line."""


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
        operator: the operation of the RDD whose function failed, such as `map`; "" if unknown.
        function: the file and the first line of the user's function given to the operator, as `file:line`; "" if unknown.
        pickled: the exception, see `pickled_exception`; "" if it cannot be pickled or is too large.
    """

    type: str
    message: str = ""
    record: str = ""
    certain: bool = False
    timestamp: int | None = None
    operator: str = ""
    function: str = ""
    pickled: str = ""

    def to_line(self) -> str:
        """Return the line for the text of the error."""
        return MARK + json.dumps({key: value for key, value in asdict(self).items() if value not in ("", None, False)})


def failure_in(text: str) -> WorkerFailure | None:
    """Return the failure whose line is in the text of an error of Spark. None if there is none, or if the line was cut."""
    _, found, rest = text.partition(MARK)
    if not found:
        return None
    try:
        values, _ = json.JSONDecoder().raw_decode(rest)
        return WorkerFailure(**values)
    except (ValueError, TypeError):
        return None


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
    """Return what the text of a traceback says of its last exception, for a worker that has added no line. None if it says nothing."""
    lines = traceback.split("\n")
    ends = [i for i in range(1, len(lines)) if lines[i - 1].startswith("  ") and lines[i][:1].strip()]
    if not ends:
        return None
    type_name, _, message = "\n".join(lines[ends[-1] :]).rstrip().partition(": ")
    return WorkerFailure(type_name, cut(message)) if all(part.isidentifier() for part in type_name.split(".")) else None


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
    """Return whether a value can be pickled."""
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
