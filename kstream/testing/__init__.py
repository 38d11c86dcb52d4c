"""For the tests of users and our own: a clock moved by hand, points to crash at, contracts to inherit, a simulator.

One idea: time and death are inputs of a test. `ManualClock.advance` returns when every waiter that is due has run, so no test
sleeps; `CrashPoint` names let a test kill the driver between any two steps of a batch. `simulate` runs
thousands of seeded schedules of a whole driver (see `simulator`).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kstream.testing.simulator import simulate

__all__ = ["ManualClock", "simulate"]


def __getattr__(name: str) -> Any:
    if name != "simulate":  # it needs pyspark, which a clock does not
        raise AttributeError(f"module 'kstream.testing' has no attribute {name!r}")
    return importlib.import_module("kstream.testing.simulator").simulate
