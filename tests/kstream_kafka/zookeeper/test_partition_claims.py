"""Whose partitions are whose, as Kafka's RangeAssignor decides."""

from __future__ import annotations

from kstream_kafka.zookeeper.zookeeper_layout import owned_by, owners, thread_ids


def partitions(count: int, topic: str = "t") -> set[tuple[str, int]]:
    return {(topic, number) for number in range(count)}


def shares(members: dict[str, dict[str, int]], count: int) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for (_, number), thread in sorted(owners(members, partitions(count)).items()):
        found.setdefault(thread, []).append(number)
    return found


def test_each_thread_has_a_run_of_partitions_and_the_first_ones_have_one_more() -> None:
    assert shares({"b": {"t": 1}, "a": {"t": 2}}, 8) == {"a-0": [0, 1, 2], "a-1": [3, 4, 5], "b-0": [6, 7]}


def test_threads_without_a_partition_have_none() -> None:
    assert shares({"a": {"t": 3}}, 2) == {"a-0": [0], "a-1": [1]}


def test_ids_are_ordered_as_texts_as_kafka_ordered_them() -> None:
    found = shares({"a": {"t": 11}}, 11)
    assert list(found) == sorted(thread_ids("a", 11)) and found["a-10"] == [2]


def test_partitions_are_ordered_as_numbers() -> None:
    assert shares({"a": {"t": 1}, "b": {"t": 1}}, 12)["a-0"] == [0, 1, 2, 3, 4, 5]


def test_topics_are_shared_one_by_one_among_those_who_read_them() -> None:
    found = owners({"a": {"t": 1, "u": 1}, "b": {"u": 1}}, partitions(2) | partitions(2, "u") | partitions(1, "nobody's"))
    assert found == {("t", 0): "a-0", ("t", 1): "a-0", ("u", 0): "a-0", ("u", 1): "b-0"}


def test_a_consumer_owns_what_its_threads_do() -> None:
    found = owners({"a": {"t": 2}, "a-1": {"t": 1}}, partitions(3))
    assert owned_by("a", {"t": 2}, found) == {("t", 0): "a-0", ("t", 1): "a-1"}


def test_every_partition_has_one_owner_whatever_the_numbers() -> None:
    for count in range(1, 12):
        for members in range(1, 6):
            found = shares({f"c{n}": {"t": n % 3 + 1} for n in range(members)}, count)
            assert sorted(number for run in found.values() for number in run) == list(range(count))
            assert max(map(len, found.values())) - min(map(len, found.values())) <= 1
