"""The processes of one Spark application, found by what their command lines say, and ended by their pids."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def commands() -> Iterator[tuple[int, list[str]]]:
    """(pid, command line) of every process."""
    for process in Path("/proc").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            if process.name.isdigit():
                yield int(process.name), (process / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")


def executors(application: str) -> dict[str, int]:
    """The JVMs of an application's executors: executor id → pid."""
    found = ((after(command, "--executor-id"), pid) for pid, command in commands() if after(command, "--app-id") == application)
    return {executor: pid for executor, pid in found if executor is not None}


def block_stores(application: str) -> dict[str, int]:
    """The block stores of an application's executors, told by their working directories: executor id → pid."""
    found: dict[str, int] = {}
    for pid, command in commands():
        if "kstream.receiver.block_store_process" in command:
            with suppress(OSError):
                parts = Path(os.readlink(f"/proc/{pid}/cwd")).parts
                if application in parts:
                    found[parts[parts.index(application) + 1]] = pid
    return found


def remove_work(application: str) -> None:
    """What the workers of a local cluster leave in Spark's own directory."""
    shutil.rmtree(Path(importlib.util.find_spec("pyspark").origin or "").parent / "work" / application, ignore_errors=True)  # pyright: ignore


def children(pid: int) -> list[int]:
    """Those that live, and theirs."""
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += [int(child), *children(int(child))]
    return found


def parent_of(pid: int) -> int:
    """0 if it is no more."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def children_of(parent: int) -> list[int]:
    """Those that live, without theirs."""
    return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if parent_of(pid) == parent]


def kill(*pids: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def after(command: list[str], option: str) -> str | None:
    return command[command.index(option) + 1] if option in command[:-1] else None
