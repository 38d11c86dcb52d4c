"""RetryPolicy: when a failed batch is tried again, and whether later batches wait for it. Pure."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kstream.conf import Settings
from kstream.scheduler.settings import FAILED_BATCH, MAX_HELD_BATCHES, RETRIES

CONTINUE, HOLD = "continue", "hold"
FIRST_MS = 1_000
LONGEST_MS = 60_000
"""The first and the longest back-off in milliseconds. The longest one is also that of a batch whose retries are used up."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """What becomes of a batch that failed, in the driver that ran it.

    Attributes:
        retries: how often a batch is tried again before its error is reported.
        hold: whether later batches wait for a failed one, so that outputs see the batches in their order.
        max_held: the number of planned batches that may wait. Beyond it no batch is planned; the next plan takes the records.
    """

    retries: int = 0
    hold: bool = False
    max_held: int = 1_000

    def is_used_up(self, failures: int) -> bool:
        """Return whether a batch that has failed so often has no retry left."""
        return failures > self.retries

    def delay_ms(self, failures: int) -> int:
        """Return the back-off after so many failures: 1 s, doubled up to 60 s; without retries left 60 s."""
        if self.is_used_up(failures):
            return LONGEST_MS
        return min(LONGEST_MS, FIRST_MS << min(failures - 1, 16))

    def with_order(self) -> RetryPolicy:
        """Return the policy for outputs of which one needs its batches in order."""
        return replace(self, hold=True)


def retry_policy(settings: Settings) -> RetryPolicy:
    """Read the policy from the settings.

    Raises:
        ConfigurationError: a value has no meaning.
    """
    return RetryPolicy(settings[RETRIES], settings[FAILED_BATCH] == HOLD, settings[MAX_HELD_BATCHES])
