"""For the tests of users and our own: a clock moved by hand, and points to crash at.

One idea: time and death are inputs of a test. `ManualClock.advance` returns when every waiter that is due has run, so no test
sleeps; `CrashPoint` names let a test kill the driver between any two steps of a batch.
"""

from kstream.testing.manual_clock import ManualClock

__all__ = ["ManualClock"]
