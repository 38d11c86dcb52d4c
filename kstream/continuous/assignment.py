"""Assignment: which task reads which partitions. It is stored before any task of it starts.

    assignments/<generation>      created if absent, one after the other without a gap; never changed

A driver knows the newest one, and creates the next. So of two drivers one meets the record of the other, and learns in time of tasks that
it has to fence. A create with an unknown outcome may take effect later: under the same number it meets the next try, whatever that holds.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from kstream.checkpoint import format, names
from kstream.errors import AlreadyExistsError, FencedError
from kstream.offsets.offset_range import Partition
from kstream.storage import FileStore

TaskPartitions: TypeAlias = Mapping[int, tuple[Partition, ...]]
"""Task → its partitions, sorted. A task without partitions is left out."""
_KIND = "assignment"


@dataclass(frozen=True, slots=True)
class Assignment:
    """Which task reads which partitions.

    Attributes:
        generation: the number of the assignment, over all drivers.
        epoch: the epoch of the driver that has made it.
        tasks: the tasks that run.
        positions: where each partition begins, used as long as it has no receipt.
    """

    generation: int
    epoch: int
    tasks: TaskPartitions
    positions: Mapping[Partition, int]


def assign(partitions: Collection[Partition], tasks: int, before: TaskPartitions) -> dict[int, tuple[Partition, ...]]:
    """Give each partition to a task, and move only what must move. Pure.

    The numbers of partitions of two tasks differ by one at most. A partition moves if its task is gone, or has more than its share.

    Args:
        partitions: all partitions that are to be read.
        tasks: the most tasks, at least one. They have the numbers from 0.
        before: who has which partition now. Partitions that are no longer read are dropped.
    """
    wanted = set(partitions)
    share, larger = divmod(len(wanted), tasks)
    kept = {task: sorted(wanted.intersection(before.get(task, ()))) for task in range(tasks)}
    by_size = sorted(kept, key=lambda task: (-len(kept[task]), task))
    most = {task: share + (place < larger) for place, task in enumerate(by_size)}
    kept = {task: found[: most[task]] for task, found in kept.items()}
    free = iter(sorted(wanted.difference(*kept.values())))
    for task, found in kept.items():
        found += [partition for _, partition in zip(range(most[task] - len(found)), free, strict=False)]
    return {task: tuple(sorted(found)) for task, found in kept.items() if found}


def changed_tasks(before: TaskPartitions, after: TaskPartitions) -> set[int]:
    """Return the tasks whose partitions differ between two assignments. Pure."""
    return {task for task in (*before, *after) if before.get(task, ()) != after.get(task, ())}


class AssignmentLog:
    """The stored assignments. Thread-safe: it has no state. Every call blocks on the store, and raises its StorageError.

    Args:
        store: the checkpoint.
        epoch: that of this driver.
    """

    def __init__(self, store: FileStore, epoch: int) -> None:
        self._store = store
        self.epoch = epoch

    def newest(self) -> Assignment | None:
        """Read the assignment of the highest generation; None if there is none. One listing, and one read.

        Raises:
            CorruptRecordError: the record is damaged, or of another generation.
            FormatVersionError: a newer kstream has written the record.
        """
        generation = names.newest_generation(self._store.list(names.ASSIGNMENTS))
        return None if generation is None else self._read(generation)

    def store(self, assignment: Assignment) -> Assignment | None:
        """Create an assignment, the one after the newest that this driver knows. One create.

        Returns:
            None if it is stored. Otherwise the assignment that has its generation: of an earlier driver, or of an earlier try of this one.
            Its tasks have to be handed over, too, and a higher generation be stored.

        Raises:
            FencedError: a later driver has stored it.
            CorruptRecordError: the record that is there is damaged.
            StorageError: it is not known whether the assignment is stored. No task of it may start.
        """
        name = names.assignment(assignment.generation)
        try:
            self._store.create(name, format.encode(_KIND, _fields(assignment)))
        except AlreadyExistsError:
            return self._known(self._read(assignment.generation), assignment)
        return None

    def _known(self, found: Assignment, ours: Assignment) -> Assignment | None:
        if found.epoch > ours.epoch:
            raise FencedError(
                f"another driver has taken {self._store.url} (epoch {found.epoch}, this one has {ours.epoch}): this driver submits nothing "
                "more. Stop one of the two.",
                path=self._store.url,
                epoch=ours.epoch,
                newer_epoch=found.epoch,
            )
        return None if found == ours else found

    def _read(self, generation: int) -> Assignment:
        name = names.assignment(generation)
        return format.decode(_KIND, self._store.read(name), self._store.path(name), _assignment_of, {"generation": generation})


def _fields(assignment: Assignment) -> dict[str, object]:
    return {
        "generation": assignment.generation,
        "epoch": assignment.epoch,
        "tasks": {str(task): [list(partition) for partition in found] for task, found in assignment.tasks.items()},
        "positions": [[*partition, position] for partition, position in sorted(assignment.positions.items())],
    }


def _assignment_of(fields: format.Fields) -> Assignment:
    return Assignment(
        fields["generation"],
        fields["epoch"],
        {int(task): tuple((topic, number) for topic, number in found) for task, found in fields["tasks"].items()},
        {(topic, number): position for topic, number, position in fields["positions"]},
    )
