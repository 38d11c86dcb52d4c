"""A KafkaPlanner over a fake cluster, driven as the direct stream drives it. Needs neither Spark nor a stream."""

from __future__ import annotations

import json
from typing import Any

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.planner import KafkaPlanner
from kstream_kafka.planning.subscription import Partitions, subscription

from kstream.batch_time import Duration, Time
from kstream.clock import Clock
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.offset_range import Partition
from kstream.offsets.positions import Positions
from kstream.testing import ManualClock
from tests.kstream_kafka.fakes import FakeClient

BROKERS = {"bootstrap.servers": "h:1"}
Logs = dict[Partition, tuple[int, int]]
NO_LIMITS = AdmissionSettings()


def limited_to(records: int) -> AdmissionSettings:
    """At most so many records of a partition in each batch of a second."""
    return AdmissionSettings(max_rate=lambda _: records, caps_rates=True)


class Planner:
    """A planner with its cluster and clock. Batches have an interval of a second."""

    def __init__(
        self, logs: Logs, topics: Any = ("t",), given: Any = None, *, until: Any = None, by_timestamp: bool = False,
        tolerate_loss: bool = False, limits: AdmissionSettings = NO_LIMITS, clock: Clock | None = None, **params: Any,
    ) -> None:  # fmt: skip
        self.client, self.time = FakeClient(dict(logs)), Time(0)
        self.clock: Any = clock or ManualClock()
        self.planner = KafkaPlanner(
            topics if isinstance(topics, Partitions) else subscription(topics),
            KafkaParams.parse({**BROKERS, **{k.replace("_", "."): v for k, v in params.items()}}),
            Positions.parse(given, "fromOffsets"),
            Positions.parse(until, "untilOffsets"),
            AdmissionControl(limits, Duration(1000)),
            self.clock,
            by_timestamp=by_timestamp,
            tolerate_loss=tolerate_loss,
        )

    def restore(self, data: dict[str, Any]) -> Planner:
        self.planner.restore(KafkaPlan.decode(data))
        return self

    def start(self) -> Planner:
        self.planner.begin(self.client)
        return self

    def plan(self) -> dict[str, Any]:
        """The stored form of the next plan, which is not stored."""
        self.time = Time(self.time.milliseconds + 1000)
        return json.loads(json.dumps(self.planner.plan(self.time, ()).encode()))

    def store(self) -> dict[str, Any]:
        """The next plan, and it is durable now."""
        data = self.plan()
        self.planner.planned(self.time, KafkaPlan.decode(data))
        return data

    def batch(self) -> list[list[Any]]:
        """The ranges of the next plan, and it is durable now."""
        return self.store()["ranges"]
