"""What an input tells the tasks of an output: Spark's local properties, as they are when the output begins."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kstream.batch import JsonPlan
from kstream.batch_time import Time
from kstream.output import OutputBatch
from tests.fakes import FakeHost, FakeSparkContext
from tests.harness import LogInput


class Telling(LogInput):
    """An input that tells the tasks how many outputs of the batch have begun."""

    begun = 0

    def task_properties(self, time: Time, plan: JsonPlan) -> Mapping[str, str]:
        self.begun += 1
        return {f"begun.{time.milliseconds}": str(self.begun)}


class NotingContext(FakeSparkContext):
    def __init__(self) -> None:
        self.properties: dict[str, str] = {}

    def setLocalProperty(self, name: str, value: str) -> None:
        self.properties[name] = value


def test_each_output_tells_its_tasks_what_is_known_when_it_begins() -> None:
    host: Any = FakeHost({})
    host.sparkContext = NotingContext()
    stream, seen = Telling(host, [1, 2, 3]), list[dict[str, str]]()
    for _ in range(2):
        stream.map(str).foreachRDD(lambda _time, _rdd: seen.append(dict(host.sparkContext.properties)))
    host.graph.initialize(Time(0))
    stream.remember_plan(Time(1000), JsonPlan({"from": 0, "until": 3}))
    jobs = host.graph.generate_jobs(OutputBatch(Time(1000), "nonce", is_first_try=True))
    assert host.sparkContext.properties == {}
    for job in jobs:
        job.run()
    assert seen == [{"begun.1000": "1"}, {"begun.1000": "2"}]
