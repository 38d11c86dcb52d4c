"""The kinds of lives: what the user does beside what happens anyway, and how a life must end.

Whatever the kind, no number may be there twice, and none of a committed batch may be missing. A batch is refused only with a reason, which
is in the log of the receipts. And each kind says how it must end: a sink that refuses everything does not pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstream.errors import OutputChangedError
from tests.kstream_kafka.sink.simulation.story import AnyKind, CopiesCheckpoint, LosesTopic

from .driver import Code

if TYPE_CHECKING:
    from .driver import QueryDriver
    from .life import QueryLife


class Kind(AnyKind["QueryLife"]):
    """A kind of life. This one: crashes, elections, delays, drivers that were taken for dead. Everything is written in the end."""

    name = "ordinary"

    def allows(self, driver: QueryDriver, batch: int, error: Exception) -> bool:
        """Return whether a refusal is right: Kafka has a later batch, or this one otherwise."""
        return isinstance(error, OutputChangedError) and self.life.has_otherwise(driver, batch)


class OtherContent(Kind):
    """The code makes other values with each driver. It is refused where a batch was written, until the user keeps what is written."""

    name = "other content"

    def before_driver(self) -> None:
        self.life.code = Code(f"v{len(self.life.drivers)}", self.life.code.keeps)

    def after_refusal(self, error: Exception) -> bool:
        self.life.code = Code(self.life.code.tag, keeps=True)
        return True


class OlderCheckpoint(CopiesCheckpoint["QueryLife"], Kind):
    """The user restores a backup of the checkpoint. It is refused at a batch that Kafka has otherwise; then the other one goes on."""

    name = "older checkpoint"

    def after_refusal(self, error: Exception) -> bool:
        """The user goes back to the other copy, and stays there."""
        if self.life.other is None or self.is_refused:
            return self.life.other is None
        self.is_refused = True
        self._swap()
        return True

    def may_end_refused(self) -> bool:
        """Each copy may have written what the other one has not."""
        return self.life.other is not None


class CopiedCheckpoint(OlderCheckpoint):
    """The user copies the checkpoint and starts drivers on both copies, one beside the other."""

    name = "copied checkpoint"
    has_drivers_on_both = True


class EditedCheckpoint(Kind):
    """The user moves the end of a batch that Spark has not committed. It is refused if Kafka has the batch; then the end moves back."""

    name = "edited checkpoint"

    def __init__(self, life: QueryLife) -> None:
        super().__init__(life)
        self.before: tuple[int, int] | None = None

    def before_driver(self) -> None:
        checkpoint = self.life.checkpoint
        batch = checkpoint.newest
        if self.before is None and batch >= 0 and batch not in checkpoint.commits and not self.life.has_zombies(self.life.drivers):
            self.before = batch, checkpoint.ends[batch]
            begin = checkpoint.range_of(batch).start
            checkpoint.ends[batch] = self.life.rng.randint(begin, checkpoint.numbers)
            self.life.turns.note(f"moves the end of batch {batch} from {self.before[1]} to {checkpoint.ends[batch]}", "user")

    def after_refusal(self, error: Exception) -> bool:
        if self.before is not None:
            self.life.checkpoint.ends[self.before[0]] = self.before[1]
            self.life.turns.note(f"moves the end of batch {self.before[0]} back", "user")
        return True


class LostTopic(LosesTopic["QueryLife"], Kind):
    """The topic of the receipts is deleted, after the checkpoint had noted it. From then on batches are refused.

    A process of an earlier driver may have looked for the note before it was there. So none of that kind may live.
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
    OtherContent,
    OlderCheckpoint,
    CopiedCheckpoint,
    EditedCheckpoint,
    LostTopic,
    RemadeTopic,
)
"""A seed takes one of them."""
