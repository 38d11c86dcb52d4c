"""Crash points: the named moments in a batch's life at which a test may kill the driver.

`reach(name)` costs one comparison if no hook is installed. `KSTREAM_CRASH_AT=plan-durable:3` in the environment kills this process with
SIGKILL when it reaches that point for the third time: no handler and no `finally` runs, as if the machine died. A third part names
another signal (`plan-durable:3:SIGSTOP` suspends the process). Tests in one process install a hook.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable

BEFORE_PLAN = "before-plan"
PLAN_DURABLE = "plan-durable"
RUNNING = "running"
STATE_WRITTEN = "state-written"
JOB_DONE = "job-done"
CLEANING = "cleaning"
CRASH_POINTS = (BEFORE_PLAN, PLAN_DURABLE, RUNNING, JOB_DONE, CLEANING)
STATE_CRASH_POINTS = (STATE_WRITTEN,)
"""The crash points that only a batch with state reaches."""

VARIABLE = "KSTREAM_CRASH_AT"

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Install the hook of this process: `hook(name)` is called at each crash point, on the thread that reaches it. None removes it."""
    global _hook
    _hook = hook


def reach(name: str) -> None:
    """Call the hook, if one is installed: the driver is at the crash point `name` now. Any thread."""
    if _hook is not None:
        _hook(name)


def _killer(point: str, nth: int, how: signal.Signals) -> Callable[[str], None]:
    """Make a hook that sends the signal `how` when this process reaches `point` for the `nth` time. The thread does not pass the point."""
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        if name == point:
            seen += 1
            if seen == nth:
                signal.pthread_kill(threading.get_ident(), how)  # to this thread: os.kill may let it go on until another one obeys

    return hook


def install_from_environment() -> None:
    """Install a hook that kills this process at the crash point of KSTREAM_CRASH_AT, if that is set.

    Raises:
        ValueError: it names no crash point or no signal, or its count is no number.
    """
    spec = os.environ.get(VARIABLE)
    if spec:
        point, *rest = spec.split(":")
        nth, how = [*rest, *("1", "SIGKILL")[len(rest) :]]
        known = (*CRASH_POINTS, *STATE_CRASH_POINTS)
        if point not in known:
            raise ValueError(f"{VARIABLE} names no crash point: {point!r}; there are {', '.join(known)}")
        if how not in signal.Signals.__members__:
            raise ValueError(f"{VARIABLE} names no signal: {how!r}; give a name such as SIGKILL or SIGSTOP")
        install(_killer(point, int(nth), signal.Signals[how]))
