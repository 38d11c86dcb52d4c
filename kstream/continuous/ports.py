"""The ports of continuous processing: what a log, an output and a cluster do for it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from kstream.offsets.offset_range import Partition


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one partition that follow each other.

    Attributes:
        partition: the partition.
        records: the records, in the order of their offsets.
        until: the position behind them. It may be further than the last record: what is deleted or aborted there is passed over.
        num_bytes: the bytes of their keys and values.
        newest_ms: the newest timestamp of a record, in ms since the Unix epoch; None without a record.
        offsets: the offset of each record, such as a `range`; empty if the log does not know them. Only failures name them.
    """

    partition: Partition
    records: Sequence[Any]
    until: int
    num_bytes: int
    newest_ms: int | None
    offsets: Sequence[int] = ()


class UnboundedLog(Protocol):
    """The records of some partitions, as they come. In a worker; one thread."""

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read only these partitions from now on, each from its position. May block on the brokers."""
        ...

    def poll(self, wait_s: float) -> Sequence[Chunk]:
        """Return what is there; wait for so many seconds at most for the first record. Its bytes are bounded.

        Raises:
            KStreamError: a partition cannot be read from its position, or the log refuses this client.
        """
        ...

    def close(self) -> None: ...


class EpochOutput(Protocol):
    """Where the epochs of one task are written. In a worker; one thread.

    The order of calls: `open`, then `add` and `end`; `close` in any case.
    """

    def open(self) -> None:
        """Take the identity of the task: earlier runs of it can write nothing more, and what they had not committed is gone. Blocks."""
        ...

    def add(self, made: Iterable[Any]) -> None:
        """Add what the user's function has made of a chunk to this epoch. May block while buffers are full."""
        ...

    @property
    def num_bytes(self) -> int:
        """The bytes that were added to this epoch."""
        ...

    def end(self, positions: Mapping[Partition, int]) -> None:
        """End the epoch: what was added, and the positions, are stored as one, or nothing is. Blocks.

        Args:
            positions: the position behind the epoch, of each partition of which it has records. It is not empty.

        Raises:
            FencedError: another run has taken the identity. The epoch is not stored.
            KStreamError: it is not known whether the epoch is stored, or it is not. The task ends; its successor reads the receipts.
        """
        ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class EpochReceipt:
    """What the newest committed epoch says of a partition of the input.

    Attributes:
        position: everything before it is written.
        generation: of the assignment by which its task had the partition.
    """

    position: int
    generation: int


class HandOver(Protocol):
    """The two first steps of a hand-over. In the driver; any thread. Both block."""

    def fence(self, tasks: Collection[int]) -> None:
        """Take the identities of these tasks. Whatever runs under them can commit nothing more once this has returned."""
        ...

    def receipts(self, partitions: Collection[Partition]) -> dict[Partition, EpochReceipt]:
        """Return the newest receipt of each of these partitions that has one. It has those that were committed before this call."""
        ...


@dataclass(frozen=True, slots=True)
class TaskRun:
    """One run of a task: a job of Spark with one task.

    Attributes:
        task: the number of the task. Its transactional id is made of it.
        run: the number of the run, over all tasks of a driver. It only rises.
        generation: of the assignment for which it runs.
    """

    task: int
    run: int
    generation: int


class TaskRunner(Protocol):
    """Starts tasks on the cluster. In the driver; any thread."""

    def start(self, run: TaskRun, ended: Callable[[TaskRun, BaseException | None], None]) -> None:
        """Start a run. Returns at once. `ended` is called once, in any thread, when the job has ended, with its error."""
        ...

    def cancel(self, run: TaskRun) -> None:
        """Ask the cluster to end the job of a run. Returns at once. It may go on for any time: only fencing makes it harmless."""
        ...


class ContinuousSource(Protocol):
    """The log that a continuous stream reads. In the driver; a connector implements it."""

    def starts(self, known: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the partitions that there are besides the known ones, each with the position at which it begins. Blocks on the log."""
        ...

    def open_log(self, topics: Collection[str]) -> Callable[[], UnboundedLog]:
        """Return what opens the log of these topics in a worker; it is pickled into the tasks. Blocks on the log."""
        ...


class ContinuousTarget(Protocol):
    """Where a continuous stream is written. In the driver."""

    @property
    def epoch_ms(self) -> int:
        """How long an epoch lasts unless the user says it."""
        ...

    def hand_over(self, job: str) -> HandOver:
        """Return the hand-over of this target's tasks. `job` identifies the checkpoint. Blocks."""
        ...

    def open_output(self, run: TaskRun, driver_epoch: int) -> Callable[[], EpochOutput]:
        """Return what opens the output of a run in its worker; it is pickled into the task. Called after `hand_over`."""
        ...
