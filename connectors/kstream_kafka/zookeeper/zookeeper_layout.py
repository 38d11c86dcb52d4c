"""The nodes of a consumer group in ZooKeeper, exactly as Kafka's high-level consumer of 0.8 had them.

/consumers/<group>/ids/<consumer>               ephemeral: who is there, and with how many threads for each topic (JSON)
/consumers/<group>/owners/<topic>/<partition>   ephemeral: the thread that reads it
/consumers/<group>/offsets/<topic>/<partition>  lasting: the next offset to read, as text
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream_kafka.client.ports import Partition

Subscription = Mapping[str, int]
"""Topic → number of consumer threads."""


@dataclass(frozen=True, slots=True)
class GroupNodes:
    """Paths of one group, below `root` if there is a chroot."""

    group: str
    root: str = ""

    @property
    def ids(self) -> str:
        return f"{self.root}/consumers/{self.group}/ids"

    def consumer(self, consumer: str) -> str:
        return f"{self.ids}/{consumer}"

    def owners(self, topic: str) -> str:
        return f"{self.root}/consumers/{self.group}/owners/{topic}"

    def owner(self, partition: Partition) -> str:
        return f"{self.owners(partition[0])}/{partition[1]}"

    def offsets(self, topic: str) -> str:
        return f"{self.root}/consumers/{self.group}/offsets/{topic}"

    def offset(self, partition: Partition) -> str:
        return f"{self.offsets(partition[0])}/{partition[1]}"


def servers_and_root(quorum: str) -> tuple[str, str]:
    """`h1:2181,h2:2181/chroot` → the servers, and `/chroot` (empty without one)."""
    servers, _, chroot = quorum.partition("/")
    root = "/".join(part for part in chroot.split("/") if part)
    return servers.strip(), f"/{root}" if root else ""


def consumer_id(group: str, host: str, time_ms: int, random_hex: str) -> str:
    """As Kafka made it; 8 hexadecimal digits of `random_hex` count. Never the same twice, so a claim tells whose it is."""
    return f"{group}_{host}-{time_ms}-{random_hex[:8]}"


def registration(topics: Subscription, time_ms: int) -> bytes:
    """The content of a consumer's node."""
    content = {"version": 1, "subscription": dict(topics), "pattern": "static", "timestamp": str(time_ms)}
    return json.dumps(content, separators=(",", ":")).encode()


def subscription(content: bytes) -> dict[str, int]:
    """What a consumer's node says it reads; nothing if it cannot be understood, or names topics by a pattern."""
    try:
        said: Any = json.loads(content)
        if said.get("pattern", "static") != "static":
            return {}
        return {str(topic): int(threads) for topic, threads in said["subscription"].items()}
    except (ValueError, TypeError, KeyError, AttributeError):
        return {}


def offset_text(offset: int) -> bytes:
    return str(offset).encode()
