"""What a worker says of an exception, and the exception that the driver makes of it."""

from __future__ import annotations

import base64
import json
import pickle
import sys
import threading
import traceback
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import pytest

from kstream.errors import PlanFailedError, StateError
from kstream.worker import exception_hook
from kstream.worker.exception_hook import failure_of as reported
from kstream.worker.worker_failure import (
    MARK,
    MOST_PICKLED,
    WorkerFailure,
    class_name,
    cut,
    failure_in,
    failure_of_traceback,
    pickled_exception,
    rebuilt_exception,
)

KEY = "k3y"


class BadOrder(Exception):
    """Its constructor takes other arguments than it keeps, which is common and which pickle cannot undo."""

    def __init__(self, order: int, reason: str) -> None:
        super().__init__(f"order {order}: {reason}")
        self.order = order


class WithWords(Exception):
    def __str__(self) -> str:
        return "in other words"


def failure_of(error: BaseException) -> WorkerFailure:
    return WorkerFailure(class_name(type(error)), cut(str(error)), pickled=pickled_exception(error))


def carried(error: BaseException) -> Any:
    """The exception after its way through the text of Spark's error."""
    text = f"Traceback (most recent call last):\n  …\nsomething\n{failure_of(error).to_line(KEY)}\n\n\tat org.apache.spark"
    failure = failure_in(text, KEY)
    assert failure is not None
    return rebuilt_exception(failure)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("invalid literal for int() with base 10: 'x'"),
        KeyError("customer"),
        ZeroDivisionError(),
        OSError(28, "No space left on device", "/tmp/x"),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
        json.JSONDecodeError("Expecting value", "x", 0),
        StateError("the state is removed", call="update"),
        PlanFailedError("in two\nlines", time=1000),
        WithWords(1, 2),
    ],
    ids=lambda e: type(e).__name__,
)
def test_an_exception_comes_back_as_it_was(error: Exception) -> None:
    back = carried(error)
    assert type(back) is type(error) and str(back) == str(error) and back.args == error.args
    assert vars(back) == vars(error)


def test_an_exception_whose_constructor_takes_other_arguments_comes_back_with_its_attributes() -> None:
    back = carried(BadOrder(7, "no customer"))
    assert type(back) is BadOrder and str(back) == "order 7: no customer" and back.order == 7


