"""Where a batch may stand, and the table of the steps that it may take from there. Pure.

Three facts say where a batch stands: how far its current try is, what is stored of its end, and what becomes of it after a failure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import Enum


class Execution(Enum):
    """How far the current try of a batch is."""

    PLANNED = "planned"
    """Its plan is durable, and its jobs are about to be generated."""
    HELD = "held"
    """The batch waits for an older batch or for its turn, and has only its plan. With the retry `back-off` it waits for a store that is
    away, and keeps the jobs of its last try."""
    GENERATED = "generated"
    """Its jobs are generated. None is queued yet."""
    SUBMITTED = "submitted"
    """Its jobs are queued. None has started."""
    RUNNING = "running"
    """A job has started. Also while its end is being stored."""
    LOST = "lost"
    """Blocks or files of a state are gone that it needs. It is about to be generated again."""
    ENDED = "ended"
    """The try has ended, in success or failure."""


class End(Enum):
    """What is stored of the end of a batch."""

    NONE = "none"
    """Nothing: its jobs have not all succeeded."""
    UNKNOWN = "unknown"
    """Nothing yet: an input could not say what the batch has found. It is asked again."""
    REFUSED = "refused"
    """Nothing yet: the store refused the completion. It is written again."""
    WRITTEN = "written"
    """The completion. Of a batch that is given up: its entry in the ledger."""
    LEFT = "left"
    """Nothing, and this driver does not try again: a restart runs the batch, or the driver that has taken over."""


class Retry(Enum):
    """What becomes of a batch whose last try failed."""

    NONE = "none"
    """No try has failed, or the next one has begun."""
    BACK_OFF = "back-off"
    """Retries are left, and the next one has a time."""
    IN_TURN = "in turn"
    """No retry is left. Batches of this kind are tried one at a time, oldest first, once a minute while they fail."""
    EXHAUSTED = "exhausted"
    """This driver does not try the batch again, a restart does: no retry is left, a stop has ended the try, or it has no jobs to try."""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a batch stands: three facts that change together."""

    execution: Execution
    end: End = End.NONE
    retry: Retry = Retry.NONE

    def __str__(self) -> str:
        facts = [self.execution.value, *(f"end {self.end.value}" for _ in range(self.end is not End.NONE))]
        return ", ".join([*facts, *(f"retry {self.retry.value}" for _ in range(self.retry is not Retry.NONE))])


class Step(Enum):
    """What happens to a batch."""

    PLAN = "plan"
    HOLD = "hold"
    TAKE = "take"
    GENERATE = "generate"
    SUBMIT = "submit"
    BEGIN = "begin"
    WITHDRAW = "withdraw"
    LOSE = "lose"
    REPAIR = "repair"
    PUT_BACK = "put back"
    FAIL = "fail"
    RETRY = "retry"
    FORGET = "forget"
    COMPLETE = "complete"
    REFUSE = "refuse"
    NOT_KNOWN = "not known"
    LEAVE = "leave"
    FENCE = "fence"


E, D, R = Execution, End, Retry
_IN_A_TRY = (R.NONE, R.IN_TURN)
"""The values of `retry` during a try. A batch that is tried in turn keeps IN_TURN until the try ends."""
_KEPT = tuple(Standing(E.ENDED, end) for end in (D.UNKNOWN, D.REFUSED))
_WITHOUT_RETRY = tuple(Standing(E.ENDED, retry=retry) for retry in (R.IN_TURN, R.EXHAUSTED))
_FAILED = (Standing(E.ENDED, retry=R.BACK_OFF), *_WITHOUT_RETRY)


def _tries(*executions: Execution) -> tuple[Standing, ...]:
    return tuple(Standing(execution, retry=retry) for execution in executions for retry in _IN_A_TRY)


def _along(step: Step, sources: Collection[Execution], target: Execution) -> dict[tuple[Step, Standing], tuple[Standing, ...]]:
    """Return the rows of a step that only changes the execution."""
    return {(step, one): (replace(one, execution=target),) for one in _tries(*sources)}


def _to(step: Step, sources: Iterable[Standing | None], *targets: Standing) -> dict[tuple[Step, Standing | None], tuple[Standing, ...]]:
    """Return the rows of a step that leads from each source to one of the targets."""
    return dict.fromkeys([(step, source) for source in sources], targets)


_ENDING = (*_tries(E.PLANNED, E.RUNNING), *_KEPT)
"""The standings from which a batch is completed. A batch without jobs is completed when it is planned."""

TABLE: Mapping[tuple[Step, Standing | None], tuple[Standing, ...]] = {
    **_to(Step.PLAN, [None], Standing(E.PLANNED)),
    **_to(Step.HOLD, [Standing(E.PLANNED)], Standing(E.HELD)),
    **_to(Step.TAKE, [Standing(E.HELD)], Standing(E.PLANNED)),
    **_along(Step.GENERATE, [E.PLANNED], E.GENERATED),
    **_along(Step.SUBMIT, [E.GENERATED], E.SUBMITTED),
    **_along(Step.BEGIN, [E.SUBMITTED, E.RUNNING], E.RUNNING),
    **_along(Step.WITHDRAW, [E.SUBMITTED], E.LOST),
    **_along(Step.LOSE, [E.RUNNING], E.LOST),
    **_along(Step.REPAIR, [E.LOST], E.PLANNED),
    **_to(Step.PUT_BACK, [Standing(E.PLANNED)], Standing(E.HELD), Standing(E.HELD, retry=R.BACK_OFF), Standing(E.ENDED, retry=R.BACK_OFF)),
    **_to(Step.PUT_BACK, [Standing(E.PLANNED, retry=R.IN_TURN)], Standing(E.ENDED, retry=R.IN_TURN)),
    **_to(Step.FAIL, [Standing(E.PLANNED), Standing(E.RUNNING)], *_FAILED),
    **_to(Step.FAIL, [Standing(E.PLANNED, retry=R.IN_TURN), Standing(E.RUNNING, retry=R.IN_TURN)], *_WITHOUT_RETRY),
    **_to(Step.RETRY, [Standing(E.HELD, retry=R.BACK_OFF), Standing(E.ENDED, retry=R.BACK_OFF)], Standing(E.PLANNED)),
    **_to(Step.RETRY, [Standing(E.ENDED, retry=R.IN_TURN)], Standing(E.PLANNED, retry=R.IN_TURN)),
    **_to(Step.FORGET, [Standing(E.PLANNED), Standing(E.PLANNED, retry=R.IN_TURN)], Standing(E.ENDED, retry=R.EXHAUSTED)),
    **_to(Step.COMPLETE, _ENDING, Standing(E.ENDED, D.WRITTEN)),
    **_to(Step.REFUSE, _ENDING, Standing(E.ENDED, D.REFUSED)),
    **_to(Step.NOT_KNOWN, _ENDING, Standing(E.ENDED, D.UNKNOWN)),
    **_to(Step.LEAVE, _ENDING, Standing(E.ENDED, D.LEFT)),
    **{(Step.FENCE, one): (replace(one, end=D.LEFT),) for one in _tries(E.PLANNED, E.RUNNING)},
}
"""From where each step may be taken, and to where it may lead. None: the batch has no record. What is not here is an error."""
