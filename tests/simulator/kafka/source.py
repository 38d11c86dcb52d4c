"""KafkaSource: the real direct stream and the real reader over a simulated cluster, and what must hold of the records."""

from __future__ import annotations

import random
from collections.abc import Collection, Hashable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import LogShrankError, TopicRecreatedError
from kstream_kafka.planning.packing import Packing, groups, pack
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.reader.range_reader import read_splits
from kstream_kafka.source.direct_input_dstream import DirectKafkaInputDStream
from kstream_kafka.source.stream_spec import BY_TIMESTAMP, CATCH_UP, StreamSpec

from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.dstream.input_dstream import InputDStream
from kstream.offsets.offset_range import Partition
from tests.simulator.history import History
from tests.simulator.kafka.clients import SimulatedConsumer, SimulatedDriverClient
from tests.simulator.kafka.cluster import TOPIC, Hazard, SimulatedCluster
from tests.simulator.source import Surroundings

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost

BREAKING = frozenset({Hazard.TRUNCATION, Hazard.REGROWTH, Hazard.DELETION, Hazard.REMAKING})
"""After these a stream often stands still, by design: few schedules have them."""
POLL_MS = 300
Ranges: TypeAlias = tuple[tuple[str, int, int, int], ...]


class KafkaSource:
    """One topic, one to three partitions, read from earliest or latest, with or without a rate, by either policy for downtimes."""

    def __init__(self, rng: random.Random, clock: Clock, hazards: Collection[Hazard] = frozenset(Hazard)) -> None:
        self.cluster = SimulatedCluster(rng.randint(1, 3), clock.time_ms)
        self._hazards = [h for h in Hazard if h in hazards and rng.random() < (0.2 if h in BREAKING else 0.5)]
        self._spec = _spec(rng.choice(["earliest", "latest"]), rng.choice([0, 2500]), rng.choice([CATCH_UP, CATCH_UP, BY_TIMESTAMP]))
        self._packing = rng.choice([Packing(), Packing(max_tasks=1), Packing(max_tasks=2, max_records_per_task=3)])
        self._fetch = rng.choice([1, 3, 100])
        self.conf: Mapping[str, str] = {"spark.streaming.kafka.maxRatePerPartition": rng.choice(["0", "0", "4"])}
        self.planned: dict[tuple[int, Ranges], list[tuple[str, ...]]] = {}
        """(batch time, ranges) → for each plan made of them, the records that were there."""
        for _ in range(rng.randrange(4)):
            self.cluster.produce(rng)

    def make_input(self, host: StreamHost, surroundings: Surroundings) -> InputDStream:
        return SimulatedKafkaInput(host, self, self._spec, surroundings)

    def records(self, rdd: KafkaPlan, surroundings: Surroundings) -> Sequence[Hashable]:
        """Reads as the tasks of a KafkaRDD do, one after the other. A plan stands for its RDD here."""
        found: list[str] = []

        def monotonic() -> float:
            return surroundings.clock.monotonic_ms() / 1000

        for task in pack(rdd.splits, self._packing):
            consumer = SimulatedConsumer(self.cluster, surroundings, self._fetch)
            for group in groups(task):
                for _, messages in read_splits(consumer, group, POLL_MS, monotonic, topic_ids=rdd.topic_ids):
                    found += [message.value().decode() for message in messages]
        return found

    def act(self, rng: random.Random, bad: bool) -> str:
        if bad and self._hazards:
            return self.cluster.meet(rng.choice(self._hazards), rng)
        return self.cluster.produce(rng)

    def heal(self) -> None:
        self.cluster.heal()

    def refuses(self, error: Exception) -> bool:
        return isinstance(error, TopicRecreatedError | LogShrankError)

    def check(self, history: History) -> list[str]:
        from tests.simulator.kafka.checks import violations

        return violations(self.cluster, self.planned, history)


class SimulatedKafkaInput(DirectKafkaInputDStream):
    """The direct stream, with a simulated client, and reads in place of a KafkaRDD. Notes which records each plan means."""

    def __init__(self, host: StreamHost, source: KafkaSource, spec: StreamSpec, surroundings: Surroundings) -> None:
        self._client_here = SimulatedDriverClient(source.cluster, surroundings)
        self._source = source
        super().__init__(host, spec, lambda _params, _retries: self._client_here, surroundings.clock)

    def plan(self, time: Time) -> KafkaPlan:
        made = super().plan(time)
        ranges: Ranges = tuple((r.topic, r.partition, r.fromOffset, r.untilOffset) for r in made.ranges)
        meant = tuple(record.ident for t, p, a, b in ranges for record in self._seen((t, p), b) if a <= record.offset < b)
        self._source.planned.setdefault((time.milliseconds, ranges), []).append(meant)
        return made

    def _seen(self, partition: Partition, until: int) -> list[Any]:
        seen = self._client_here.seen.get(partition, [])
        return seen if seen and seen[-1].offset >= until - 1 else self._source.cluster.logs[partition].records

    def rdd(self, time: Time, plan: KafkaPlan) -> Any:
        return plan


@lru_cache
def _spec(reset: str, metadata_max_age_ms: int, downtime: str) -> StreamSpec:
    params = {"bootstrap.servers": "simulated:9092", "auto.offset.reset": reset, "metadata.max.age.ms": metadata_max_age_ms}
    return StreamSpec(Topics((TOPIC,)), KafkaParams.parse(params), downtime=downtime)
