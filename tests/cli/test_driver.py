"""The end of a driver: after `kstream stop` a failing batch is no reason for a supervisor to start it again."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from kstream.cli.driver import await_end
from kstream.errors import FencedError, JvmLostError


class StoppingContext:
    """Raises these errors, one a call of `awaitTermination`, and has then stopped."""

    def __init__(self, *errors: Exception, stop_requested: bool) -> None:
        self._errors = list(errors)
        self.stop_requested = stop_requested

    def awaitTermination(self) -> None:
        if self._errors:
            raise self._errors.pop(0)


def await_end_of(context: Any) -> None:
    await_end(context)


def test_a_batch_that_fails_during_a_stop_that_was_asked_for_does_not_end_the_driver(caplog: pytest.LogCaptureFixture) -> None:
    await_end_of(StoppingContext(ValueError("sink away"), ValueError("still away"), stop_requested=True))
    warnings = [r.message for r in caplog.records if r.levelno == logging.WARNING]
    assert len(warnings) == 2 and "sink away" in warnings[0] and "the next start runs the batch again" in warnings[0]


def test_without_a_request_the_first_error_ends_the_driver() -> None:
    with pytest.raises(ValueError, match="sink away"):
        await_end_of(StoppingContext(ValueError("sink away"), stop_requested=False))


@pytest.mark.parametrize("error", [FencedError("taken over", mine=1, newer=2), JvmLostError("gone")])
def test_a_driver_that_was_replaced_or_has_no_jvm_ends_with_that_reason_also_then(error: Exception) -> None:
    with pytest.raises(type(error)):
        await_end_of(StoppingContext(error, stop_requested=True))
