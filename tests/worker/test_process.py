"""What a worker makes once and keeps."""

from __future__ import annotations

import gc
import os
import sys
import threading
from importlib.machinery import ModuleSpec
from types import ModuleType

import pytest

from kstream.worker import process
from kstream.worker.process import freeze_gc, once


def test_what_many_threads_ask_for_is_made_by_one_of_them() -> None:
    made: list[int] = []
    all_here = threading.Barrier(8)
    got: list[object] = []

    def ask() -> None:
        all_here.wait()
        got.append(once(("many", 1), lambda: made.append(1) or object()))

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1] and len(set(map(id, got))) == 1 and len(got) == 8


def test_what_is_made_may_need_something_else_that_is_made_once() -> None:
    assert once("outer", lambda: [once("inner", lambda: 1)]) == [1]


def test_after_an_error_the_next_one_tries_again() -> None:
    with pytest.raises(ZeroDivisionError):
        once("fails", lambda: 1 // 0)
    assert once("fails", lambda: 2) == 2


def test_a_fork_makes_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = once("forked", object)
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert once("forked", object) is not parents


def test_every_fork_of_the_daemon_keeps_its_collector_from_what_was_loaded_and_no_other_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "pyspark.worker", raising=False)
    monkeypatch.setattr(process, "_seen", 0)
    gc.unfreeze()
    freeze_gc()
    assert gc.get_freeze_count() == 0
    daemon = ModuleType("__main__")
    daemon.__spec__ = ModuleSpec("pyspark.daemon", None)
    monkeypatch.setitem(sys.modules, "__main__", daemon)
    try:
        freeze_gc()
        assert gc.get_freeze_count() > 10_000
    finally:
        gc.unfreeze()
