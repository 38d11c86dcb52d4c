"""Faults: what may go wrong in a schedule, and how often. Each schedule draws its own (`drawn`), so that some meet one kind only."""

from __future__ import annotations

import random
from dataclasses import dataclass

WRITE_FAULTS = ("lost", "stored-then-failed", "delayed", "doubled")
"""Error and nothing stored · stored, then an error · error now, lands later, in any order · the client's own retry of a good write."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Chances, 0 to 1. `write`, `read`: of one store call. `job`: of one run of a job. `outside`: that what happens outside is bad.

    The rest are weights against `calm`, the weight of nothing bad, whenever the world acts: a driver dies, is frozen or goes on, a second
    one is started, one is stopped, the wall clock jumps.
    """

    write: float = 0.0
    kinds: tuple[str, ...] = WRITE_FAULTS
    read: float = 0.0
    job: float = 0.0
    slow_job: float = 0.0
    outside: float = 0.0
    crash: float = 0.0
    freeze: float = 0.0
    second: float = 0.0
    stop: float = 0.0
    jump: float = 0.0
    calm: float = 6.0

    @staticmethod
    def drawn(rng: random.Random) -> Faults:
        """Any mixture: each kind is absent in about half of the schedules."""

        def some(most: float) -> float:
            return rng.random() * most if rng.random() < 0.55 else 0.0

        kinds = tuple(kind for kind in WRITE_FAULTS if rng.random() < 0.6) or WRITE_FAULTS
        return Faults(
            write=some(0.3), kinds=kinds, read=some(0.12), job=some(0.25), slow_job=some(0.5), outside=some(0.6),
            crash=some(3.0), freeze=some(4.0), second=some(3.0), stop=some(0.7), jump=some(1.0),
        )  # fmt: skip


NO_FAULTS = Faults()


TAKEOVERS = Faults(write=0.1, read=0.05, crash=1.0, freeze=6.0, second=6.0, jump=0.3, calm=4.0)
"""Up to three drivers at once, standing still in the middle of things."""
