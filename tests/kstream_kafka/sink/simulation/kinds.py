"""The kinds of lives: what the user does beside what happens anyway, and which refusals are right then.

Whatever the kind, no number may be written twice, and none of a completed batch may be missing. And each kind says how it must end: a
sink that refuses everything does not pass.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from kstream.errors import FencedError, OutputChangedError

from .story import RECEIPTS, AnyKind, CopiesCheckpoint, LosesTopic

if TYPE_CHECKING:
    from .checkpoint import PlannedBatch
    from .driver import SinkDriver
    from .life import Life


class Kind(AnyKind["Life"]):
    """A kind of life. This one: crashes, failures, elections, delays, copies of tasks, drivers that were taken for dead.

    No refusal is right but that of an earlier driver, and all is written in the end.
    """

    name = "ordinary"
    outputs: ClassVar[tuple[str, ...]] = ("totals", "alerts")
    """The outputs that a life of this kind may have."""

    def violations(self, found: dict[int, list[str]]) -> list[str]:
        """Return what is broken in an output beside the count of each number. `found`: number → the tags of its values."""
        return []

    def allows(self, driver: SinkDriver, batch: PlannedBatch, error: Exception) -> bool:
        return isinstance(error, FencedError) and driver.checkpoint.epoch > driver.epoch

    def _receipts(self, batch: PlannedBatch) -> Iterator[dict[str, Any]]:
        """The receipts of a batch that are committed."""
        topic = self.life.kafka.broker.topics.get(RECEIPTS)
        for log in () if topic is None else topic.logs[1:]:
            for record in log.ever:
                if record.is_committed and (form := json.loads(record.its_value or b"{}")).get("batch") == batch.time.milliseconds:
                    yield form


class OtherLayout(Kind):
    """A half-written batch comes again with another number of partitions. It is refused until it has the old one again."""

    name = "other layout"
    outputs = ("totals",)
    others = (0, 1, 2, -1, -2, -3)

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self.is_refused = False

    def before_driver(self) -> None:
        if self.life.drivers and not self.is_refused and self.life.rng.random() < 0.6:
            self._use(self.life.rng.choice(self.others))
        self.is_refused = False

    def after_refusal(self, error: Exception) -> bool:
        """The user tries the others, one after the other."""
        self.is_refused = isinstance(error, OutputChangedError)
        if self.is_refused:
            self._use(self.others[(self.others.index(self._used()) + 1) % len(self.others)])
        return True

    def _used(self) -> int:
        return self.life.application.other_partitions

    def _use(self, value: int) -> None:
        self.life.application = replace(self.life.application, other_partitions=value)

    def allows(self, driver: SinkDriver, batch: PlannedBatch, error: Exception) -> bool:
        if isinstance(error, OutputChangedError):
            number = max(1, batch.num_partitions + driver.application.other_partitions)
            return any(form["partitions"] != number for form in self._receipts(batch))
        return super().allows(driver, batch, error)


class OtherHashing(OtherLayout):
    """A half-written batch comes again with another hash seed. It is refused until it has the old one again."""

    name = "other hash seed"
    others = (0, 1, 2)

    def _used(self) -> int:
        return self.life.application.hashing

    def _use(self, value: int) -> None:
        self.life.application = replace(self.life.application, hashing=value)

    def allows(self, driver: SinkDriver, batch: PlannedBatch, error: Exception) -> bool:
        if isinstance(error, OutputChangedError):
            return any(form["hashing"] != driver.application.hashing for form in self._receipts(batch))
        return Kind.allows(self, driver, batch, error)


class OtherContent(Kind):
    """The code of the next driver makes other values of the same records. Each partition has those of one driver."""

    name = "other content"

    def before_driver(self) -> None:
        self.life.application = replace(self.life.application, tag=f"code {len(self.life.drivers)}")

    def violations(self, found: dict[int, list[str]]) -> list[str]:
        broken = list[str]()
        for plan in self.life.checkpoint.done.values():
            for partition in range(plan.num_partitions):
                numbers = plan.numbers(partition, plan.num_partitions, 0)
                if len(tags := {tag for number in numbers for tag in found.get(number, [])}) > 1:
                    broken.append(f"partition {partition} of batch {plan.time.milliseconds} is written in parts, by {sorted(tags)}")
        return broken


class OlderCheckpoint(CopiesCheckpoint["Life"], Kind):
    """The user restores a backup of the checkpoint. It is refused if a driver has written since; then the newest checkpoint goes on.

    Each output has a fence of its own. So drivers of two copies that start at once can each take one of two outputs. And even with one
    output both copies are refused, if one has written its fence before it could see a batch of the other one.
    """

    name = "older checkpoint"
    outputs = ("totals",)

    def after_refusal(self, error: Exception) -> bool:
        """The user goes back to the other copy, and stays there until that one is refused."""
        if self.life.other is not None:
            self.is_refused = True
            self._swap()
        return True

    def allows(self, driver: SinkDriver, batch: PlannedBatch, error: Exception) -> bool:
        if isinstance(error, (OutputChangedError, FencedError)) and self._has_what_another_copy_wrote(driver):
            return True
        return super().allows(driver, batch, error)

    def may_end_refused(self) -> bool:
        """Both copies have written, because one has not seen what the other one wrote.

        Drivers of both have run at once, or a leader of yesterday had no fence of the other one, or its receipts were behind an open
        transaction: the read before the fence does not wait for that.
        """
        life = self.life
        newest = {driver.checkpoint.name: driver for driver in life.drivers}
        is_possible = life.has_overlap or life.kafka.stale_answers > 0 or life.kafka.short_reads > 0
        return is_possible and len(newest) == 2 and all(self._has_what_another_copy_wrote(driver) for driver in newest.values())

    def _has_what_another_copy_wrote(self, driver: SinkDriver) -> bool:
        """Whether the topic has a fence or a receipt that the checkpoint of a driver does not know."""
        topic, checkpoint = self.life.kafka.broker.topics.get(RECEIPTS), driver.checkpoint
        forms = [json.loads(r.its_value) for log in ([] if topic is None else topic.logs) for r in log.ever if r.its_value]
        epochs, plans = set(checkpoint.epochs.values()), {plan.nonce for plan in (*checkpoint.plans.values(), *checkpoint.done.values())}
        return any(form["writer"] not in epochs or ("plan" in form and form["plan"] not in plans) for form in forms)


class CopiedCheckpoint(OlderCheckpoint):
    """The user copies the checkpoint and starts drivers on both copies. One of the copies goes on, the other one is refused."""

    name = "copied checkpoint"
    has_drivers_on_both = True


class LostTopic(LosesTopic["Life"], Kind):
    """The topic of the receipts is deleted, after it had receipts of a completed batch. Drivers that start are refused from then on.

    A driver that has read the log before may know of no topic, and makes another one. So none of that kind may live.
    """

    name = "lost topic"


class RemadeTopic(LostTopic):
    """The topic of the receipts is deleted, and made anew by somebody else."""

    name = "remade topic"
    is_remade = True


KINDS: tuple[type[Kind], ...] = (
    Kind,
    Kind,
    Kind,
    OtherLayout,
    OtherHashing,
    OtherContent,
    OlderCheckpoint,
    CopiedCheckpoint,
    LostTopic,
    RemadeTopic,
)
"""A seed takes one of them."""
