"""NoLog: the log of a stream without a checkpoint directory. Its plans end with the driver."""

from __future__ import annotations

from collections.abc import Mapping

from kstream.batch import BatchPlan, InputOutcome
from kstream.batch_time import Time
from kstream.checkpoint.state_log import States


class NoLog:
    """A BatchLog that stores nothing. No restart can recover from it, and no other driver can take over. No method blocks or raises."""

    epoch = 0

    def write_plan(self, plan: BatchPlan) -> None:
        pass

    def resolve_in_doubt_plan(self) -> BatchPlan | None:
        """Return None: no plan is ever in doubt."""
        return None

    def probe(self) -> None:
        pass

    def complete(
        self,
        time: Time,
        plan_epoch: int,
        at_ms: int,
        outcomes: Mapping[int, InputOutcome] | None = None,
        states: States | None = None,
    ) -> States:
        """Return no states: none is ever stored."""
        return {}

    def fail(self, time: Time, plan_epoch: int, at_ms: int, reason: str) -> None:
        pass

    def give_up(self, plan: BatchPlan, at_ms: int, failures: int) -> str:
        """Return an empty text: no command can run a batch again that was not stored."""
        return ""

    def clean(self, up_to: Time) -> None:
        pass
