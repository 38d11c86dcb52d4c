"""`kstream offsets import` on checkpoints that Structured Streaming writes now, and on every kind of store.

Structured Streaming and its logs are real. Kafka's own source is a jar, so a data source in Python stands for it: its offsets have the
form of Kafka's, `{"topic": {"partition": offset}}`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

from integration.commands import SECONDS, run
from kstream.spark.checkpoint_store import open_checkpoint

STEP = {"0": 5, "1": 6}
BATCHES = 3
GOLDEN = Path(__file__).resolve().parent.parent / "tests" / "cli" / "structured_streaming"


def offsets_after(batches: int) -> dict[str, dict[str, int]]:
    return {"orders": {number: step * batches for number, step in STEP.items()}}


class Orders(DataSource):
    """BATCHES batches, whose offsets look like those of a topic `orders` with two partitions."""

    @classmethod
    def name(cls) -> str:
        return "orders"

    def schema(self) -> str:
        return "value int"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:
        return OrdersReader()


class OrdersReader(DataSourceStreamReader):
    def __init__(self) -> None:
        self.asked = 0

    def initialOffset(self) -> dict[str, Any]:
        return offsets_after(0)

    def latestOffset(self) -> dict[str, Any]:
        self.asked = min(self.asked + 1, BATCHES)
        return offsets_after(self.asked)

    def partitions(self, start: Any, end: Any) -> list[InputPartition]:
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[int]]:
        yield (1,)

    def commit(self, end: Any) -> None:
        return None


@pytest.fixture(scope="module")
def spark(sc: Any) -> SparkSession:
    session = SparkSession(sc)
    session.dataSource.register(Orders)
    return session


def ran(spark: SparkSession, source: str, checkpoint: Path, batch: int) -> str:
    """A query of this source that has committed the batch and was stopped. The path of its checkpoint."""
    rows = spark.readStream.format(source).load()
    query = rows.writeStream.foreachBatch(lambda frame, _: frame.collect()).option("checkpointLocation", str(checkpoint)).start()
    end = time.monotonic() + SECONDS
    try:
        while not (checkpoint / "commits" / str(batch)).exists():
            assert query.exception() is None and time.monotonic() < end, query.exception()
            time.sleep(0.1)
    finally:
        query.stop()
    return str(checkpoint)


@pytest.mark.timeout(180)
def test_the_offsets_of_a_query_that_was_stopped_are_those_after_its_last_batch(spark: SparkSession, tmp_path: Path) -> None:
    query = ran(spark, "orders", tmp_path / "query", BATCHES - 1)
    code, out, err = run("offsets", "import", "--from", query)
    assert code == 0 and json.loads(out) == offsets_after(BATCHES), err
    assert f"batch {BATCHES - 1} is the last one" in err
    (tmp_path / "query" / "commits" / str(BATCHES - 1)).unlink()
    code, out, err = run("offsets", "import", "--from", query)
    assert code == 0 and json.loads(out) == offsets_after(BATCHES - 1) and "Its records are read again" in err
    code, out, _ = run("offsets", "import", "--from", query, "--uncommitted", "skip")
    assert code == 0 and json.loads(out) == offsets_after(BATCHES)


@pytest.mark.timeout(180)
def test_a_query_of_the_rate_source_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    query = ran(spark, "rate", tmp_path / "query", 0)
    code, out, err = run("offsets", "import", "--from", query)
    assert code == 1 and not out and err.startswith(f"kstream: source 0 of {query} is no Kafka source: its offset is ")


@pytest.mark.timeout(300)  # HDFS starts
@pytest.mark.parametrize("kind", ["s3", "hdfs"])
def test_a_checkpoint_on_any_store_is_read(kind: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    server: Any = request.getfixturevalue(kind)
    for key, value in server.environment().items() if kind == "s3" else ():
        monkeypatch.setenv(key, value)
    url = server.url(uuid.uuid4().hex)
    store = open_checkpoint(url)
    for file in sorted(path for path in (GOLDEN / "v1").rglob("*") if path.is_file()):
        store.replace(str(file.relative_to(GOLDEN / "v1")), file.read_bytes())
    code, out, err = run("offsets", "import", "--from", url, environment=server.environment() if kind == "s3" else {})
    assert code == 0 and json.loads(out) == {"orders": {"0": 15, "1": 18}}, err
