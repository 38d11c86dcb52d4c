"""Queries of `format("kstream")` and of Spark's own Kafka source on topics with all kinds of records: their rows must be equal.

    python -m integration.structured_differential                  # all queries, on the Spark of this environment
    python -m integration.structured_differential --spark 4.2.0    # on that Spark, which is fetched

`integration/test_structured.py` runs `QUERIES` and `STREAMS`, `integration/test_structured_on_other_sparks.py` some of them and of
`EVENT_TIME`. There is one difference that docs/structured.md promises, on Sparks before 4.2: see `in_single_batches`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pyspark
from confluent_kafka import Producer, TopicPartition

from integration.kafka_broker import KafkaBroker, running_broker
from integration.kafka_handle import QUIET
from integration.structured_peer import Ask, running_peer
from integration.structured_queries import rows_of
from kstream.spark.java import ensure_java

NOON = 1_700_000_000_000
SUMMER_ENDS = 1_699_163_100_000
"""An hour and a quarter before New York turns its clocks back."""
COMPACTED = {"cleanup.policy": "compact", "segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "86400000"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


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


@dataclass
class MoreTopics:
    """Topics of the queries that run by hand.

    Attributes:
        compacted: a log that the cleaner has been through: of the offsets [0, 16) 5, 10–14 and the tombstone 15 are left.
        emptied: two partitions, of which the first has lost all of its records, and the second never had one.
        stamped: its records have the time of the broker.
        codecs: a batch of records by each codec.
        long: three records of 900 kB.
        many: twenty partitions of ten records.
        autumn: a record every ten minutes, while New York turns its clocks back.
        aborted: ends with an aborted transaction.
    """

    compacted: str
    emptied: str
    stamped: str
    codecs: str
    long: str
    many: str
    autumn: str
    aborted: str


def more_topics(kafka: KafkaBroker) -> MoreTopics:
    """Create the topics. Blocks until the cleaner has been through one, 15 s or more."""
    prefix = f"m-{uuid.uuid4().hex[:8]}"
    names = ("compacted", "emptied", "stamped", "codecs", "long", "many", "autumn", "aborted")
    made = MoreTopics(*(f"{prefix}-{name}" for name in names))
    of_broker = {"message.timestamp.type": "LogAppendTime"}
    kafka.create_topic(made.compacted, 1, COMPACTED)
    kafka.create_topic(made.stamped, 1, of_broker)
    for name, partitions in ((made.emptied, 2), (made.codecs, 1), (made.long, 1), (made.many, 20), (made.autumn, 1), (made.aborted, 1)):
        kafka.create_topic(name, partitions)
    rounds = [("abcde", 1), (["kept", "a", "gone", "b", "c"], 2), ("abcde", 3)]
    kafka.produce(made.compacted, [(key, f"{key}{n}", 0) for keys, n in rounds for key in keys] + [("gone", None, 0)])
    time.sleep(0.2)  # the segment's age, by the broker's clock
    kafka.produce(made.compacted, [("roll", "x", 0)])  # ends the segment: the newest one is never compacted
    kafka.produce(made.emptied, [(None, f"{i}", 0) for i in range(5)])
    remove(kafka, made.emptied, 0, 5)
    kafka.produce(made.stamped, [(None, f"{i}", 0, NOON) for i in range(5)])
    for codec in CODECS:
        producer = Producer({"bootstrap.servers": kafka.bootstrap, "compression.type": codec, "linger.ms": 50, **QUIET})
        for i in range(50):
            producer.produce(made.codecs, f"{codec} {i} {'x' * 100}", f"{i}", 0)
        assert producer.flush(30) == 0
    kafka.produce(made.long, [(None, f"{i}" * 900_000, 0) for i in range(3)])
    kafka.produce(made.many, [(f"{i}", f"{p}", p) for p in range(20) for i in range(10)])
    kafka.produce(made.autumn, [(None, f"{i}", 0, SUMMER_ENDS + i * 600_000) for i in range(20)])
    writer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": prefix, **QUIET})
    writer.init_transactions(30)
    for end in (writer.commit_transaction, writer.abort_transaction):
        writer.begin_transaction()
        for i in range(5):
            writer.produce(made.aborted, f"{i}", partition=0)
        writer.flush(30)
        end()
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


BY_HAND: dict[str, Callable[[Topics, MoreTopics], Query]] = {
    "text": lambda t, _: {
        "options": {"subscribe": t.other},
        "sql": "SELECT offset, CAST(key AS STRING), upper(CAST(value AS STRING)), crc32(value) FROM records",
    },
    "nulls": lambda t, _: {
        "options": {"subscribe": t.plain},
        "sql": "SELECT partition, count(*), count(key), count(value), sum(length(value)), max(offset) FROM records GROUP BY partition",
    },
    "tombstones": lambda t, _: {"options": {"subscribe": t.plain}, "sql": "SELECT partition, offset, key FROM records WHERE value IS NULL"},
    "each header": lambda t, _: {
        "options": {"subscribe": t.plain, "includeHeaders": "true"},
        "sql": "SELECT partition, offset, at, h.key, base64(h.value) FROM records LATERAL VIEW posexplode(headers) AS at, h",
    },
    "no headers": lambda t, _: {
        "options": {"subscribe": t.plain, "includeHeaders": "true"},
        "sql": "SELECT partition, offset, headers IS NULL, size(headers) FROM records",
    },
    "the days of Kolkata": lambda t, _: {
        "options": {"subscribe": t.plain},
        "zone": "Asia/Kolkata",
        "sql": "SELECT partition, offset, CAST(timestamp AS STRING), CAST(date(timestamp) AS STRING), hour(timestamp) FROM records",
    },
    "an hour that New York has twice": lambda _, m: {
        "options": {"subscribe": m.autumn},
        "zone": "America/New_York",
        "sql": "SELECT hour(window.start), unix_micros(window.start), count(*) FROM records GROUP BY window(timestamp, '1 hour')",
    },
    "a start after the end": lambda t, _: {
        "options": {
            "subscribe": t.plain,
            "startingOffsets": offsets(t.plain, 10, 3, 20),
            "endingOffsets": offsets(t.plain, 12, -1, 20),
        }
    },
    "offsets of some partitions": lambda t, _: {
        "options": {
            "assign": json.dumps({t.plain: [1], t.other: [0]}),
            "startingOffsets": json.dumps({t.plain: {"1": 4}, t.other: {"0": -2}}),
            "endingOffsets": json.dumps({t.plain: {"1": 9}, t.other: {"0": 7}}),
        }
    },
    "from a time to an offset": lambda t, _: {
        "options": {"subscribe": t.plain, "startingTimestamp": str(NOON + 8_000), "endingOffsets": offsets(t.plain, 7, 9, -1)}
    },
    "a time before all records": lambda t, _: {"options": {"subscribe": t.plain, "startingTimestamp": "1"}},
    "what compaction left": lambda _, m: {"options": {"subscribe": m.compacted}},
    "from one gap of a compacted log to another": lambda _, m: {
        "options": {"subscribe": m.compacted, "startingOffsets": offsets(m.compacted, 3), "endingOffsets": offsets(m.compacted, 8)}
    },
    "a compacted log in tasks of three": lambda _, m: {"options": {"subscribe": m.compacted, "maxRecordsPerPartition": "3"}},
    "from the middle of an aborted transaction": lambda t, _: {
        "options": {"subscribe": t.transactions, "startingOffsets": offsets(t.transactions, 8), **COMMITTED}
    },
    "to the marker of a transaction": lambda t, _: {
        "options": {"subscribe": t.transactions, "endingOffsets": offsets(t.transactions, 6), **COMMITTED}
    },
    "transactions in tasks of one offset": lambda t, _: {
        "options": {"subscribe": t.transactions, "maxRecordsPerPartition": "1", **COMMITTED}
    },
    "an aborted transaction at the end": lambda _, m: {"options": {"subscribe": m.aborted, **COMMITTED}},
    "a partition without records": lambda t, m: {"options": {"subscribe": f"{m.emptied},{t.other}"}},
    "times of the broker": lambda _, m: {"options": {"subscribe": m.stamped}},
    "all codecs": lambda _, m: {"options": {"subscribe": m.codecs, "minPartitions": "4"}},
    "long records": lambda _, m: {
        "options": {"subscribe": m.long},
        "sql": "SELECT offset, length(value), crc32(value) FROM records",
    },
    "many partitions in more tasks": lambda _, m: {"options": {"subscribe": m.many, "minPartitions": "45"}},
    "small tasks, and many": lambda t, _: {"options": {"subscribe": t.plain, "minPartitions": "20", "maxRecordsPerPartition": "7"}},
}  # fmt: skip
STREAMS_BY_HAND: dict[str, Callable[[Topics, MoreTopics], dict[str, str]]] = {
    "headers from offsets": lambda t, _: {"subscribe": t.plain, "startingOffsets": offsets(t.plain, 0, 19, 7), "includeHeaders": "true"},
    "some partitions": lambda t, _: {"assign": json.dumps({t.plain: [2, 0]}), "startingOffsets": "earliest"},
    "a limit from below": lambda t, _: {"subscribe": t.plain, "startingOffsets": "earliest", "minOffsetsPerTrigger": "1000"},
    "from before the begin of a log": lambda t, _: {
        "subscribe": t.cut, "startingOffsets": offsets(t.cut, 5, 0), "failOnDataLoss": "false"
    },
    "a compacted log, few at a time": lambda _, m: {
        "subscribe": m.compacted, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "4"
    },
    "transactions, few at a time": lambda t, _: {
        "subscribe": t.transactions, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "3", **COMMITTED
    },
    "from a time of each partition": lambda t, _: {
        "subscribe": t.plain,
        "startingOffsetsByTimestamp": offsets(t.plain, NOON, NOON + 31_000, NOON + 90_000),
        "startingOffsetsByTimestampStrategy": "latest",
    },
    "many partitions, few at a time": lambda _, m: {"subscribe": m.many, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "33"},
}  # fmt: skip


def all_queries(kafka: KafkaBroker, topics: Topics, more: MoreTopics, of_events: tuple[str, str]) -> dict[str, Query]:
    """Return all queries, by name."""
    address = {"kafka.bootstrap.servers": kafka.bootstrap}
    found: dict[str, Query] = {f"batch: {name}": {"options": make(topics)} for name, make in QUERIES.items()}
    found |= {f"batch: {name}": make(topics, more) for name, make in BY_HAND.items()}
    found |= {f"stream: {name}": {"options": make(topics), "stream": True} for name, make in STREAMS.items()}
    found |= {f"stream: {name}": {"options": make(topics, more), "stream": True} for name, make in STREAMS_BY_HAND.items()}
    found = {name: {**query, "options": {**address, **query["options"]}} for name, query in found.items()}
    return found | {f"event time: {name}": event_time(kafka, of_events, name) for name in EVENT_TIME}


# -- the one difference that is documented

BEFORE_LIMITS = (4, 2)
"""The version of Spark that tells sources of Python of AvailableNow and of its limits."""


def has_single_batches(query: Query, version: str) -> bool:
    """Return whether this query ends after one batch with kstream on that Spark, and goes on with Spark's own source."""
    is_older = tuple(map(int, version.split(".")[:2])) < BEFORE_LIMITS
    return is_older and query.get("stream", False) and "maxOffsetsPerTrigger" in query["options"]


