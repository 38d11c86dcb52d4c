"""ConsumerRecord: a Kafka record of the 0-10 API, as a named tuple."""

from __future__ import annotations

from typing import Any, NamedTuple


class ConsumerRecord(NamedTuple):
    """One record. `key` and `value` are decoded as the stream says, None where the record has none.

    `timestamp` is ms since the epoch (−1: none); `timestampType` is 0 for CreateTime, 1 for LogAppendTime, −1 for none. `headers`
    are (name, bytes or None) pairs in their order, empty when there are none. `leaderEpoch` is None where the broker did not say.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    timestampType: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    leaderEpoch: int | None
