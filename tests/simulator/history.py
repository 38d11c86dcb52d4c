"""History: everything about one schedule that an invariant may need, noted as it happens. Plain values; no behaviour.

`step` counts what was noted, over all kinds: of two facts the one with the lower step happened first.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kstream.batch import BatchPlan


@dataclass(slots=True)
class Attempt:
    """One run of one job: what the user's output function saw. `read` is None until the records were read without an error."""

    step: int
    driver: int
    time: int
    data: Mapping[str, Any]
    let_in_step: int = 0
    let_in_ms: int = 0
    """When its thread had looked for a newer writer, where it must, and went on to run it."""
    read: tuple[Hashable, ...] | None = None
    finished_step: int | None = None
    error: str | None = None

    @property
    def finished(self) -> bool:
        return self.finished_step is not None


@dataclass(frozen=True, slots=True)
class Stored:
    """A plan record came into being in the store, whoever was told so."""

    step: int
    plan: BatchPlan


@dataclass(frozen=True, slots=True)
class Moved:
    """A driver moved an input's cursor behind the batch."""

    step: int
    driver: int
    time: int
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Look:
    """A driver looked for a newer writer: "clear", "fenced" or "error"."""

    step: int
    at_ms: int
    driver: int
    answer: str


@dataclass(frozen=True, slots=True)
class Completed:
    """A completion record came into being."""

    step: int
    driver: int
    time: int


@dataclass(slots=True)
class History:
    """`given_up`: batch times in the ledger. `knew`: driver → step at which it read which batches are done. `fenced`: driver → step at
    which it said that another has taken over."""

    interval_ms: int
    holds: bool = False
    """Whether later batches wait for a failed one."""
    drivers: int = 0
    attempts: list[Attempt] = field(default_factory=list[Attempt])
    plans: list[Stored] = field(default_factory=list[Stored])
    moves: list[Moved] = field(default_factory=list[Moved])
    looks: list[Look] = field(default_factory=list[Look])
    done: list[Completed] = field(default_factory=list[Completed])
    given_up: set[int] = field(default_factory=set[int])
    fenced: dict[int, int] = field(default_factory=dict[int, int])
    knew: dict[int, int] = field(default_factory=dict[int, int])
    pending: frozenset[int] = frozenset()
    """At the end, by `read_log` of what is stored then."""
    pending_data: dict[int, Mapping[str, Any]] = field(default_factory=dict[int, Mapping[str, Any]])
    """What the plan of each pending batch of one input says, by the same reading."""
    left: dict[int, frozenset[int]] = field(default_factory=dict[int, frozenset[int]])
    """Driver → what was pending after its graceful stop, when nothing was wrong any more. Without drivers that were fenced, or have
    reported an error."""
    trouble: list[str] = field(default_factory=list[str])
    """What drivers said went wrong."""
    disagreements: list[str] = field(default_factory=list[str])
    """Where the lifecycle of a driver, its views and the log have disagreed, the first ten."""
    steps: int = 0

    def next_step(self) -> int:
        self.steps += 1
        return self.steps
