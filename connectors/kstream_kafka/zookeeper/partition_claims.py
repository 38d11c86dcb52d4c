"""Whose partitions are whose: the RangeAssignor of Kafka's high-level consumer. Pure, so that all members of a group decide alike."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from kstream_kafka.client.ports import Partition
from kstream_kafka.zookeeper.zookeeper_layout import Subscription


def thread_ids(consumer: str, threads: int) -> list[str]:
    return [f"{consumer}-{number}" for number in range(threads)]


def owners(members: Mapping[str, Subscription], partitions: Collection[Partition]) -> dict[Partition, str]:
    """Each partition's thread, by consumer ids and what they subscribe to. Partitions of topics that nobody reads are left out.

    Topic by topic: partitions in their order, threads in the order of their ids *as texts* (`…-10` before `…-2`), each thread a run of
    partitions, the first ones one more where they do not divide evenly.
    """
    found: dict[Partition, str] = {}
    for topic in {topic for topic, _ in partitions}:
        threads = sorted(t for consumer, topics in members.items() for t in thread_ids(consumer, topics.get(topic, 0)))
        numbers = sorted(number for name, number in partitions if name == topic)
        if threads:
            found.update(_in_runs(topic, numbers, threads))
    return found


def owned_by(consumer: str, topics: Subscription, owner_of: Mapping[Partition, str]) -> dict[Partition, str]:
    """The partitions of one consumer's threads."""
    own = {thread for threads in topics.values() for thread in thread_ids(consumer, threads)}
    return {partition: thread for partition, thread in owner_of.items() if thread in own}


def _in_runs(topic: str, numbers: list[int], threads: list[str]) -> dict[Partition, str]:
    each, more = divmod(len(numbers), len(threads))
    found: dict[Partition, str] = {}
    begin = 0
    for index, thread in enumerate(threads):
        end = begin + each + (1 if index < more else 0)
        found.update({(topic, number): thread for number in numbers[begin:end]})
        begin = end
    return found
