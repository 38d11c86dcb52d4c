"""Data loss: the policy of a stream, and the record of a lost range. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream_kafka.errors import KafkaConfigError

FAIL, SKIP, REPORT = "fail", "skip", "report"
POLICIES = (FAIL, SKIP, REPORT)
"""What `onDataLoss` may be. fail: the batch fails with the error. skip: what is there is read, the loss goes to the ledger. report: as
skip, and listeners hear of it (`onDataLost`)."""


def check_policy(policy: str | None, key: str) -> str | None:
    """Returns it; KafkaConfigError if there is no such policy."""
    if policy is not None and policy not in POLICIES:
        raise KafkaConfigError(key, f"is {policy!r}", f"One of: {', '.join(POLICIES)}.")
    return policy


@dataclass(frozen=True, slots=True)
class LostRange:
    """Offsets [lost_from, lost_until) of a partition whose records no batch has read or will read. `lost_until` None: all that came after.

    `cause` is retention, truncation, recreation or deletion; `detail` says it to people.
    """

    topic: str
    partition: int
    lost_from: int
    lost_until: int | None
    cause: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """The stored form, one entry of the ledger."""
        return {
            "topic": self.topic, "partition": self.partition, "from": self.lost_from, "until": self.lost_until,
            "cause": self.cause, "detail": self.detail,
        }  # fmt: skip

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> LostRange:
        """The inverse of `to_json`."""
        return LostRange(entry["topic"], entry["partition"], entry["from"], entry["until"], entry["cause"], entry["detail"])
