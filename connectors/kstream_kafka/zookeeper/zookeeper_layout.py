"""The nodes of a consumer group in ZooKeeper, exactly as Kafka's 0.8 high-level consumer had them, and the owner of each partition.

/consumers/<group>/ids/<consumer>               ephemeral: a consumer, and its threads for each topic (JSON)
/consumers/<group>/owners/<topic>/<partition>   ephemeral: the thread that reads the partition
/consumers/<group>/offsets/<topic>/<partition>  persistent: the next offset to read, as text

The owners follow the RangeAssignor of that consumer. All functions are pure, so that all members of a group decide alike.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from kstream.offsets.offset_range import Partition

TopicCount: TypeAlias = Mapping[str, int]
"""Topic → number of consumer threads."""
Offsets: TypeAlias = Mapping[Partition, int]
"""Partition → next offset to read."""


@dataclass(frozen=True, slots=True)
class GroupNodes:
    """The paths of one group, below `root` if there is a chroot."""

    group: str
    root: str = ""

    @property
    def ids(self) -> str:
        return f"{self.root}/consumers/{self.group}/ids"

    def consumer(self, consumer: str) -> str:
        return f"{self.ids}/{consumer}"

    def owners(self, topic: str) -> str:
        """Return the path of a topic's owners."""
        return f"{self.root}/consumers/{self.group}/owners/{topic}"

    def owner(self, partition: Partition) -> str:
        """Return the path of a partition's owner."""
        topic, number = partition
        return f"{self.owners(topic)}/{number}"

    def offsets(self, topic: str) -> str:
        """Return the path of a topic's offsets."""
        return f"{self.root}/consumers/{self.group}/offsets/{topic}"

    def offset(self, partition: Partition) -> str:
        """Return the path of a partition's offset."""
        topic, number = partition
        return f"{self.offsets(topic)}/{number}"


def servers_and_root(quorum: str) -> tuple[str, str]:
    """Split `h1:2181,h2:2181/chroot` into the servers and `/chroot` (empty without one)."""
    servers, _, chroot = quorum.partition("/")
    root = "/".join(part for part in chroot.split("/") if part)
    return servers.strip(), f"/{root}" if root else ""


def consumer_id(group: str, host: str, time_ms: int, random_hex: str) -> str:
    """Return a unique consumer id in Kafka's form, with 8 hexadecimal digits of `random_hex`. A claim shows this id of its owner."""
    return f"{group}_{host}-{time_ms}-{random_hex[:8]}"


def registration(topics: TopicCount, time_ms: int) -> bytes:
    """Return the content of a consumer's node. `time_ms` is in ms since the epoch."""
    content = {"version": 1, "subscription": dict(topics), "pattern": "static", "timestamp": str(time_ms)}
    return json.dumps(content, separators=(",", ":")).encode()


def subscription(content: bytes) -> dict[str, int]:
    """Return the topics and threads in a consumer's node; an empty mapping if it is malformed, or names topics by a pattern."""
    try:
        node: Any = json.loads(content)
        if node.get("pattern", "static") != "static":
            return {}
        return {str(topic): int(threads) for topic, threads in node["subscription"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def offset_text(offset: int) -> bytes:
    """Return the content of an offset's node."""
    return str(offset).encode()


def thread_ids(consumer: str, threads: int) -> list[str]:
    """Return the ids of a consumer's threads."""
    return [f"{consumer}-{number}" for number in range(threads)]


def owners(members: Mapping[str, TopicCount], partitions: Collection[Partition]) -> dict[Partition, str]:
    """Return the owner thread of each partition. Partitions of topics without a reader are left out.

    The rule is applied to each topic: partitions in their order, threads in the order of their ids *as texts* (`…-10` before `…-2`). Each
    thread gets a run of partitions. The first threads get one more if the partitions do not divide evenly.

    Args:
        members: consumer id → its topics and threads.
        partitions: all partitions of the topics.
    """
    found: dict[Partition, str] = {}
    for topic in {topic for topic, _ in partitions}:
        threads = sorted(t for consumer, topics in members.items() for t in thread_ids(consumer, topics.get(topic, 0)))
        numbers = sorted(number for name, number in partitions if name == topic)
        if threads:
            found.update(_in_runs(topic, numbers, threads))
    return found


def owned_by(consumer: str, topics: TopicCount, owner_of: Mapping[Partition, str]) -> dict[Partition, str]:
    """Return the partitions that one consumer's threads own, each with its thread.

    Args:
        consumer: the id of the consumer.
        topics: its topics and threads.
        owner_of: the result of `owners`.
    """
    own = {thread for threads in topics.values() for thread in thread_ids(consumer, threads)}
    return {partition: thread for partition, thread in owner_of.items() if thread in own}


def _in_runs(topic: str, numbers: list[int], threads: list[str]) -> dict[Partition, str]:
    """Return the thread of each partition of one topic: runs of equal length, one longer for the first threads."""
    each, more = divmod(len(numbers), len(threads))
    found: dict[Partition, str] = {}
    begin = 0
    for index, thread in enumerate(threads):
        end = begin + each + (1 if index < more else 0)
        found.update({(topic, number): thread for number in numbers[begin:end]})
        begin = end
    return found