def in_single_batches(query: Query, own: Ask, ask: Ask) -> str:
    """Return what is wrong with a stream with a limit on a Spark before 4.2; "" if it does what docs/structured.md says.

    There AvailableNow ends after one batch of the limit, which has the rows of the first batch of Spark's own source. The query that is
    started again and again has the rows of all batches with records. What a watermark lets go in a batch without records, behind the last
    one, comes with later records.
    """
    first = ask({**query, "fails_after": 1})
    with tempfile.TemporaryDirectory(prefix="checkpoint-") as checkpoint:
        life = {**query, "checkpoint": checkpoint}
        rows = own(life)
        if wrong := unequal(rows, first):
            return f"the first batch has {wrong}"
        batches = 1
        while len(list(Path(checkpoint, "commits").glob("[0-9]*"))) == batches:
            rows += own(life)
            batches += 1
    if batches < 3:
        return "the query reads all in one batch: the difference that docs/structured.md promises before Spark 4.2 is gone"
    if ask({**query, "fails_after": batches}) != ask(query):  # one batch more than it had, which has no records
        return f"the query ends after {batches - 1} batches, and Spark's own source has records for more"
    return unequal(sorted(rows, key=json.dumps), sorted(ask({**query, "fails_after": batches - 1}), key=json.dumps))


