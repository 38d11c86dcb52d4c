"""Kafka as the sink of a driver that is killed: a topic that `saveToKafka` writes, and one that an idempotent producer writes.

A value is `PLACES@VERSION@PARTITION`: the places of the records of the input, the code of which driver has made it, and the partition of
the RDD. So each place is looked for by itself, also behind a reduceByKey, and each partition of a batch tells whose code has written it.
"""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from confluent_kafka import Consumer, Producer, TopicPartition
from kstream_kafka import DirectKafkaInputDStream, KafkaUtils
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from integration.exactness.database import NAIVE, ONCE
from integration.exactness.hooks import Hooked
from kstream import DStream

SINK_PARTITIONS = 3
REDUCED_PARTITIONS = 6
PLACES_OF_A_KEY = 5
"""So many places that follow each other are put together by a reduceByKey, as far as they are in one batch."""
CHANGES = (VALUES, KEYS) = ("values", "keys")
ORDER, OUTPUTS = "order", "outputs"
TWIN = "twin_rows"
"""The topic of a second output, which is written exactly once, too."""
Places: TypeAlias = tuple[str, "list[str]"]
"""A key, and the places that belong to it."""


@dataclass(frozen=True)
class Code:
    """What the code of one driver does with the places before they are written. Pickled into the tasks.

    Attributes:
        is_reduced: whether a reduceByKey puts places together.
        changes: what the code of each driver makes otherwise than that before: VALUES, KEYS and values, the ORDER of records, the order of
            two OUTPUTS, or "".
        version: of the code; 0 if it does not change.
        keeps: whether what is written of a half-written batch stands, whatever differs.
        is_frame: whether a DataFrame of each batch is written. Its code does not change.
    """

    is_reduced: bool = False
    changes: str = ""
    version: int = 0
    keeps: bool = False
    is_frame: bool = False

    def key(self, record: Places) -> str | None:
        """Return the key of a record in Kafka. The records of the plainest job have none."""
        if not (self.is_reduced or self.changes):
            return None
        return f"{self.version}-{record[0]}" if self.changes == KEYS else record[0]

    def value(self, record: Places) -> str:
        task, version = TaskContext.get(), self.version if self.changes in CHANGES else 0
        return f"{' '.join(sorted(record[1]))}@{version}@{task.partitionId() if task else 0}"


class Written(NamedTuple):
    """A record of an output topic."""

    places: tuple[str, ...]
    version: int
    partition: int

    @staticmethod
    def of(value: str) -> Written:
        places, version, partition = value.split("@")
        return Written(tuple(places.split(" ")), int(version), int(partition))


def produce_naively(bootstrap: str, values: Iterator[str]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(NAIVE, value)
        producer.poll(0)
    assert producer.flush(60) == 0


def group_of(place: str) -> str:
    """The key by which a reduceByKey puts places together."""
    partition, offset = place.split(":")
    return f"{partition}:{int(offset) // PLACES_OF_A_KEY}"


def write_to(source: DirectKafkaInputDStream, bootstrap: str, code: Code) -> None:
    """Write the places of a stream to both topics."""
    stream: DStream[str] = source.map(lambda kv: kv[1])
    records: DStream[Places] = stream.map(lambda place: (group_of(place) if code.is_reduced else place, [place]))
    if code.is_reduced:
        records = records.reduceByKey(operator.add, REDUCED_PARTITIONS)
    if code.changes == ORDER and code.version % 2:
        records = records.mapPartitions(lambda these: reversed(list(these)))
    value, topics = Hooked(os.getpid(), code.value), [ONCE, TWIN] if code.changes == OUTPUTS else [ONCE]
    records.foreachRDD(lambda rdd: rdd.map(value).foreachPartition(partial(produce_naively, bootstrap)))
    if code.is_frame:
        source.foreachBatch(partial(write_frame, bootstrap, code.is_reduced), outputs=[f"kafka {ONCE}"])
        return
    for topic in topics if code.version % 2 else reversed(topics):
        kafka, if_changed = {"bootstrap.servers": bootstrap}, "keep" if code.keeps else "fail"
        records.saveToKafka(topic, kafka, key=code.key, value=value, outputChanged=if_changed)


def write_frame(bootstrap: str, is_reduced: bool, df: DataFrame, _batch_id: int) -> None:
    """Write the places of a batch as a DataFrame. `is_reduced`: whether a shuffle puts places together."""
    place = "CAST(value AS STRING)"
    if is_reduced:
        group = f"concat(partition, ':', CAST(offset / {PLACES_OF_A_KEY} AS INT))"
        df = df.groupBy(F.expr(f"{group} AS key")).agg(F.expr(f"array_join(sort_array(collect_list({place})), ' ') AS value"))
    frame = df.selectExpr(*(["key"] if is_reduced else []), f"concat({place}, '@0@', spark_partition_id()) AS value")
    KafkaUtils.writeDataFrame(frame, {"bootstrap.servers": bootstrap}, ONCE, name=f"kafka {ONCE}")


def written(bootstrap: str, topic: str) -> list[Written]:
    """The records of a topic, for a reader of committed ones."""
    reader: Any = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_committed", "enable.partition.eof": True}
    )
    found: list[Written] = []
    reader.assign([TopicPartition(topic, p, 0) for p in range(SINK_PARTITIONS)])
    left = set(range(SINK_PARTITIONS))
    while left:
        for message in reader.consume(1000, 0.5):
            if message.error() is None:
                found.append(Written.of(message.value().decode()))
            elif message.offset() >= reader.get_watermark_offsets(TopicPartition(topic, message.partition()), timeout=10)[1]:
                left.discard(message.partition())
    reader.close()
    return found


def rows(records: Iterable[Written]) -> Counter[str]:
    """How often each place is in these records."""
    return Counter(place for record in records for place in record.places)
