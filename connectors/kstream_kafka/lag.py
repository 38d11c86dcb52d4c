"""Where logs end now, for who has only parameters and partitions: `kstream lag`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kstream_kafka.client import KafkaDriverClient
from kstream_kafka.params import KafkaParams
from kstream_kafka.ports import Partition


def log_ends(params: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
    """The end of each partition's log (last stable offset under read_committed). One request a broker; blocks; raises KafkaErrors."""
    client = KafkaDriverClient(KafkaParams.parse(params))
    try:
        return {p: end.offset for p, end in client.latest(partitions).items()}
    finally:
        client.close()
