"""Output: an output operation that takes part in the life of a batch. `foreachRDD` takes one in place of a function."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from kstream.batch import Json, OutputFigures, PlannedInput
from kstream.batch_time import Time

if TYPE_CHECKING:
    from pyspark import RDD


@dataclass(frozen=True, slots=True)
class Writer:
    """The driver for which an output writes.

    Attributes:
        job: identifies the checkpoint, and so the job: the nonce of its first epoch. "" without a checkpoint directory.
        epoch: the driver's epoch.
        nonce: of that epoch. It tells the driver from drivers of the same epoch in copies of the checkpoint.
        nonce_of: nonce_of(epoch) returns the nonce of an epoch; None if the checkpoint has no such epoch. Blocks on the store.
        knows: knows(time, nonce) returns whether an earlier driver of this checkpoint has made the plan with this nonce.
        given_up: the batches that no driver runs: `--forget-batch` has set their plans aside, or they have failed too often.
    """

    job: str
    epoch: int
    nonce: str
    nonce_of: Callable[[int], str | None]
    knows: Callable[[Time, str], bool]
    given_up: frozenset[Time] = frozenset()


@dataclass(frozen=True, slots=True)
class OutputBatch:
    """A batch, as an output gets it.

    Attributes:
        time: the batch time.
        nonce: of its plan. No two plans have the same.
        is_first_try: whether no job of the batch can have run before, in this driver or in an earlier one.
        inputs: what each input has planned for it, by the number of the stream. The nonce stands for it in comparisons.
    """

    time: Time
    nonce: str
    is_first_try: bool
    inputs: Mapping[int, PlannedInput] = field(default_factory=dict[int, PlannedInput], compare=False)


class Output(ABC):
    """An output operation that takes part in the life of a batch.

    For each batch `prepare` and `run` are called, in this order, in the thread of the job. When all jobs of the batch have succeeded,
    `outcome` is called, then the completion is stored, then `committed` is called. A batch that fails, or whose driver ends, begins again
    with `prepare`. If `is_ordered`, a batch begins when all of this is done for the one before. Only a batch that is left to a restart,
    because its completion cannot be stored, lets the next one begin.

    Attributes:
        name: the name under which the checkpoint stores data of the output. No two outputs of a job have the same.
        is_ordered: whether a batch may only run when all older ones have succeeded. The setting for failed batches is `hold` then, for
            all outputs of the job: a batch has one completion, so an output cannot go ahead of the others.
        keeps_layout: whether each try of a batch must divide its records in the same way. Then the plan of the batch stores how.
    """

    name: str
    is_ordered = False
    keeps_layout = False

    def parts(self) -> Sequence[Output]:
        """Return the outputs that the checkpoint knows: those that are restored, asked for their outcome and told. Only `self`, usually."""
        return (self,)

    def worker_functions(self) -> Sequence[Any]:
        """Return the user's functions that tasks run. `start` tries to pickle each of them."""
        return ()

    def restore(self, writer: Writer, stored: Json) -> None:
        """Take over from an earlier driver. Called once, at a start, before the first batch. An error fails the start.

        Args:
            writer: the driver that starts.
            stored: the newest stored `outcome`; None if there is none.
        """
        return

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int] | None:
        """Get ready to write a batch. May block. An error fails the try.

        Returns:
            The partitions that are still to be written; None for all.
        """
        return None

    @abstractmethod
    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> OutputFigures | None:
        """Write a batch. Blocks until it is written. An error fails the try.

        Args:
            batch: the batch.
            rdd: its records.
            partitions: the partitions to compute; None for all. If an input must report on all records of a batch, all partitions are
                computed, also those that `prepare` has left out.

        Returns:
            What was measured in this try; None for nothing.
        """

    def outcome(self, time: Time) -> Json:
        """Return what the completion of a batch stores of this output; None for nothing. Any thread. Must not block.

        Called when all jobs of the batch have succeeded, and again only after an error.
        """
        return None

    def committed(self, time: Time) -> None:
        """Note that the completion of a batch is stored: no driver runs the batch again. Any thread. Must return at once."""
        return

    def stop(self) -> None:
        """Close what is kept from batch to batch. Called when the context has stopped and no batch runs; also after a failed start."""
        return
