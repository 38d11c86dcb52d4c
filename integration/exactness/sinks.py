"""The sink of a driver that is killed: a database, or topics of Kafka. One output writes each record exactly once, a naive one does not."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from kstream_kafka import DirectKafkaInputDStream

from integration import commands
from integration.exactness import database, kafka_sink
from integration.exactness.database import NAIVE, ONCE
from integration.exactness.kafka_sink import SINK_PARTITIONS, Code, Written
from integration.kafka_handle import KafkaHandle
from integration.kafka_tools import committed_values

KAFKA = "kafka://"
"""Begins the URL of a sink that is topics of Kafka: kafka://host:port."""
STANDS = "stand as an earlier try has written them"
"""What an audit says of partitions of a batch that was accepted."""

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


def write_to(stream: DirectKafkaInputDStream, url: str, code: Code | None = None) -> None:
    """Write the places of a stream by both outputs. `code`: what becomes of them on their way to Kafka."""
    if url.startswith(KAFKA):
        kafka_sink.write_to(stream, url.removeprefix(KAFKA), code or Code())
    else:
        database.write_to(stream.map(lambda kv: kv[1]), url)


def rows(url: str, table: str) -> Counter[str]:
    """How often each place is in a table, or in a topic."""
    if url.startswith(KAFKA):
        return kafka_sink.rows(kafka_sink.written(url.removeprefix(KAFKA), table))
    return database.rows(url, table)


def records_of(url: str) -> list[Written]:
    """The records of the topic that is written exactly once."""
    return kafka_sink.written(url.removeprefix(KAFKA), ONCE)


def places(fed: Mapping[int, int]) -> set[str]:
    """The places of so many records of each partition."""
    return {f"{partition}:{offset}" for partition, count in fed.items() for offset in range(count)}


def breaches_of(url: str, wanted: Collection[str], accepts: bool = False) -> list[str]:
    """What is wrong with the rows that are written exactly once: each place that was fed is to be there once, and an audit is to say so.

    `accepts`: whether half-written batches were accepted. Of these the audit says that it cannot know.
    """
    once = rows(url, ONCE)
    missing, unknown = set(wanted) - once.keys(), once.keys() - set(wanted)
    wrong = {
        f"{len(missing)} places are not in the sink, such as {min(missing, default='')}": bool(missing),
        f"{len(unknown)} places are in the sink that nobody has sent, such as {min(unknown, default='')}": bool(unknown),
        f"{once.total() - len(once)} rows are there a second time": once.total() > len(once),
    }
    breaches = [words for words, breached in wrong.items() if breached]
    return breaches + _breaches_of_audit(url.removeprefix(KAFKA), accepts) if url.startswith(KAFKA) else breaches


def breaches_of_console(url: str) -> list[str]:
    """How what kafka-console-consumer prints of committed records differs from what confluent-kafka reads of them."""
    once, found = rows(url, ONCE), kafka_sink.rows(map(Written.of, committed_values(url.removeprefix(KAFKA), ONCE)))
    words = f"kafka-console-consumer prints {found.total()} places, and these are not the {once.total()} of the verdict"
    return [] if found == once else [words]


def _breaches_of_audit(bootstrap: str, accepts: bool) -> list[str]:
    """What `kstream audit` says, if it is not that everything is proved, and if it is not about a batch that was accepted."""
    code, said, error = commands.run("audit", f"kafka {ONCE}", "--bootstrap", bootstrap, "--json")
    if not said:
        return [f"kstream audit ended with {code}", *error.splitlines()]
    words = [finding["words"] for finding in json.loads(said)["findings"]]
    left = [line for line in words if not (accepts and STANDS in line)]
    return [f"kstream audit ended with {code}", *left] if left or (code and not words) else []


def repeats_of_the_naive(url: str) -> int:
    """How many rows of the naive output are there a second time. None means that no kill met a batch in the middle."""
    naive = rows(url, NAIVE)
    return naive.total() - len(naive)
