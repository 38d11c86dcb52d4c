"""RDDScope: the box in which Spark's page draws the RDDs of one operator, or of one operator's batch."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kstream.batch_time import Duration, Time, format_batch_time

_LONG_NAME = 10


@dataclass(frozen=True, slots=True)
class RDDScope:
    """`id` tells boxes apart, `name` is written on them. An operator's box has the operator's name; each batch draws its own."""

    id: str
    name: str

    def of_batch(self, time: Time, interval: Duration) -> RDDScope:
        """`<id>_<ms>` and `<name> @ <batch time>`, in two lines if the name is long (Spark's DStream.makeScope)."""
        gap = "\n" if len(self.name) > _LONG_NAME else " "
        return RDDScope(f"{self.id}_{time.milliseconds}", f"{self.name}{gap}@ {format_batch_time(time, interval)}")

    def to_json(self) -> str:
        """As Spark reads it from the local property `spark.rdd.scope`."""
        return json.dumps({"id": self.id, "name": self.name}, separators=(",", ":"))
