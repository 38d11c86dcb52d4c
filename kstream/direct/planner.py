"""Planner: what a direct stream needs of the object that plans its batches. KafkaPlanner and LogPlanner are such objects."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Protocol, TypeVar

from kstream.batch.plan import RangePlan
from kstream.batch_time import Time
from kstream.offsets.admission_control import AdmissionControl
from kstream.offsets.offset_range import Partition

R = TypeVar("R", bound=RangePlan)


class Planner(Protocol[R]):
    """Plans the batches of one direct stream. It knows neither Spark nor settings.

    One thread at a time calls the methods; `log_ends` and `pinned` only read. `restore` may come before the planner begins. All others
    come after it: how a planner begins is its own.
    """

    @property
    def admission(self) -> AdmissionControl:
        """The limits of a batch. The thread that ends a batch tells it what batches have cost."""
        ...

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offset of each partition at which the next plan begins."""
        ...

    @property
    def pinned(self) -> Mapping[Partition, int]:
        """partition → offset of its first record from the future, while missed batches get the records of their times."""
        ...

    def restore(self, plan: R) -> None:
        """Continue after the newest stored plan. Asks nobody."""
        ...

    def starting_point(self) -> R:
        """Return a plan of empty ranges at the starting offsets. Asks nobody."""
        ...

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Prepare to plan missed batches; see `InputDStream.missed`. May block."""
        ...

    def plan(self, time: Time, open_batches: Collection[Time]) -> R:
        """Plan a batch. May block. Moves no offset.

        Args:
            time: the batch time.
            open_batches: the batches that run, or wait for an earlier one.
        """
        ...

    def planned(self, time: Time, plan: R) -> None:
        """Move the offsets to the ends of a plan that is durable now. Asks nobody."""
        ...

    def log_ends(self, time: Time) -> Mapping[Partition, int] | None:
        """Return the ends of the logs when a batch was planned; None unless this planner has planned it last."""
        ...
