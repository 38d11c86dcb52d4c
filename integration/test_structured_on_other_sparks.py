"""`format("kstream")` on the oldest Spark that it knows, and with event time: the rows of Spark's own Kafka source.

The two cells are this Spark, in `test_structured.py`, and 4.0, here, with the core of the same queries. Other versions, and all queries:
`python -m integration.structured_differential --spark 4.2.0`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from integration.benchmarks.jvm_parts import OLDER
from integration.kafka_broker import KafkaBroker
from integration.structured_differential import QUERIES, STREAMS, Topics, difference, event_time, events, made_topics
from integration.structured_peer import Ask, running_peer
from integration.structured_queries import rows_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeTopic = Callable[..., str]
Queries = Mapping[str, Callable[[Topics], dict[str, str]]]


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """Runs a query on the older Spark, with its own source or with this one."""
    with running_peer(tmp_path_factory.mktemp("peer"), OLDER) as ask:
        yield ask


@pytest.fixture(scope="module")
def of_events(kafka: KafkaBroker) -> tuple[str, str]:
    return events(kafka)


@pytest.mark.parametrize("name", ["windows", "distinct within the watermark", "a left join of two streams"])
def test_a_stream_with_a_watermark_has_the_rows_of_sparks_own_source(
    spark: SparkSession, ask: Ask, kafka: KafkaBroker, of_events: tuple[str, str], name: str
) -> None:
    query = event_time(kafka, of_events, name)
    expected = ask(query)
    assert expected and rows_of(spark, "kstream", query) == expected


BATCHES = ("headers", "a pattern", "between offsets", "between times", "committed transactions", "a log that was cut")
CORE = [
    *((QUERIES, name) for name in BATCHES),
    *((STREAMS, name) for name in ("all records", "from offsets", "from a time", "committed transactions")),
]


@pytest.fixture(scope="module")
def topics(kafka: KafkaBroker) -> Iterator[Topics]:
    made = made_topics(kafka)
    yield made
    made.writer.abort_transaction(30)


def on_older(ask: Ask) -> Ask:
    """Runs a query on the older Spark with this source."""
    return lambda query: ask({**query, "source": "kstream"})


@pytest.mark.parametrize(("queries", "name"), CORE, ids=[f"{'stream' if of is STREAMS else 'batch'}: {name}" for of, name in CORE])
def test_an_older_spark_has_the_rows_of_its_own_source(ask: Ask, kafka: KafkaBroker, topics: Topics, queries: Queries, name: str) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, **queries[name](topics)}
    query = {"options": options, "stream": queries is STREAMS}
    assert difference(query, on_older(ask), ask, OLDER) == ""


def test_an_older_spark_ends_a_stream_with_a_limit_after_one_batch_as_documented(ask: Ask, kafka: KafkaBroker, topics: Topics) -> None:
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topics.other, "startingOffsets": "earliest"}
    query = {"options": {**options, "maxOffsetsPerTrigger": "6"}, "stream": True}
    assert difference(query, on_older(ask), ask, OLDER) == ""


@pytest.mark.parametrize("is_stream", [False, True], ids=["batch", "stream"])
def test_a_schema_selects_columns_on_an_older_spark(ask: Ask, kafka: KafkaBroker, topic: MakeTopic, is_stream: bool) -> None:
    t = topic(1)
    kafka.produce(t, [("k", f"v{i}", 0) for i in range(5)])
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "earliest"}
    query = {"source": "kstream", "schema": "value BINARY, offset BIGINT", "options": options, "stream": is_stream}
    assert ask(query) == [[f"v{i}", i] for i in range(5)]


def test_a_query_of_an_older_spark_goes_on_in_this_one_and_back(
    spark: SparkSession, ask: Ask, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    t = topic(2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": t, "startingOffsets": "earliest"}
    query = {"options": options, "stream": True, "checkpoint": str(tmp_path / "checkpoint")}
    lives: list[Ask] = [lambda query: ask({**query, "source": "kstream"}), lambda query: rows_of(spark, "kstream", query)]
    for life, run in enumerate(lives * 2):
        kafka.produce(t, [(None, f"{life}", p) for p in range(2) for _ in range(5)])
        assert [row[3:5] for row in run(query)] == [[p, 5 * life + at] for p in range(2) for at in range(5)], f"life {life}"
