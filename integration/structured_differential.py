"""Queries of `format("kstream")` and of Spark's own Kafka source on topics with all kinds of records: their rows must be equal."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import Producer, TopicPartition

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET

NOON = 1_700_000_000_000


# -- topics


@dataclass
class Topics:
    """Topics with all kinds of records.

    Attributes:
        plain: three partitions with nulls, empty values, all bytes, and headers.
        other: one partition of text.
        transactions: one partition: five records committed, five aborted, five committed, five of an open transaction.
        cut: two partitions of fifty, of which the first has lost twenty.
    """

    plain: str
    other: str
    transactions: str
    cut: str
    writer: Producer
    """Has the open transaction."""


def made_topics(kafka: KafkaBroker) -> Topics:
    """Create the topics. The caller aborts the transaction of `writer`."""
    prefix = f"q-{uuid.uuid4().hex[:8]}"
    settings = {"transactional.id": prefix, "transaction.timeout.ms": 600_000}
    writer = Producer({"bootstrap.servers": kafka.bootstrap, **settings, **QUIET})
    made = Topics(*(f"{prefix}-{name}" for name in ("plain", "other", "transactions", "cut")), writer)
    for name, partitions in ((made.plain, 3), (made.other, 1), (made.transactions, 1), (made.cut, 2)):
        kafka.create_topic(name, partitions)
    plain = Producer({"bootstrap.servers": kafka.bootstrap, **QUIET})
    for i in range(60):
        value = [b"value %d" % i, b"", None, bytes(range(256))][i % 4]
        headers: list[Any] = [[], [("a", b"1"), ("a", None), ("b", b"")], None][i % 3] or []
        key = None if i % 5 == 0 else b"key %d" % i
        plain.produce(made.plain, value, key, partition=i % 3, timestamp=NOON + i * 1000, headers=headers)
    kafka.produce(made.other, [(f"k{i}", f"v{i}", 0, NOON + i) for i in range(10)])
    kafka.produce(made.cut, [(None, f"{p}:{i}", p) for p in range(2) for i in range(50)])
    assert plain.flush(30) == 0
    remove(kafka, made.cut, 0, 20)
    writer.init_transactions(30)
    for end in ("commit", "abort", "commit", "open"):
        writer.begin_transaction()
        for i in range(5):
            writer.produce(made.transactions, f"{end} {i}", partition=0)
        writer.flush(30)
        {"commit": writer.commit_transaction, "abort": writer.abort_transaction}.get(end, int)()
    return made


def events(kafka: KafkaBroker, records: int = 120) -> tuple[str, str]:
    """Create two topics of events: each key is in one partition, every seventh event is a minute late; the second has half of the keys."""
    made = (f"e-{uuid.uuid4().hex[:8]}", f"o-{uuid.uuid4().hex[:8]}")
    for topic in made:
        kafka.create_topic(topic, 3)
    late = {i: 60_000 if i % 7 == 6 else 0 for i in range(records)}
    kafka.produce(made[0], [(f"k{i % 9}", f"{i}", i % 3, NOON + i * 1000 - late[i]) for i in range(records)])
    kafka.produce(made[1], [(f"k{i % 9}", f"{i}", i % 3, NOON + i * 1000 + 3_000) for i in range(records) if i % 9 < 5])
    return made


def remove(kafka: KafkaBroker, topic: str, partition: int, below: int) -> None:
    """Delete the records of a partition below an offset."""
    (removed,) = kafka.admin.delete_records([TopicPartition(topic, partition, below)]).values()
    removed.result(30)


# -- queries


def offsets(topic: str, *each: int) -> str:
    return json.dumps({topic: {str(number): at for number, at in enumerate(each)}})


Query: TypeAlias = dict[str, Any]
"""As `structured_queries` knows it."""
COMMITTED = {"kafka.isolation.level": "read_committed"}
QUERIES: dict[str, Callable[[Topics], dict[str, str]]] = {
    "all records": lambda t: {"subscribe": t.plain},
    "headers": lambda t: {"subscribe": t.plain, "includeHeaders": "true"},
    "two topics": lambda t: {"subscribe": f"{t.other}, {t.plain}"},
    "a pattern": lambda t: {"subscribePattern": t.plain.replace("plain", "(plain|other)")},
    "some partitions": lambda t: {"assign": json.dumps({t.plain: [0, 2]})},
    "between offsets": lambda t: {
        "subscribe": t.plain,
        "startingOffsets": offsets(t.plain, 3, -2, 19),
        "endingOffsets": offsets(t.plain, 5, -1, 20),
    },
    "between times": lambda t: {"subscribe": t.plain, "startingTimestamp": str(NOON + 10_500), "endingTimestamp": str(NOON + 40_000)},
    "from a time of each partition": lambda t: {
        "subscribe": t.plain,
        "startingOffsetsByTimestamp": offsets(t.plain, NOON, NOON + 31_000, NOON + 90_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "to a time of each partition": lambda t: {
        "subscribe": t.plain,
        "endingOffsetsByTimestamp": offsets(t.plain, NOON + 20_000, NOON + 31_000, NOON + 90_000),
    },
    "committed transactions": lambda t: {"subscribe": t.transactions, **COMMITTED},
    "all transactions": lambda t: {"subscribe": t.transactions},
    "a log that was cut": lambda t: {"subscribe": t.cut, "minPartitions": "7"},
    "small tasks": lambda t: {"subscribe": t.plain, "maxRecordsPerPartition": "6"},
}
STREAMS: dict[str, Callable[[Topics], dict[str, str]]] = {
    "all records": lambda t: {"subscribe": t.plain, "startingOffsets": "earliest", "includeHeaders": "true"},
    "few at a time": lambda t: {"subscribe": t.plain, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "7"},
    "from offsets": lambda t: {"subscribe": t.plain, "startingOffsets": offsets(t.plain, 3, -2, -1)},
    "from a time": lambda t: {"subscribePattern": t.plain, "startingTimestamp": str(NOON + 10_500)},
    "committed transactions": lambda t: {"subscribe": t.transactions, "startingOffsets": "earliest", **COMMITTED},
}

_EVENTS = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "30"}
_JOIN = """
    SELECT r.key, r.value AS event, o.value AS other FROM records r {kind} JOIN others o
    ON r.key = o.key AND o.timestamp BETWEEN r.timestamp AND r.timestamp + INTERVAL 10 SECONDS
