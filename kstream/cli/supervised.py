"""The child's side of the supervisor: the driver ends with its supervisor, and tells it the reason of its end.

The supervisor gives two variables of the environment to the driver: its process id, and the descriptor of a pipe for one line of text.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import MutableMapping
from dataclasses import dataclass

SUPERVISOR = "KSTREAM_SUPERVISOR_PID"
REASON = "KSTREAM_REASON_FD"
REASON_BYTES = 4096
"""Bytes of a reason that are kept. A pipe takes as many at once, read or not."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36


@dataclass(frozen=True, slots=True)
class Supervised:
    """The way of a driver to its supervisor.

    Attributes:
        reason_fd: the writing end of a pipe.
    """

    reason_fd: int

    def tell(self, reason: str) -> None:
        """Send the reason of the end to the supervisor. Never blocks; call it once. A supervisor that is gone gets nothing."""
        try:
            os.write(self.reason_fd, reason.encode(errors="replace")[:REASON_BYTES])
            os.close(self.reason_fd)
        except OSError:
            pass


def join_supervisor(environ: MutableMapping[str, str] = os.environ) -> Supervised | None:
    """Bind this process to its supervisor, if it has one. Call it once, in the main thread, before this process starts others.

    On Linux the kernel kills this process when the supervisor dies. Spark's JVM ends when its standard input does, so it ends, too.
    The variables are removed from the environment: children of this process are no drivers.

    Returns:
        The way to the supervisor; None without one.
    """
    supervisor, fd = (environ.pop(name, None) for name in (SUPERVISOR, REASON))
    if supervisor is None or fd is None:
        return None
    os.set_inheritable(int(fd), False)
    if prctl(_PR_SET_PDEATHSIG, signal.SIGKILL) and os.getppid() != int(supervisor):
        os._exit(1)  # it died before the call, so the kernel has nothing to tell any more
    return Supervised(int(fd))


def adopt_orphans() -> bool:
    """Make this process the parent of its descendants whose own parents end, as process 1 of a container is. Linux only.

    Returns:
        Whether the kernel does so.
    """
    return prctl(_PR_SET_CHILD_SUBREAPER, 1)


def prctl(option: int, value: int) -> bool:
    """Call prctl of Linux. Returns whether it succeeded; False on another system."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        return ctypes.CDLL(None, use_errno=True).prctl(option, ctypes.c_ulong(value), 0, 0, 0) == 0
    except (OSError, AttributeError):
        return False
