"""The messages between continuous tasks and their coordinator on the driver. The bodies are JSON objects.

Tasks send requests, and the driver answers, as receivers do. The command to stop is an answer to `NextTaskCommand`, which the driver holds
back for a while. So no executor needs a port, and a task notices when its driver is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

from kstream.continuous.ports import TaskRun
from kstream.continuous.task_report import TaskReport, positions_of_json
from kstream.offsets.offset_range import Partition
from kstream.rpc import of_body, to_body

REGISTER_TASK: Final = "RegisterTask"
"""task, run, generation → accepted, positions: [[topic, partition, position], …]. A run asks this after it has taken its identity."""
REPORT_EPOCHS: Final = "ReportEpochs"
"""task, run, generation, and the fields of a TaskReport → {}"""
NEXT_TASK_COMMAND: Final = "NextTaskCommand"
"""task, run, generation → command: STOP_TASK, or null"""
TASK_FAILED: Final = "TaskFailed"
"""task, run, generation, error, record: [topic, partition, offset] or null → {}"""
DEREGISTER_TASK: Final = "DeregisterTask"
"""task, run, generation → {}: the run has ended its last epoch"""

STOP_TASK: Final = "StopTask"


class Messenger(Protocol):
    """Sends messages to the driver: an RpcClient, or that of a test. Thread-safe; it blocks."""

    def ask(self, what: str, body: bytes) -> bytes:
        """Send a message and return its answer. RpcError if there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FailedRecord:
    """The record on which the user's function has failed."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}@{self.offset}"


class CoordinatorLink:
    """The client of the coordinator for one run of a task. Thread-safe; every call blocks, and raises the RpcError of the driver."""

    def __init__(self, driver: Messenger, run: TaskRun) -> None:
        self._driver = driver
        self.run = run

    def register(self) -> dict[Partition, int] | None:
        """Ask whether this run may write. The identity of its task must be taken before.

        Returns:
            The partitions of the task, each with the position from which it is read; None if the run is refused.
        """
        answer = self._ask(REGISTER_TASK)
        return positions_of_json(answer["positions"]) if answer["accepted"] else None

    def report(self, report: TaskReport) -> None:
        """Report the epochs since the last report."""
        self._ask(REPORT_EPOCHS, **report.to_json())

    def next_command(self) -> str | None:
        """Wait about a second for a command; None if there is none."""
        return self._ask(NEXT_TASK_COMMAND)["command"]

    def failed(self, error: BaseException, record: FailedRecord | None) -> None:
        """Report the error that ends this run, and the record on which the user's function has failed."""
        place = None if record is None else [record.topic, record.partition, record.offset]
        self._ask(TASK_FAILED, error=f"{type(error).__name__}: {error}", record=place)

    def deregister(self) -> None:
        """Report that the run has ended its last epoch."""
        self._ask(DEREGISTER_TASK)

    def _ask(self, what: str, **fields: Any) -> Mapping[str, Any]:
        run = self.run
        return of_body(self._driver.ask(what, to_body(task=run.task, run=run.run, generation=run.generation, **fields)))