# -- by hand


def unequal(rows: list[list[Any]], expected: list[list[Any]]) -> str:
    """Return the difference between rows and those of Spark's own source; "" if there is none."""
    if rows == expected:
        return ""
    odd = [row for row in rows if row not in expected], [row for row in expected if row not in rows]
    return f"{len(rows)} rows and not {len(expected)}; too many {odd[0][:3]}, missing {odd[1][:3]}"


def difference(query: Query, own: Ask, ask: Ask, version: str) -> str:
    """Return the difference between both sources on the Spark of that version, in words; "" if there is none or a documented one."""
    try:
        if has_single_batches(query, version):
            return in_single_batches(query, own, ask)
        expected = ask(query)
        return unequal(own(query), expected) if expected else "Spark's own source has no row, so nothing is compared"
    except Exception as e:
        return str(e) or repr(e)


def compare(kafka: KafkaBroker, ask: Ask, own: Ask, version: str, word: str) -> list[str]:
    """Run the queries whose names have this word, on new topics; the differences in words. `version`: of the Spark of this source."""
    topics, found, as_documented = made_topics(kafka), list[str](), 0
    try:
        queries = all_queries(kafka, topics, more_topics(kafka), events(kafka))
        chosen = {name: query for name, query in queries.items() if word in name}
        for name, query in chosen.items():
            began = time.monotonic()
            wrong = difference(query, own, ask, version)
            found += [f"{name}: {wrong[:1000]}"] if wrong else []
            is_single = has_single_batches(query, version)
            as_documented += is_single and not wrong
            verdict = "DIFFERS" if wrong else "as documented" if is_single else "equal"
            print(f"{verdict}  {name}, {time.monotonic() - began:.1f} s", flush=True)
    finally:
        topics.writer.abort_transaction(30)
    print(f"{len(chosen)} queries, {as_documented} of them in single batches, as documented")
    return found


@contextmanager
def this_spark() -> Iterator[Ask]:
    """This source on the Spark of this environment, for the length of a with block."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield lambda query: rows_of(spark, "kstream", query)
    finally:
        spark.stop()


@contextmanager
def both_sources(folder: Path, version: str | None) -> Iterator[tuple[Ask, Ask]]:
    """Spark's own source and this one on the Spark of that version, or this one on that of this environment, for a with block."""
    with running_peer(folder, version) as ask:
        if version is not None:
            yield ask, lambda query: ask({**query, "source": "kstream"})
            return
        with this_spark() as own:
            yield ask, own


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spark", metavar="VERSION", help="of both sources; default that of this environment")
    parser.add_argument("word", nargs="?", default="", help="only queries whose names have it")
    given = parser.parse_args()
    ensure_java()
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with (
        tempfile.TemporaryDirectory(prefix="differential-") as folder,
        both_sources(Path(folder) / "peer", given.spark) as (ask, own),
        running_broker(Path(folder) / "broker") as kafka,
    ):
        found = compare(kafka, ask, own, given.spark or pyspark.__version__, given.word)
    print("\n".join(found) or "no differences")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
