"""Tools for tests of users and of kstream: a manual clock, inputs and outputs in memory, crash points, contracts to inherit.

One idea: a test controls time and the death of drivers. `ManualClock.advance` returns when everything that is due has run, so no test
sleeps. `TestInputStream` gives each batch the records of the test, and `CollectedOutput` keeps the records of an output.
`restart_produces_the_same_batches` kills a driver at each crash point and compares its outputs with those of a driver that never stopped.
docs/testing.md shows these tools.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstream.crash_point import CRASH_POINTS
from kstream.lazy_names import lazy_names
from kstream.testing.manual_clock import ManualClock

if TYPE_CHECKING:
    from kstream.testing.collected_output import CollectedOutput
    from kstream.testing.input_stream import TestInputStream, restore_input
    from kstream.testing.restarts import restart_produces_the_same_batches
else:  # at the first use, because they need pyspark; ManualClock does not
    __getattr__ = lazy_names(
        __name__,
        {
            "CollectedOutput": "kstream.testing.collected_output",
            "TestInputStream": "kstream.testing.input_stream",
            "restart_produces_the_same_batches": "kstream.testing.restarts",
            "restore_input": "kstream.testing.input_stream",
        },
    )

__all__ = [
    "CRASH_POINTS",
    "CollectedOutput",
    "ManualClock",
    "TestInputStream",
    "restart_produces_the_same_batches",
    "restore_input",
]
