"""What a simulation raises.

KStreamError
├── SimulationFailedError   a schedule broke an invariant
└── SimulationStuckError    a schedule stands still: a step blocks outside of the simulation, or nobody can go on
"""

from __future__ import annotations

from collections.abc import Sequence

from kstream.errors import KStreamError


class SimulationFailedError(KStreamError):
    """A schedule broke an invariant. Facts: seed, broken (a line each), trace (all lines of the schedule)."""

    def __init__(self, seed: int, broken: Sequence[str], trace: Sequence[str]) -> None:
        most = 5
        more = f"\n  … {len(broken)} in all" if len(broken) > most else ""
        lines = "".join(f"\n  {line}" for line in broken[:most])
        super().__init__(
            f"seed {seed} breaks what must hold:{lines}{more}\nThe same seed always gives the same trace ({len(trace)} lines).",
            seed=seed, broken=list(broken), trace=list(trace),
        )  # fmt: skip


class SimulationStuckError(KStreamError):
    """A step did not come back, or nobody can go on. Facts: none."""
