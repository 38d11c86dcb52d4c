"""The process of a driver that is gone is seen on its own machine at once."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from kstream.checkpoint.sign_of_life import is_gone, mark_of_this_process

CHILD = "from kstream.checkpoint.sign_of_life import mark_of_this_process as mark; print(mark(), flush=True); input()"
pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells the boot, the namespace and the start of a process")


@pytest.fixture
def child() -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen([sys.executable, "-c", CHILD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as made:
        yield made
        made.kill()


def mark_of(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def test_a_process_that_runs_is_not_gone() -> None:
    assert mark_of_this_process() == mark_of_this_process()
    assert not is_gone(os.getpid(), mark_of_this_process())


def test_a_process_that_was_killed_is_gone_before_and_after_its_parent_looks(child: subprocess.Popen[str]) -> None:
    mark = mark_of(child)
    assert not is_gone(child.pid, mark)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_gone(child.pid, mark), "a zombie runs no batch"
    child.wait()
    assert is_gone(child.pid, mark)


def test_a_process_whose_number_another_one_has_is_gone(child: subprocess.Popen[str]) -> None:
    assert mark_of(child) != mark_of_this_process()
    assert is_gone(os.getpid(), f"{(mark_of_this_process() or '').rpartition(' ')[0]} 1")


@pytest.mark.parametrize("mark", [None, "", "another-boot pid:[1] 7"], ids=["unknown", "empty", "another machine"])
def test_nobody_can_tell_on_another_machine_that_a_process_is_gone(mark: str | None) -> None:
    assert not is_gone(2**22 + 1, mark)  # more than any number of a process