def test_a_class_of_the_main_program_is_the_drivers_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the worker, `__main__` is another module, and the class is a copy that cloudpickle has made."""
    copy = type("Rejected", (Exception,), {"__module__": "__main__"})
    line = failure_of(copy("no"))
    main = ModuleType("__main__")
    main.Rejected = type("Rejected", (Exception,), {"__module__": "__main__"})  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__main__", main)
    back = rebuilt_exception(line)
    assert type(back) is main.Rejected and str(back) == "no"


def test_what_cannot_be_pickled_in_an_exception_stays_behind() -> None:
    error = ValueError("no")
    error.lock, error.code = threading.Lock(), 3  # type: ignore[attr-defined]
    back = carried(error)
    assert type(back) is ValueError and str(back) == "no" and back.code == 3 and not hasattr(back, "lock")


def test_arguments_that_cannot_be_pickled_leave_the_class_and_the_text_or_nothing() -> None:
    lock = threading.Lock()
    assert pickled_exception(ValueError(lock)) == ""
    back = carried(ValueError(lock))
    assert type(back) is ValueError and str(back) == str(lock)
    assert carried(WithWords(lock)).args == ("in other words",)


def test_a_large_exception_is_not_pickled_and_its_text_is_cut() -> None:
    failure = failure_of(ValueError("x" * 100_000))
    assert failure.pickled == "" and len(failure.to_line(KEY)) < 1200
    assert failure_of(ValueError("x" * 500)).pickled != "" and len(failure_of(KeyError("x" * MOST_PICKLED)).to_line(KEY)) < 1200


@pytest.mark.parametrize("name", ["no.such.module.Error", "builtins.int", "kstream.errors.NoSuchError", "x.<locals>.E"])
def test_a_class_that_the_driver_does_not_have_gives_no_exception(name: str) -> None:
    assert rebuilt_exception(WorkerFailure(name, "no")) is None


def test_an_exception_that_would_say_something_else_is_not_made() -> None:
    assert rebuilt_exception(WorkerFailure("UnicodeDecodeError", "it takes five arguments")) is None
    assert rebuilt_exception(WorkerFailure(f"{__name__}.BadOrder", "order 7: no")) is None
    assert rebuilt_exception(WorkerFailure("KeyboardInterrupt", "")) is None, "no Exception"


def test_an_exception_whose_text_cannot_be_made_is_reported_nevertheless() -> None:
    class MuteError(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert reported(MuteError()).message == "its message cannot be made: RuntimeError"


def test_a_failure_is_one_line_of_the_text_and_is_found_again() -> None:
    failure = WorkerFailure("ValueError", "a\nb – é", "orders-0@17", True, 1700000000000, "map", "/home/me/job.py:9", "AAAA")
    line = failure.to_line(KEY)
    assert "\n" not in line and line.startswith(MARK)
    assert failure_in(f"before\n{line}\nafter {{", KEY) == failure


class Evil:
    def __reduce__(self) -> Any:
        return print, ("the code of a record",)


def forged() -> WorkerFailure:
    """What a record may say: a line with a pickle that runs code as it is loaded."""
    return WorkerFailure("ValueError", "no", pickled=base64.b64encode(pickle.dumps((ValueError, (), {}, (Evil(), ())))).decode())


@pytest.mark.parametrize("key", ["", "a guess"])
def test_a_line_in_the_message_of_an_exception_is_not_believed(key: str) -> None:
    line = forged().to_line(key)
    mine = WorkerFailure("ValueError", f"cannot parse\n{line}")
    assert failure_in(f"ValueError: cannot parse\n{line}\n{mine.to_line(KEY)}\n", KEY) == mine
    assert failure_in(f"ValueError: cannot parse\n{mine.to_line(KEY)}\n{line}\n", KEY) == mine
    assert failure_in(f"ValueError: cannot parse\n{line}\n", KEY) is None
    assert failure_in(f"ValueError: cannot parse\n{MARK}{line.partition(' {')[2]}\n{line}", "") is None


@pytest.mark.parametrize("text", ["", "ValueError: no", MARK, MARK + '{"type": "Val', MARK + '{"unknown": 1}', MARK + "[]"])
def test_a_text_without_a_whole_failure_has_none(text: str) -> None:
    assert failure_in(text, KEY) is None


def test_the_last_exception_of_a_traceback_is_what_a_worker_without_the_line_has_said() -> None:
    text = "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    x\nKeyError: 'k'\n\nDuring handling:\n\n"
    text += 'Traceback (most recent call last):\n  File "a.py", line 3, in f\n    y\nmy.mod.Bad: one\ntwo\n'
    assert failure_of_traceback(text) == WorkerFailure("my.mod.Bad", "one\ntwo", operator="function f", function="a.py:3")
    assert failure_of_traceback('T\n  File "a.py"\nZeroDivisionError') == WorkerFailure("ZeroDivisionError")
    assert failure_of_traceback("") is None and failure_of_traceback('T\n  File "a.py"\nno class: x') is None
    error = rebuilt_exception(WorkerFailure("KeyError", "'k'"))
    assert isinstance(error, KeyError) and error.args == ("k",)


@pytest.mark.parametrize("error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError()], ids=repr)
def test_a_worker_whose_socket_the_jvm_has_closed_ends_without_a_traceback(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """At a stop each worker printed one."""
    daemon: Any = ModuleType("__main__")
    daemon.__spec__, daemon.traceback = ModuleSpec("pyspark.daemon", None), traceback
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    exception_hook.install()
    exception_hook.install()
    for raised in (error, ValueError("a bug")):
        try:
            raise raised
        except Exception:
            daemon.traceback.print_exc()
    assert capsys.readouterr().err.count("Traceback") == 1 and daemon.traceback.format_exc is traceback.format_exc


def test_the_module_traceback_of_another_program_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    program: Any = ModuleType("__main__")
    program.traceback = traceback
    monkeypatch.setitem(sys.modules, "__main__", program)
    exception_hook.install()
    assert program.traceback is traceback
