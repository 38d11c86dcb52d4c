"""The columns of foreachBatch: checked where it is called, kept in the stored graph, asked for in the batch."""

from __future__ import annotations

import json
import pickle
from types import SimpleNamespace
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, restore_input

from kstream.batch_time import Time
from kstream.dstream.recipe import Replay
from kstream.output import OutputBatch
from tests.fakes import FakeHost
from tests.kstream_kafka.stream import BROKERS

BATCH = OutputBatch(Time(1000), "nonce", is_first_try=True)
seen: list[Any] = []


def see(df: Any, batch_id: int) -> None:
    seen.append((df, batch_id))


@pytest.fixture(autouse=True)
def frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """A DataFrame is the names of its columns."""
    seen.clear()
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", object)
    monkeypatch.setattr("kstream_kafka.reader.data_frame.kafka_data_frame", lambda _spark, _reads, columns: list(columns))


def run(host: Any, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "getOrCompute", lambda _time: SimpleNamespace(reads="ranges"))
    for output in host.graph.output_streams:
        job = output.generate_job(BATCH, 0)
        assert job is not None
        job.run()


def test_the_function_gets_the_columns_that_were_asked_for_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    stream.foreachBatch(see, columns=["offset", "value"])
    stream.foreachBatch(see, ("key",))
    stream.foreachBatch(see)
    run(host, stream, monkeypatch)
    whole = ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers"]
    assert seen == [(["offset", "value"], 1000), (["key"], 1000), (whole, 1000)]


def test_a_restored_stream_asks_for_the_columns_of_its_stored_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    KafkaUtils.createDirectStream(host, ["t"], BROKERS).foreachBatch(see, columns=["offset", "value"])
    calls = json.loads(json.dumps(host.recorder.calls))
    functions = pickle.loads(pickle.dumps([function.value for function in host.recorder.functions]))
    made: Any = FakeHost({})
    replay = Replay(made, functions, lambda recipe: restore_input(made, recipe))
    replay.run(calls)
    run(made, replay.streams[0], monkeypatch)
    assert seen == [(["offset", "value"], 1000)]


def test_a_graph_stored_before_there_were_columns_asks_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    host: Any = FakeHost({})
    KafkaUtils.createDirectStream(host, ["t"], BROKERS).foreachBatch(see)
    calls = json.loads(json.dumps(host.recorder.calls))
    assert calls[1]["args"] == [{"function": 0}] and calls[1]["kwargs"] == {}
    made: Any = FakeHost({})
    replay = Replay(made, [see], lambda recipe: restore_input(made, recipe))
    replay.run(calls)
    run(made, replay.streams[0], monkeypatch)
    assert [len(df) for df, _ in seen] == [8]


def test_an_unknown_column_is_refused_where_the_stream_is_defined_and_no_output_is_made() -> None:
    host: Any = FakeHost({})
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    with pytest.raises(ValueError, match=r"^foreachBatch: a Kafka record has no column 'ofset'\. Did you mean 'offset'\?$"):
        stream.foreachBatch(see, columns=["value", "ofset"])
    assert host.graph.output_streams == []
