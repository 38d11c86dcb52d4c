"""RDDScope: the box in which Spark's pages draw the RDDs of an operator, or of an operator in one batch."""

from __future__ import annotations

import json
from dataclasses import dataclass

from kstream.batch_time import Duration, Time, format_batch_time

_LONG_NAME = 10


@dataclass(frozen=True, slots=True)
class RDDScope:
    """A box in Spark's pages. `id` identifies the box, and `name` is its label: the name of the operator."""

    id: str
    name: str

    def of_batch(self, time: Time, interval: Duration) -> RDDScope:
        """Return this operator's box in one batch, as Spark's DStream.makeScope does.

        Its id is `<id>_<batch time in ms>`, its name `<name> @ <batch time>`, in two lines if the name is long.
        """
        gap = "\n" if len(self.name) > _LONG_NAME else " "
        return RDDScope(f"{self.id}_{time.milliseconds}", f"{self.name}{gap}@ {format_batch_time(time, interval)}")

    def to_json(self) -> str:
        """Return the JSON text that Spark reads from the local property `spark.rdd.scope`."""
        return json.dumps({"id": self.id, "name": self.name}, separators=(",", ":"))
