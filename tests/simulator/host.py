"""What streams and jobs ask of Spark, without Spark."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Any

from kstream.batch import Job
from kstream.batch_time import Duration, Time
from kstream.conf import Settings
from kstream.dstream.graph import DStreamGraph


class SimulatedHost:
    """The `StreamHost` of one driver: settings and a graph. There is no SparkContext unless the source gives one (`use_spark`)."""

    def __init__(self, conf: Mapping[str, str], interval_ms: int) -> None:
        self.settings = Settings(dict(conf))
        self.graph = DStreamGraph(Duration(interval_ms))
        self._spark: Any = None
        self._state_rdds: Any = None

    def use_spark(self, spark: Any, state_rdds: Any) -> None:
        """The SparkContext of this driver's streams, and the maker of the states of mapWithState."""
        self._spark, self._state_rdds = spark, state_rdds

    @property
    def recorder(self) -> Any:
        return self.graph.recorder

    @property
    def context(self) -> SimulatedHost:
        return self

    @property
    def sparkContext(self) -> Any:
        return self._given(self._spark)

    @property
    def state_rdds(self) -> Any:
        return self._given(self._state_rdds)

    def _given(self, service: Any) -> Any:
        if service is None:
            raise RuntimeError("a simulated stream has no SparkContext")
        return service

    def check_can_add(self, what: str) -> None:
        """Anything may be added."""


class SimulatedEnvironment:
    """`on_job(job)` is told of every job that is let in."""

    def __init__(self, on_job: Callable[[Job], None]) -> None:
        self._on_job = on_job

    @contextmanager
    def for_job(self, job: Job) -> Generator[None]:
        self._on_job(job)
        yield

    @contextmanager
    def for_generation(self, time: Time) -> Generator[None]:
        yield

    def cancel_all(self) -> None:
        """A job that has begun goes on to its end: so do Spark's tasks when their driver only stands still."""
