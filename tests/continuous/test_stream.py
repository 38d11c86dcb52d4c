"""ContinuousStream: what users write, and what is refused where it is written."""

from __future__ import annotations

import pickle
from typing import Any

import pytest

from kstream.continuous.operators import Pipeline
from kstream.continuous.stream import ContinuousOutput, ContinuousStream
from kstream.dstream.dstream import DStream


class Job:
    def __init__(self) -> None:
        self.outputs: list[ContinuousOutput] = []

    def add(self, output: ContinuousOutput) -> None:
        self.outputs.append(output)


@pytest.fixture
def job() -> Job:
    return Job()


def test_operators_run_in_their_order_on_the_records_of_a_chunk(job: Job) -> None:
    seen: list[Any] = []
    pairs = ContinuousStream[str](job.add).flatMap(str.split).filter(str.isdigit).map(lambda word: (word, int(word)))
    pairs.mapValues(lambda n: n + 1).flatMapValues(range).mapPartitions(lambda chunk: sorted(chunk, reverse=True)).foreach(seen.append)
    [output] = job.outputs
    assert list(output.pipeline.compiled()(["a 1", "2"])) == [None] * 5
    assert seen == [("2", 2), ("2", 1), ("2", 0), ("1", 1), ("1", 0)]


def test_records_are_taken_one_at_a_time_so_that_a_failure_is_of_the_record_that_was_taken_last() -> None:
    taken: list[int] = []

    def records() -> Any:
        for i in range(5):
            taken.append(i)
            yield i

    made = Pipeline().then("map", lambda i: 6 // (3 - i)).then("filter", bool).compiled()(records())
    with pytest.raises(ZeroDivisionError):
        list(made)
    assert taken == [0, 1, 2, 3]


def test_a_pipeline_is_sent_to_the_tasks_by_pickle() -> None:
    pipeline = pickle.loads(pickle.dumps(Pipeline().then("map", str.upper).then("filter", str.isalpha)))
    assert list(pipeline.compiled()(["a", "1"])) == ["A"]


def test_each_operator_of_a_DStream_is_there_or_is_refused_with_the_reason(job: Job) -> None:
    stream = ContinuousStream[Any](job.add)
    for name in dir(DStream):
        if not name.startswith("_") and name not in dir(ContinuousStream) and name not in ("context", "name", "setName"):
            with pytest.raises(AttributeError, match=rf"^a continuous stream has no {name}: {name} \w+.* Use a stream of batches for it"):
                getattr(stream, name)
    with pytest.raises(AttributeError, match=r"^a continuous stream has no mpa$"):
        getattr(stream, "mpa")  # noqa: B009


def test_what_is_no_function_is_refused_at_the_call(job: Job) -> None:
    with pytest.raises(TypeError, match=r"^map: a function is needed, not 3"):
        ContinuousStream[Any](job.add).map(3)  # pyright: ignore[reportArgumentType]
    with pytest.raises(TypeError, match=r"^foreach: a function is needed, not None"):
        ContinuousStream[Any](job.add).foreach(None)  # pyright: ignore[reportArgumentType]
