"""The named moments in a batch's life at which a test may kill the driver.

`reach(name)` costs one comparison when no hook is installed. `KSTREAM_CRASH_AT=plan-durable:3` in the environment kills this process
with SIGKILL the third time it gets there: no handler, no finally, just as a machine dies. A third part names another signal
(`plan-durable:3:SIGSTOP` freezes it). Tests in one process install a hook.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

BEFORE_PLAN = "before-plan"
PLAN_DURABLE = "plan-durable"
RUNNING = "running"
STATE_WRITTEN = "state-written"
JOB_DONE = "job-done"
CLEANING = "cleaning"
CRASH_POINTS = (BEFORE_PLAN, PLAN_DURABLE, RUNNING, JOB_DONE, CLEANING)
STATE_CRASH_POINTS = (STATE_WRITTEN,)
"""Reached only by streams that carry state."""

VARIABLE = "KSTREAM_CRASH_AT"

_hook: Callable[[str], None] | None = None


def install(hook: Callable[[str], None] | None) -> None:
    """Call `hook(name)` at each crash point from now on; None removes the hook."""
    global _hook
    _hook = hook


def reach(name: str) -> None:
    """Mark that the driver is at the crash point `name` now."""
    if _hook is not None:
        _hook(name)


def _killer(point: str, nth: int, how: signal.Signals) -> Callable[[str], None]:
    seen = 0

    def hook(name: str) -> None:
        nonlocal seen
        if name == point:
            seen += 1
            if seen == nth:
                os.kill(os.getpid(), how)

    return hook


def install_from_environment() -> None:
    """Install a hook that kills this process at the crash point of KSTREAM_CRASH_AT, if it is set."""
    spec = os.environ.get(VARIABLE)
    if spec:
        point, *rest = spec.split(":")
        nth, how = [*rest, *("1", "SIGKILL")[len(rest) :]]
        known = (*CRASH_POINTS, *STATE_CRASH_POINTS)
        if point not in known:
            raise ValueError(f"{VARIABLE} names no crash point: {point!r}; there are {', '.join(known)}")
        install(_killer(point, int(nth), signal.Signals[how]))
