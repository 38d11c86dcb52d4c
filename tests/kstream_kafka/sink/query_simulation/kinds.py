"""The kinds of lives: what the user does beside what happens anyway, and how a life must end.

Whatever the kind, no number may be there twice, and none of a committed batch may be missing. A batch is refused only with a reason, which
is in the log of the receipts. And each kind says how it must end: a sink that refuses everything does not pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from kstream_kafka.errors import ReceiptsLostError

from kstream.errors import OutputChangedError

from .driver import Code

if TYPE_CHECKING:
    from .driver import QueryDriver
    from .life import QueryLife

RECEIPTS = "k-receipts"


class Kind:
    """A kind of life. This one: crashes, elections, delays, drivers that were taken for dead. Everything is written in the end."""

    name: ClassVar[str] = "ordinary"

    def __init__(self, life: QueryLife) -> None:
        self.life = life

    def before_driver(self) -> None:
        """Do what the user does before the next driver starts."""

    def at_step(self) -> bool:
        """Do what the user does in the midst of a life. Return whether there was something to do."""
        return False

    def after_refusal(self, error: Exception) -> bool:
        """Do what the error tells the user to do. Return whether the life goes on."""
        return True

    def may_end_refused(self) -> bool:
        """Return whether a life may end before everything is written."""
        return False

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


class OlderCheckpoint(Kind):
    """The user restores a backup of the checkpoint. It is refused at a batch that Kafka has otherwise; then the other one goes on."""

    name = "older checkpoint"

    def __init__(self, life: QueryLife) -> None:
        super().__init__(life)
        self.is_refused = False

    def at_step(self) -> bool:
        if self.life.other is not None or not self.life.checkpoint.ends:
            return False
        self._copy()
        return True

    def before_driver(self) -> None:
        if self.life.other is not None and not self.is_refused and self.life.rng.random() < 0.5:
            self._swap()

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

    def _copy(self) -> None:
        life = self.life
        life.other = life.keep(life.checkpoint.copy("the copy"))
        life.turns.note("a backup of the checkpoint is made", "user")

    def _swap(self) -> None:
        life = self.life
        assert life.other is not None
        life.checkpoint, life.other = life.other, life.checkpoint
        life.turns.note(f"uses {life.checkpoint.name}", "user")


class CopiedCheckpoint(OlderCheckpoint):
    """The user copies the checkpoint and starts drivers on both copies, one beside the other."""

    name = "copied checkpoint"

    def at_step(self) -> bool:
        return False

    def before_driver(self) -> None:
        if not self.life.checkpoint.ends:
            return
        if self.life.other is None and self.life.rng.random() < 0.7:
            self._copy()
        if self.life.other is not None and not self.is_refused:
            self._swap()


class EditedCheckpoint(Kind):
    """The user moves the end of a batch that Spark has not committed. It is refused if Kafka has the batch; then the end moves back."""

    name = "edited checkpoint"

    def __init__(self, life: QueryLife) -> None:
        super().__init__(life)
        self.before: tuple[int, int] | None = None

    def before_driver(self) -> None:
        checkpoint = self.life.checkpoint
        batch = checkpoint.newest
        if self.before is None and batch >= 0 and batch not in checkpoint.commits and not self._has_zombies():
            self.before = batch, checkpoint.ends[batch]
            begin = checkpoint.range_of(batch).start
            checkpoint.ends[batch] = self.life.rng.randint(begin, checkpoint.numbers)
            self.life.turns.note(f"moves the end of batch {batch} from {self.before[1]} to {checkpoint.ends[batch]}", "user")

    def after_refusal(self, error: Exception) -> bool:
        if self.before is not None:
            self.life.checkpoint.ends[self.before[0]] = self.before[1]
            self.life.turns.note(f"moves the end of batch {self.before[0]} back", "user")
        return True

    def _has_zombies(self) -> bool:
        return any(self.life.turns.is_alive(process) for driver in self.life.drivers for process in driver.processes)


class LostTopic(Kind):
    """The topic of the receipts is deleted, after the checkpoint had noted it. From then on batches are refused.

    A process of an earlier driver may have looked for the note before it was there. So none of that kind may live.
    """

    name = "lost topic"

    def __init__(self, life: QueryLife) -> None:
        super().__init__(life)
        self.is_lost = False

    def at_step(self) -> bool:
        return self._lose()

    def before_driver(self) -> None:
        if self.life.rng.random() < 0.7:
            self._lose()

    def after_refusal(self, error: Exception) -> bool:
        return not (self.is_lost and isinstance(error, ReceiptsLostError))

    def may_end_refused(self) -> bool:
        return self.is_lost

    def allows(self, driver: QueryDriver, batch: int, error: Exception) -> bool:
        return (self.is_lost and isinstance(error, ReceiptsLostError)) or super().allows(driver, batch, error)

    def _has_zombies(self) -> bool:
        return any(self.life.turns.is_alive(process) for driver in self.life.drivers[:-1] for process in driver.processes)

    def _lose(self) -> bool:
        broker = self.life.kafka.broker
        if self.is_lost or not self.life.checkpoint.files or RECEIPTS not in broker.topics or self._has_zombies():
            return False
        self.is_lost = True
        self.life.turns.note("deletes the topic of the receipts", "user")
        broker.delete(RECEIPTS)
        return True


class RemadeTopic(LostTopic):
    """The topic of the receipts is deleted, and made anew by somebody else."""

    name = "remade topic"

    def _lose(self) -> bool:
        broker = self.life.kafka.broker
        number = len(broker.topics[RECEIPTS].logs) if RECEIPTS in broker.topics else 0
        if not super()._lose():
            return False
        broker.create(RECEIPTS, number)
        return True


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