"""
EVENT_TIME: dict[str, Query] = {
    "windows": {
        "sql": "SELECT CAST(window.start AS STRING), key, count(*), max(offset) FROM records GROUP BY window(timestamp, '10 seconds'), key"
    },
    "sliding windows of each partition": {
        "sql": "SELECT CAST(window.end AS STRING), partition, count(*), sum(CAST(CAST(value AS STRING) AS INT)) FROM records"
        " GROUP BY window(timestamp, '20 seconds', '10 seconds'), partition"
    },
    "sessions": {
        "sql": "SELECT CAST(session_window.end AS STRING), key, count(*) FROM records GROUP BY session_window(timestamp, '12 seconds'), key"
    },
    "distinct within the watermark": {"distinct": ["key"]},
    "a join of two streams": {"sql": _JOIN.format(kind="INNER")},
    "a left join of two streams": {"sql": _JOIN.format(kind="LEFT")},
}
"""Streams of `events`, whose watermark is twenty seconds late: late events are dropped, and the last windows stay open."""


def event_time(kafka: KafkaBroker, of: tuple[str, str], name: str) -> Query:
    """Return a query of EVENT_TIME on these topics."""
    address = {"kafka.bootstrap.servers": kafka.bootstrap}
    query: Query = {**EVENT_TIME[name], "stream": True, "watermark": "20 seconds", "options": {**address, **_EVENTS, "subscribe": of[0]}}
    return {**query, "others": {**address, **_EVENTS, "subscribe": of[1]}} if "others" in query.get("sql", "") else query
