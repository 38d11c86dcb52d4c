"""Ways to break continuous processing on purpose, each a few lines that a careless change could bring."""

from __future__ import annotations

from collections.abc import Callable, Set

import pytest

from kstream.checkpoint import format, names
from kstream.continuous import assignment, epoch_coordinator
from kstream.continuous.assignment import Assignment, AssignmentLog, TaskPartitions
from kstream.continuous.ports import EpochReceipt
from tests.simulator.continuous.cluster import Cluster

Plant = Callable[[pytest.MonkeyPatch], Callable[[Cluster], None]]
"""Breaks the product by the patch, or the cluster by what it returns."""


def nothing(_cluster: Cluster) -> None:
    pass


def receipts_are_read_before_the_identities_are_taken(_patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        cluster.receipts_first = True

    return plant


def a_generation_is_used_again(patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    def store(self: AssignmentLog, made: Assignment) -> None:
        fields = assignment._fields(made)  # pyright: ignore[reportPrivateUsage]
        self._store.replace(names.assignment(made.generation), format.encode("assignment", fields))  # pyright: ignore[reportPrivateUsage]

    patch.setattr(AssignmentLog, "store", store)
    return nothing


def only_the_identity_of_the_new_task_is_taken(patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    def gaining(tasks: Set[int], before: TaskPartitions, after: TaskPartitions) -> Set[int]:
        return {task for task in tasks if set(after.get(task, ())) - set(before.get(task, ()))}

    patch.setattr(epoch_coordinator, "tasks_to_fence", gaining)
    return nothing


def what_was_reported_is_preferred_to_the_receipt(patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    def begin_at(receipt: EpochReceipt | None, reported: int | None, start: int) -> int:
        return reported if reported is not None else start if receipt is None else receipt.position

    patch.setattr(epoch_coordinator, "begin_at", begin_at)
    return nothing


def tasks_start_before_their_assignment_is_stored(patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    patch.setattr(AssignmentLog, "store", lambda self, made: None)
    return nothing


def an_epoch_without_outputs_has_no_receipt(_patch: pytest.MonkeyPatch) -> Callable[[Cluster], None]:
    def plant(cluster: Cluster) -> None:
        cluster.empty_epochs_have_no_receipt = True

    return plant


ALL: tuple[tuple[Plant, Set[str]], ...] = (
    (receipts_are_read_before_the_identities_are_taken, {"doubled", "order"}),
    (a_generation_is_used_again, {"generation", "durable", "doubled"}),
    (only_the_identity_of_the_new_task_is_taken, {"doubled", "order"}),
    (what_was_reported_is_preferred_to_the_receipt, {"doubled", "order"}),
    (tasks_start_before_their_assignment_is_stored, {"durable"}),
    (an_epoch_without_outputs_has_no_receipt, {"doubled", "order"}),
)
"""The bugs, and what tells of each."""
