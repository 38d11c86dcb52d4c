"""Data loss: the policies of a stream, and the record of a lost range. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream.batch.plan import FAIL, REPORT, SKIP

POLICIES = (FAIL, SKIP, REPORT)
"""The values of `onDataLoss`: fail, skip and report."""


@dataclass(frozen=True, slots=True)
class LostRange:
    """Lost records of a partition: no batch has read or will read the offsets [lost_from, lost_until). Immutable.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        lost_from: the first lost offset.
        lost_until: the offset after the last lost one; None for all later offsets.
        cause: "retention", "truncation", "recreation" or "deletion".
        detail: what happened, as a text for people.
    """

    topic: str
    partition: int
    lost_from: int
    lost_until: int | None
    cause: str
    detail: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the stored form, one entry of the ledger."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "from": self.lost_from,
            "until": self.lost_until,
            "cause": self.cause,
            "detail": self.detail,
        }

    @staticmethod
    def from_json(entry: Mapping[str, Any]) -> LostRange:
        """Return the lost range of an entry that `to_json` made."""
        return LostRange(entry["topic"], entry["partition"], entry["from"], entry["until"], entry["cause"], entry["detail"])
