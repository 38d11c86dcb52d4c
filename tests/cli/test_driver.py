"""The end of a driver: after `kstream stop` a failing batch is no reason for a supervisor to start it again."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from kstream.cli.driver import await_end
from kstream.context.waiter import ContextWaiter
from kstream.errors import FencedError, JvmLostError

MOST_WAITS = 3


class StoppingContext:
    """Ends its waits as a StreamingContext does: it raises its first error again at every call, also once it has stopped.

    Another thread stops it once the driver waits for the stop.
    """

    def __init__(self, error: Exception, *, stop_requested: bool) -> None:
        self.stop_requested = stop_requested
        self.waits, self.has_stopped = 0, False
        self._waiter = ContextWaiter()
        self._waiter.notify_error(error)

    def awaitTermination(self) -> None:
        self.waits += 1
        if self.waits > MOST_WAITS:
            pytest.fail("the driver waits again and again for a context that raises its error each time")
        self._waiter.wait(None)

    def await_stop(self) -> None:
        threading.Thread(target=self._stop, daemon=True).start()
        self._waiter.wait_for_stop()

    def _stop(self) -> None:
        self._waiter.notify_error(ValueError("still away"))
        self.has_stopped = True
        self._waiter.notify_stop()


def await_end_of(context: Any) -> None:
    await_end(context)


def test_a_batch_that_fails_during_a_stop_that_was_asked_for_does_not_end_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    context = StoppingContext(ValueError("sink away"), stop_requested=True)
    await_end_of(context)
    (warning,) = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert "sink away" in warning and "the next start runs the batch again" in warning
    assert context.waits == 1 and context.has_stopped


def test_without_a_request_the_first_error_ends_the_driver() -> None:
    with pytest.raises(ValueError, match="sink away"):
        await_end_of(StoppingContext(ValueError("sink away"), stop_requested=False))


@pytest.mark.parametrize("error", [FencedError("taken over", mine=1, newer=2), JvmLostError("gone")])
def test_a_driver_that_was_replaced_or_has_no_jvm_ends_with_that_reason_also_then(error: Exception) -> None:
    with pytest.raises(type(error)):
        await_end_of(StoppingContext(error, stop_requested=True))
