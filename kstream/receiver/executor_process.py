"""The executor of a Python worker. Spark does not give its workers the executor's id, but each is a grandchild of the executor's JVM."""

from __future__ import annotations

import os
import select
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kstream.errors import KStreamError

DRIVER = "driver"
"""The executor id in local mode, where the driver's JVM is the executor."""
_GENERATIONS = 5
_POLL_S = 0.2


@dataclass(frozen=True, slots=True)
class ExecutorProcess:
    """An executor. `pid` is the pid of its JVM. `host` is Spark's name of the executor's machine; None in local mode."""

    pid: int
    executor_id: str
    host: str | None


def executor_of_this_worker() -> ExecutorProcess:
    """Return the executor of the worker that calls this. KStreamError if no JVM is among its ancestors."""
    return executor_of(*jvm_above_this_process())


def jvm_above_this_process() -> tuple[int, list[str]]:
    """Return the pid and the command line of the nearest JVM among this process's ancestors. KStreamError if there is none."""
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        parent, command = _parent_and_command(pid)
        if is_java(command):
            return pid, command
        pid = parent
    raise KStreamError(f"process {os.getpid()} is no Python worker of Spark: no Java is among its ancestors")


def is_java(command: Sequence[str]) -> bool:
    """Return whether a command line is that of a JVM."""
    return bool(command) and Path(command[0]).name in ("java", "java.exe")


def executor_of(pid: int, command: Sequence[str]) -> ExecutorProcess:
    """Return the executor whose JVM has this command line.

    Every cluster manager of Spark uses `… CoarseGrainedExecutorBackend … --executor-id 3 --hostname 10.0.0.7 …`. In local mode the
    command line is that of the application.
    """
    backend = next((at for at, word in enumerate(command) if word.endswith("ExecutorBackend")), len(command))
    options = dict(zip(command[backend:], command[backend + 1 :], strict=False))
    return ExecutorProcess(pid, options.get("--executor-id", DRIVER), options.get("--hostname"))


def wait_for_death(pid: int, or_readable: int | None = None) -> None:
    """Block until a process has ended, or until a file descriptor can be read.

    A pid without a process counts as ended, and so does a zombie.

    Args:
        pid: The process.
        or_readable: The file descriptor; None waits for the process alone.
    """
    others = [] if or_readable is None else [or_readable]
    try:
        descriptor = os.pidfd_open(pid)  # Linux: readable as soon as the process ends
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        while _lives(pid):
            if others and select.select(others, [], [], 0)[0]:
                return
            time.sleep(_POLL_S)
        return
    try:
        select.select([descriptor, *others], [], [])
    finally:
        os.close(descriptor)


def command_of(pid: int) -> list[str]:
    """Return the command line of a running process; [] for a zombie, and for a pid without a process."""
    return list(filter(None, _parent_and_command(pid)[1]))


def _lives(pid: int) -> bool:
    """Return whether there is a process with this pid that has not ended. A zombie has ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return _state(pid) != "Z"


def _state(pid: int) -> str:
    """Return the letter of a process's state, such as Z for a zombie; empty for a pid without a process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # no Linux, or no such process
        return subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.strip()[:1]


def _parent_and_command(pid: int) -> tuple[int, list[str]]:
    """Return the pid of a process's parent, and the process's command line; (0, []) for a pid without a process."""
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent, Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):  # no Linux, or no such process
        shown = subprocess.run(["ps", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        return (int(shown[0]), shown[1:]) if shown else (0, [])
