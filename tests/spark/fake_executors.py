"""A SparkContext as far as `kstream.spark.executors` calls it: executors that a test lists, and a count of the calls to the JVM."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

from kstream.spark.executors import Executor


class FakeSparkContext:
    """`executors` are those that live now. `calls` names each call to the JVM; `looked` is set when
    the executors are looked at."""

    def __init__(self, executors: list[Executor], conf: dict[str, str] | None = None, local: bool = False) -> None:
        self.living = executors
        self.conf = conf or {}
        self.local = local
        self.calls: list[str] = []
        self.looked = threading.Event()
        self._jsc = SimpleNamespace(sc=lambda: self)

    def called(self, name: str, answer: Any) -> Any:
        self.calls.append(name)
        if name in ("getExecutorIds", "executorList"):
            self.looked.set()
        return answer

    def getConf(self) -> Any:
        return self.called("getConf", SimpleNamespace(get=self.conf.get, getAll=self.conf.items))

    def accumulator(self, value: Any, _param: Any) -> Any:
        return SimpleNamespace(value=value)

    # -- the SparkContext of the JVM

    def isLocal(self) -> bool:
        return self.called("isLocal", self.local)

    def getExecutorIds(self) -> Any:
        return SimpleNamespace(mkString=lambda comma: self.called("getExecutorIds", comma.join(e.executor_id for e in self.living)))

    def statusStore(self) -> Any:
        return SimpleNamespace(executorList=self.executorList)

    def executorList(self, _active_only: bool) -> Any:
        driver = [] if self.local else [_summary(Executor("driver-host", "driver", 0))]
        rows = [*map(_summary, self.living), *driver]
        return self.called("executorList", SimpleNamespace(size=lambda: len(rows), apply=rows.__getitem__))


def _summary(executor: Executor) -> Any:
    return SimpleNamespace(id=lambda: executor.executor_id, hostPort=lambda: f"{executor.host}:7078", totalCores=lambda: executor.cores)
