"""Offsets in the form of Structured Streaming, `{"topic":{"0":12}}`: in offset logs, options and progress. Pure.

The offset of a partition is the next one to read. Topics are in the order of their names, partitions in that of their numbers.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeAlias

from kstream.offsets.offset_range import Partition

TopicOffsets: TypeAlias = dict[str, dict[str, int]]
"""topic → number of a partition, as text → next offset to read"""


def by_topic(offsets: Mapping[Partition, int]) -> TopicOffsets:
    """Return offsets in the form of Structured Streaming. Equal offsets have equal texts, because the order is always the same."""
    found: TopicOffsets = {}
    for (topic, number), at in sorted(offsets.items()):
        found.setdefault(topic, {})[str(number)] = at
    return found


def by_partition(value: Any) -> dict[Partition, int] | None:
    """Return the offsets of a JSON value.

    Args:
        value: the value, of any form.

    Returns:
        partition → next offset; None if the value is no offset of Kafka.
    """
    found: dict[Partition, int] = {}
    if not isinstance(value, dict):
        return None
    for topic, numbers in value.items():
        if not isinstance(numbers, dict) or not numbers:
            return None
        for number, at in numbers.items():
            if not number.isdecimal() or isinstance(at, bool) or not isinstance(at, int) or at < 0:
                return None
            found[topic, int(number)] = at
    return dict(sorted(found.items()))


def text_of(offsets: Mapping[Partition, int]) -> str:
    """Return the JSON text of offsets as Spark's Kafka source writes it, without spaces."""
    return json.dumps(by_topic(offsets), separators=(",", ":"))
