"""Direct streams over a fake cluster: driven as the core drives them, and as inputs of the harness."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from kstream_kafka import KafkaUtils
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream

from kstream.batch_time import Duration, Time
from kstream.conf import Settings
from kstream.dstream.graph import DStreamGraph
from kstream.dstream.ports import InputServices
from kstream.offsets.offset_range import Partition
from kstream.testing import ManualClock
from tests.fakes import FakeRDD
from tests.kstream_kafka.fakes import FakeClient

BROKERS = {"bootstrap.servers": "h:1"}
Logs = dict[Partition, tuple[int, int]]


class FakeHost:
    """What a stream asks of its context, without Spark."""

    def __init__(self, conf: dict[str, str] | None = None, batch_ms: int = 1000) -> None:
        self.settings = Settings(_Conf(conf or {}))
        self.graph = DStreamGraph(Duration(batch_ms))

    @property
    def sparkContext(self) -> Any:
        raise AssertionError("planning must not need Spark")

    def check_can_add(self, what: str) -> None:
        pass


@dataclass
class _Conf:
    values: dict[str, str]

    def get(self, key: str, defaultValue: str | None = None, /) -> str | None:
        return self.values.get(key, defaultValue)


class KafkaInput(DirectKafkaInputDStream):
    """The real planning; the records of a batch are (topic, partition, offset)."""

    def rdd(self, time: Time, plan: KafkaPlan) -> Any:
        return FakeRDD([(r.topic, r.partition, at) for r in plan.ranges for at in range(r.fromOffset, r.untilOffset)])


class Stream:
    """A stream with its cluster and clock, and the order of calls that the core makes."""

    def __init__(
        self, logs: Logs, topics: Any = ("t",), given: Any = None, conf: dict[str, str] | None = None,
        batch_ms: int = 1000, until: Any = None, downtime: str | None = None, spec: Any = None,
        **params: Any,
    ) -> None:  # fmt: skip
        self.client, self.clock, self.time = FakeClient(dict(logs)), ManualClock(), Time(0)
        kafka = {**BROKERS, **{k.replace("_", "."): v for k, v in params.items()}}
        topics = list(topics) if isinstance(topics, tuple) else topics
        host: Any = FakeHost(conf, batch_ms)
        spec = spec or KafkaUtils.createDirectStream(host, topics, kafka, given, untilOffsets=until, downtime=downtime).spec
        self.stream = DirectKafkaInputDStream(host, spec, lambda _params, _retries: self.client, self.clock)

    def start(self) -> Stream:
        self.stream.start(InputServices())
        return self

    def plan(self) -> dict[str, Any]:
        self.time = Time(self.time.milliseconds + 1000)
        return json.loads(json.dumps(self.stream.plan(self.time).encode()))

    def batch(self) -> list[list[Any]]:
        """A whole batch: planned, stored, cursors moved."""
        data = self.plan()
        self.stream.planned(self.time, self.stream.decode(data))
        return data["ranges"]
