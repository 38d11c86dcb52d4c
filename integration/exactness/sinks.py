"""The sink of a driver that is killed: a database, or topics of Kafka. One output writes each record exactly once, a naive one does not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from integration.exactness import database, kafka_sink
from integration.exactness.database import NAIVE, ONCE
from integration.exactness.kafka_sink import SINK_PARTITIONS
from integration.kafka_handle import KafkaHandle
from kstream import DStream

KAFKA = "kafka://"
"""Begins the URL of a sink that is topics of Kafka: kafka://host:port."""


SINKS = (SQLITE, POSTGRESQL, TOPICS) = ("sqlite", "postgresql", "kafka")


@contextmanager
def running_sink(kind: str | None, directory: Path, broker: KafkaHandle) -> Iterator[str]:
    """File or URL of a new sink of that kind, for the length of a with block; "" for none."""
    if kind == POSTGRESQL:
        from integration.postgres_server import running_postgres

        with running_postgres() as postgres:
            yield postgres.url
    elif kind == TOPICS:
        for table in (ONCE, NAIVE):
            broker.create_topic(table, SINK_PARTITIONS)
        yield KAFKA + broker.bootstrap
    else:
        yield str(directory / "sink.db") if kind == SQLITE else ""


def write_to(stream: DStream[str], url: str) -> None:
    """Write a stream of places by both outputs."""
    if url.startswith(KAFKA):
        kafka_sink.write_to(stream, url.removeprefix(KAFKA))
    else:
        database.write_to(stream, url)


def rows(url: str, table: str) -> Counter[str]:
    """How often each place is in a table, or in a topic."""
    return kafka_sink.rows(url.removeprefix(KAFKA), table) if url.startswith(KAFKA) else database.rows(url, table)


def places(fed: Mapping[int, int]) -> set[str]:
    """The places of so many records of each partition."""
    return {f"{partition}:{offset}" for partition, count in fed.items() for offset in range(count)}


def breaches_of(url: str, wanted: Collection[str]) -> list[str]:
    """What is wrong with the rows that are written exactly once: each place that was fed is to be there once, and an audit is to say so."""
    once = rows(url, ONCE)
    missing, unknown = set(wanted) - once.keys(), once.keys() - set(wanted)
    wrong = {
        f"{len(missing)} places are not in the sink, such as {min(missing, default='')}": bool(missing),
        f"{len(unknown)} places are in the sink that nobody has sent, such as {min(unknown, default='')}": bool(unknown),
        f"{once.total() - len(once)} rows are there a second time": once.total() > len(once),
    }
    breaches = [words for words, breached in wrong.items() if breached]
    return breaches + kafka_sink.breaches_of_audit(url.removeprefix(KAFKA)) if url.startswith(KAFKA) else breaches


def repeats_of_the_naive(url: str) -> int:
    """How many rows of the naive output are there a second time. None means that no kill met a batch in the middle."""
    naive = rows(url, NAIVE)
    return naive.total() - len(naive)
