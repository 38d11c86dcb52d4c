"""An output function has done its work when it returns. One that returns a generator or a coroutine has not, and its batch fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from kstream_kafka import KafkaUtils

from kstream import Time
from kstream.batch import JsonPlan
from kstream.errors import NoRDDError
from kstream.output import OutputBatch
from tests.fakes import FakeHost
from tests.harness import LogInput
from tests.kstream_kafka.stream import BROKERS

BATCH = Time(1000)


def written(_rdd: Any) -> Iterator[int]:
    yield 1


async def written_some_day(_rdd: Any) -> None: ...


async def written_one_by_one(_rdd: Any) -> Any:
    yield 1


NOT_RUN = {
    "generator": written,
    "coroutine": written_some_day,
    "async_generator": written_one_by_one,
    "map": lambda rdd: map(print, rdd.records),
    "filter": lambda rdd: filter(print, rdd.records),
}


def run_output(function: Any, build: Callable[[Any], Any] = lambda stream: stream) -> None:
    """Generate and run the job of one batch, whose output is a lambda that calls the function."""
    host = FakeHost({})
    stream = LogInput(host, [1, 2])
    build(stream).foreachRDD(lambda rdd: function(rdd))
    host.graph.initialize(Time(0))
    stream.remember_plan(BATCH, JsonPlan({"from": 0, "until": 2}))
    (job,) = host.graph.generate_jobs(OutputBatch(BATCH, "nonce", is_first_try=True))
    job.run()


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("returned", NOT_RUN)
def test_an_output_whose_result_stands_for_work_that_nobody_has_done_fails_its_batch(returned: str) -> None:
    with pytest.raises(TypeError, match=rf"^foreachRDD at {__file__}:\d+: the function returned a {returned}, so nothing of its work"):
        run_output(NOT_RUN[returned])


@pytest.mark.parametrize("returned", [None, 3, [1], iter([1]), lambda: None], ids=["None", "number", "list", "iterator", "function"])
def test_any_other_result_of_an_output_is_nobodys_business(returned: object) -> None:
    run_output(lambda rdd: returned)


def test_a_function_of_foreachBatch_that_has_not_run_fails_its_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    host, lazy = FakeHost({}), lambda df, batch_id: (row for row in (df, batch_id))
    stream = KafkaUtils.createDirectStream(host, ["t"], BROKERS)
    monkeypatch.setattr("pyspark.sql.SparkSession.getActiveSession", object)
    monkeypatch.setattr("kstream_kafka.reader.data_frame.kafka_data_frame", lambda _spark, reads, *_: reads)
    stream.foreachBatch(lazy)
    monkeypatch.setattr(stream, "getOrCompute", lambda _time: SimpleNamespace(reads="a DataFrame", context=None))
    (output,) = host.graph.output_streams
    job = output.generate_job(OutputBatch(BATCH, "nonce", is_first_try=True), 0)
    assert job is not None
    with pytest.raises(TypeError, match=r"^foreachBatch at .*the function returned a generator"):
        job.run()


@pytest.mark.filterwarnings("ignore:coroutine .* was never awaited")
@pytest.mark.parametrize("returned", NOT_RUN)
def test_a_transform_whose_result_stands_for_work_that_nobody_has_done_fails_the_batch(returned: str) -> None:
    with pytest.raises(NoRDDError, match=f"the function of transform at .* returned a {returned} for batch {BATCH}: it must return an RDD"):
        run_output(print, lambda stream: stream.transform(lambda rdd: NOT_RUN[returned](rdd)))
