"""Where logs end now, for who has only parameters and partitions: `kstream lag`."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import RENAMED, KafkaParams
from kstream_kafka.client.ports import Partition


def log_ends(stored: Mapping[str, Any], given: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
    """The end of each partition's log (last stable offset under read_committed); `given` parameters win over `stored` ones.

    One request a broker. Blocks up to the parameters' `default.api.timeout.ms`, and as long again for a retry; raises KafkaErrors.
    """
    client = KafkaDriverClient(KafkaParams.parse(merged(stored, given)))
    try:
        return {p: end.offset for p, end in client.latest(partitions).items()}
    finally:
        client.close()


def merged(stored: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Both; where they have the same parameter, if by another name, the given one."""
    taken = {RENAMED.get(name, name) for name in given}
    return {**{name: value for name, value in stored.items() if RENAMED.get(name, name) not in taken}, **given}
