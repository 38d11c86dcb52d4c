"""Whether the process of a driver is gone, as its own machine can tell. On Linux; elsewhere nobody can tell.

A number of a process says nothing on another machine, in another container, after a boot, or once the number is taken again. So a driver
stores a mark, which names all of that. A reader with the same boot and the same PID namespace can look at the process.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

_BOOT, _NAMESPACE, _STAT = "/proc/sys/kernel/random/boot_id", "/proc/self/ns/pid", "/proc/{}/stat"
_ENDED_STATES = ("Z", "X")
"""Of a process that runs no more: its parent has not looked at its end yet (zombie), or it is being removed."""


def mark_of_this_process() -> str | None:
    """Return what names this process among all processes of all machines and boots; None where the system does not tell."""
    try:
        return f"{_machine()} {_start_of(os.getpid())[1]}"
    except (OSError, ValueError, IndexError):
        return None


def is_gone(pid: int, mark: str | None) -> bool:
    """Return whether a process has surely ended. False if it runs, or if this machine cannot tell.

    Args:
        pid: the number of the process on its machine.
        mark: what `mark_of_this_process` returned there; None if it is not known.
    """
    with suppress(OSError, ValueError, IndexError, OverflowError):
        if mark is None or mark.rpartition(" ")[0] != _machine():
            return False
        try:
            os.kill(pid, 0)
        except PermissionError:
            pass  # another user's: it exists
        except ProcessLookupError:
            return True
        state, start = _start_of(pid)
        return state in _ENDED_STATES or start != mark.rpartition(" ")[2]
    return False


def _machine() -> str:
    """Return the boot of this machine and the PID namespace of this process. Raises OSError."""
    return f"{Path(_BOOT).read_text().strip()} {os.readlink(_NAMESPACE)}"


def _start_of(pid: int) -> tuple[str, str]:
    """Return the state of a process, and its start in ticks since the boot. Raises OSError, IndexError."""
    after_the_name = Path(_STAT.format(pid)).read_text().rpartition(")")[2].split()
    return after_the_name[0], after_the_name[19]
