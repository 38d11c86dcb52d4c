"""Supervisor: runs the driver as a child process, and starts it again when it has ended for a reason that a restart can heal.

The supervisor has one thread, and never imports the job or pyspark. It sleeps in `select` until a signal or the end of a delay.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from kstream.cli.exit_codes import RunCode
from kstream.cli.supervised import REASON, REASON_BYTES, SUPERVISOR, adopt_orphans
from kstream.errors import signal_name

logger = logging.getLogger(__name__)
_ASKS_TO_STOP = {signal.SIGTERM: signal.SIGTERM, signal.SIGINT: signal.SIGINT, signal.SIGHUP: signal.SIGTERM}
"""Signal of the supervisor → signal for the driver. A driver knows no orderly stop by SIGHUP."""
_GRACE_S = 10.0
_PAGE_S = 4.0
"""From so many seconds before the next start on, the line about an end names the page of the checkpoint: a person has time to look."""
_AGAIN_S = 0.2
"""Seconds between two looks at processes of a driver that are not our children, and so send no SIGCHLD."""


@dataclass(frozen=True, slots=True)
class NextStart:
    """What follows the end of a driver. Attributes: delay_s (seconds to wait), quick_ends (drivers in a row that did not live long)."""

    delay_s: float
    quick_ends: int


@dataclass(frozen=True, slots=True)
class RestartPolicy:
    """The back-off doubles from `first_s` to `longest_s`. After a driver that has lived for `healthy_s` it begins anew. All in seconds."""

    first_s: float = 1.0
    longest_s: float = 60.0
    healthy_s: float = 600.0

    def after(self, quick_ends: int, lived_s: float) -> NextStart:
        """Return what follows the end of a driver.

        Args:
            quick_ends: that of the NextStart before; 0 for the first driver.
            lived_s: how long the driver has lived, in seconds.
        """
        before = 0 if lived_s >= self.healthy_s else quick_ends
        delay = self.first_s
        for _ in range(before):
            if delay >= self.longest_s:
                break
            delay *= 2
        return NextStart(min(delay, self.longest_s), before + 1)


@dataclass(frozen=True, slots=True)
class DriverEnd:
    """The end of a driver: its process id, its status (as of `subprocess`), its reason ("" if it has told none), its life in seconds."""

    pid: int
    status: int
    reason: str
    lived_s: float

    @property
    def code(self) -> RunCode:
        """The meaning of the status."""
        return RunCode.of_status(self.status)


class Supervisor:
    """Runs drivers, one after the other, until one ends for a final reason or a signal stops it. Use it once, in the main thread.

    A driver has a session and a process group of its own, so Ctrl-C in a terminal reaches it only through the supervisor. SIGTERM and
    SIGINT are forwarded once; a second signal kills the driver at once. When a driver has ended, its other processes get `grace_s` to end,
    too, and are killed afterwards: nothing of a driver lives beside the next one. Processes with a session of their own are left alone.

    On Linux orphans of the driver become children of the supervisor, which reaps them, as process 1 of a container must.

    Args:
        command: command(number) returns the program and the arguments of a driver; the number of the first start is 0.
        policy: the delay before each restart.
        clock: returns seconds that never go back.
        grace_s: seconds for the other processes of a driver that has ended.
        page: the command that shows the page while no driver runs; "" for none.
    """

    def __init__(
        self,
        command: Callable[[int], Sequence[str]],
        policy: RestartPolicy | None = None,
        clock: Callable[[], float] = time.monotonic,
        grace_s: float = _GRACE_S,
        page: str = "",
    ) -> None:
        self._command = command
        self._policy = policy or RestartPolicy()
        self._clock = clock
        self._grace_s = grace_s
        self._page = page
        self._driver: subprocess.Popen[bytes] | None = None
        self._status: int | None = None
        self._asked: signal.Signals | None = None
        self._at_once = False
        self._signals = -1

    def run(self) -> int:
        """Run drivers until the last one has ended. Blocks. Logs one line for each end.

        Returns:
            The exit code for this process: that of the last driver.
        """
        adopt_orphans()
        number = quick_ends = 0
        with self._listening():
            while True:
                end = self._run_driver(number)
                if self._asked is not None or end.code.final:
                    return self._finish(end)
                restart = self._policy.after(quick_ends, end.lived_s)
                number, quick_ends = number + 1, restart.quick_ends
                look = f". Its page until then: {self._page}" if self._page and restart.delay_s >= _PAGE_S else ""
                logger.warning("%s; it is started again in %.3g s (restart %d)%s", _sentence(end), restart.delay_s, number, look)
                self._wait(restart.delay_s, lambda: self._asked is not None)
                if self._asked is not None:
                    logger.info("%s: no driver is started again", self._asked.name)
                    return 128 + self._asked

    def _finish(self, end: DriverEnd) -> int:
        level = logging.INFO if self._asked is not None or not end.reason else logging.ERROR
        logger.log(level, "%s; it is not started again (exit code %d)", _sentence(end), code := self._exit_code(end))
        return code

    def _exit_code(self, end: DriverEnd) -> int:
        """Return the exit code that stands for the last driver. A driver that was killed by request has the code of the request."""
        if end.status >= 0:
            return end.status
        return 128 - end.status if self._asked is None else 128 + self._asked

    # -- a driver

    def _run_driver(self, number: int) -> DriverEnd:
        """Start a driver, and wait until it and its other processes have ended."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        environment = {**os.environ, SUPERVISOR: str(os.getpid()), REASON: str(writer)}
        began = self._clock()
        self._status = None
        try:
            self._driver = subprocess.Popen(
                self._command(number), env=environment, stdin=subprocess.DEVNULL, start_new_session=True, pass_fds=[writer]
            )
        except OSError as e:  # no memory, or too many processes
            os.close(reader)
            return DriverEnd(0, RunCode.FAILED, f"no process could be started: {e.strerror}", 0)
        finally:
            os.close(writer)
        if self._asked is not None:  # it came before there was a driver
            self._send(_ASKS_TO_STOP[self._asked])
        self._wait(None, lambda: self._status is not None)
        lived_s = self._clock() - began
        pid, self._driver.returncode = self._driver.pid, self._status  # we have reaped it, so Popen cannot
        self._driver = None
        self._end_session(pid)
        assert self._status is not None
        return DriverEnd(pid, self._status, _read(reader), lived_s)

    def _end_session(self, session: int) -> None:
        """Wait for the other processes of a driver that has ended, then kill those that are left."""
        deadline = self._clock() + self._grace_s
        while not self._at_once and members_of(session) and self._clock() < deadline:
            self._wait(_AGAIN_S, lambda: self._at_once or not members_of(session))
        left = members_of(session)
        for pid in left:
            _kill(pid)
        if left and not self._at_once:
            logger.warning("driver %d: %d of its processes lived on and are killed", session, len(left))
        self._reap()

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the driver, if it has not ended. We have not reaped it, so its process id is not another's."""
        if self._driver is not None and self._status is None:
            os.kill(self._driver.pid, number)

    # -- signals

    @contextmanager
    def _listening(self) -> Generator[None]:
        """Collect signals in a pipe during the body, so that none is missed between two looks. Signals that are ignored stay ignored."""
        reader, writer = os.pipe()
        os.set_blocking(reader, False)
        os.set_blocking(writer, False)
        self._signals = reader
        taken = [n for n in (*_ASKS_TO_STOP, signal.SIGCHLD) if n == signal.SIGCHLD or signal.getsignal(n) != signal.SIG_IGN]
        before = {n: signal.signal(n, _note) for n in taken}
        woken = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        try:
            yield
        finally:
            signal.set_wakeup_fd(woken)
            for n, handler in before.items():
                signal.signal(n, handler)
            os.close(reader)
            os.close(writer)

    def _wait(self, seconds: float | None, over: Callable[[], bool]) -> None:
        """Handle signals until `over()` is true, or the seconds have passed; None waits without a limit."""
        deadline = None if seconds is None else self._clock() + seconds
        while not over():
            left = None if deadline is None else deadline - self._clock()
            if left is not None and left <= 0:
                return
            ready, _, _ = select.select([self._signals], [], [], left)
            for number in os.read(self._signals, 1024) if ready else b"":
                self._handle(signal.Signals(number))

    def _handle(self, number: signal.Signals) -> None:
        if number == signal.SIGCHLD:
            self._reap()
        elif number not in _ASKS_TO_STOP:
            return
        elif self._asked is None:
            self._asked = number
            if self._driver is not None and self._status is None:
                logger.info("%s: forwarded to driver %d; a second signal kills it", number.name, self._driver.pid)
            self._send(_ASKS_TO_STOP[number])
        elif number != signal.SIGHUP:  # a terminal that closes sends it twice, from the shell and from the kernel
            self._asked, self._at_once = number, True
            self._send(signal.SIGKILL)

    def _reap(self) -> None:
        """Collect every child that has ended: the driver, and orphans of drivers."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            if self._driver is not None and pid == self._driver.pid:
                self._status = os.waitstatus_to_exitcode(status)


def members_of(session: int) -> list[int]:
    """Return the processes of a session that have not ended. Without /proc, as on macOS, it knows of none."""
    try:
        pids = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []
    return [pid for pid in pids if _is_member(pid, session)]


def _is_member(pid: int, session: int) -> bool:
    """Return whether a process belongs to a session, and has not ended."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            state, _parent, _group, of, *_rest = file.read().rpartition(")")[2].split()
    except (OSError, ValueError):  # it has ended meanwhile
        return False
    return int(of) == session and state not in "ZX"


def _kill(pid: int) -> None:
    """Kill a process, if it is there."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _read(fd: int) -> str:
    """Return what a driver has written into its pipe, as one line, and close the pipe."""
    try:
        return " ".join(os.read(fd, REASON_BYTES).decode(errors="replace").split())
    except BlockingIOError:  # a process of the driver has the other end
        return ""
    finally:
        os.close(fd)


def _note(_number: int, _frame: FrameType | None) -> None:
    """Handle a signal: Python has written its number into the pipe already."""


def _sentence(end: DriverEnd) -> str:
    """Return which driver has ended, after how long, and why; without a full stop."""
    by = f" {signal_name(-end.status)}" if end.status < 0 else ""
    why = f"{end.code.meaning}{by and ':'}{by}" if not end.reason else f"{end.code.meaning}: {end.reason.rstrip('.')}"
    return f"driver {end.pid} ended after {_lasted(end.lived_s)}: {why}"


def _lasted(seconds: float) -> str:
    """Return a duration for people."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
