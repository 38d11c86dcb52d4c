"""Tasks of batches prefer no executor whose cores are all held by receivers."""

from __future__ import annotations

import pytest

from kstream.spark.executors import Executor, block_locations, executors_with_free_core, task_slots

A, B, C = Executor("host1", "a", 1), Executor("host2", "b", 1), Executor("host3", "c", 1)


def located(holders: str, executors: list[Executor], receivers: dict[str, int], task_cpus: int = 1) -> list[str]:
    """The locations of one block whose replicas are on these executors."""
    [locations] = block_locations([holders], executors, executors_with_free_core(executors, receivers, task_cpus))
    return [str(location) for location in locations]


def test_a_block_prefers_the_executors_of_its_replicas_while_each_has_a_free_core() -> None:
    assert located("ab", [A, B, C], {}) == ["executor_host1_a", "executor_host2_b"]


def test_an_executor_whose_only_core_a_receiver_holds_is_not_preferred() -> None:
    assert located("ab", [A, B, C], {"a": 1}) == ["executor_host2_b"]


def test_a_block_whose_executors_are_all_held_by_receivers_prefers_nothing() -> None:
    assert located("ab", [A, B, C], {"a": 1, "b": 1}) == []


def test_a_block_whose_executors_are_all_held_prefers_the_host_of_another_executor_with_a_free_core() -> None:
    neighbour = Executor("host2", "d", 1)
    assert located("ab", [A, B, C, neighbour], {"a": 1, "b": 1}) == ["host2"]
    assert located("ab", [A, B, C, neighbour], {"a": 1, "b": 1, "d": 1}) == []


def test_a_host_with_two_replicas_is_named_once() -> None:
    held, also_held, free = Executor("host1", "a", 1), Executor("host1", "b", 1), Executor("host1", "c", 1)
    assert located("ab", [held, also_held, free], {"a": 1, "b": 1}) == ["host1"]


def test_an_executor_that_spark_does_not_list_is_not_preferred() -> None:
    assert located("za", [A], {}) == ["executor_host1_a"]
    assert located("z", [A], {}) == []


def test_a_block_that_lies_in_the_log_alone_prefers_nothing() -> None:
    assert located("", [A, B], {}) == []


@pytest.mark.parametrize(
    ("cores", "receivers", "task_cpus", "free"),
    [
        (1, 0, 1, True),
        (1, 1, 1, False),
        (2, 1, 1, True),
        (2, 2, 1, False),
        (2, 0, 2, True),
        (2, 1, 2, False),
        (3, 1, 2, False),
        (4, 1, 2, True),
        (1, 0, 2, False),
    ],
)
def test_a_core_is_free_if_one_more_task_fits_beside_the_receivers(cores: int, receivers: int, task_cpus: int, free: bool) -> None:
    executor = Executor("host1", "a", cores)
    assert executors_with_free_core([executor], {"a": receivers}, task_cpus) == ([executor] if free else [])


def test_executors_with_a_free_core_keep_their_order() -> None:
    assert executors_with_free_core([C, A, B], {"a": 1}, 1) == [C, B]


def test_a_task_does_not_span_two_executors() -> None:
    assert task_slots([3, 1, 2], 2) == 2
    assert task_slots([3, 1, 2], 1) == 6
