"""Which executor a Python worker belongs to: Spark tells its workers nothing of it, but each is a grandchild of the executor's JVM."""

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
_LOOK_S = 0.2


@dataclass(frozen=True, slots=True)
class ExecutorProcess:
    """`pid` is the JVM's. `host` is the name that Spark has for the executor's machine; None in local mode."""

    pid: int
    executor_id: str
    host: str | None


def executor_of_this_worker() -> ExecutorProcess:
    """Called in a worker. KStreamError where no JVM is among its ancestors."""
    return executor_of(*jvm_above_this_process())


def jvm_above_this_process() -> tuple[int, list[str]]:
    """Pid and command line of the nearest Java among the ancestors. KStreamError where there is none."""
    pid = os.getppid()
    for _ in range(_GENERATIONS):
        parent, command = _parent_and_command(pid)
        if is_java(command):
            return pid, command
        pid = parent
    raise KStreamError(f"process {os.getpid()} is no Python worker of Spark: no Java is among its ancestors")


def is_java(command: Sequence[str]) -> bool:
    return bool(command) and Path(command[0]).name in ("java", "java.exe")


def executor_of(pid: int, command: Sequence[str]) -> ExecutorProcess:
    """From the command line of an executor: `… CoarseGrainedExecutorBackend … --executor-id 3 --hostname 10.0.0.7 …`, with each cluster
    manager of Spark. In local mode it is that of an application."""
    backend = next((at for at, word in enumerate(command) if word.endswith("ExecutorBackend")), len(command))
    said = dict(zip(command[backend:], command[backend + 1 :], strict=False))
    return ExecutorProcess(pid, said.get("--executor-id", DRIVER), said.get("--hostname"))


def wait_for_death(pid: int, or_readable: int | None = None) -> None:
    """Returns when the process has ended, at once where there is none; a zombie has ended. Also when a file descriptor can be read."""
    others = [] if or_readable is None else [or_readable]
    try:
        descriptor = os.pidfd_open(pid)  # Linux: wakes up the moment it happens
    except ProcessLookupError:
        return
    except (AttributeError, OSError):
        while _lives(pid):
            if others and select.select(others, [], [], 0)[0]:
                return
            time.sleep(_LOOK_S)
        return
    try:
        select.select([descriptor, *others], [], [])
    finally:
        os.close(descriptor)


def command_of(pid: int) -> list[str]:
    """Words of the command of a process that runs; none of a zombie, or where there is no such process."""
    return list(filter(None, _parent_and_command(pid)[1]))


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _parent_and_command(pid: int) -> tuple[int, list[str]]:
    try:
        parent = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        return parent, Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
    except (FileNotFoundError, ProcessLookupError):  # no Linux, or no such process
        told = subprocess.run(["ps", "-o", "ppid=,command=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout.split()
        return (int(told[0]), told[1:]) if told else (0, [])
