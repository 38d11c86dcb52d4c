"""What a worker of each executor is asked about the checkpoint and the brokers, by `kstream doctor --spark` and before the first batch.

An executor can have a directory of the same path that is another one. So the worker first looks for a file that the driver has written.
"""

from __future__ import annotations

import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from kstream.connectors import ConnectorTools
from kstream.errors import KStreamError, one_line
from kstream.storage import FileStore, StorePlace, place_for_workers

Answer = tuple[str, str]
"""What was asked about, and what is wrong, in words; "" if all is well."""
CHECKPOINT = "checkpoint"
OF_CHECKPOINT = (
    "The executors write state: give the job a checkpoint on an object store, or in a directory that all machines mount. "
    "On an object store the executors need its keys, too: spark.executorEnv.…"
)
"""The remedy for executors that do not reach the checkpoint."""


@dataclass(frozen=True, slots=True)
class StreamConnection:
    """A stream of a checkpoint: its number, the tools of its connector, its connection parameters, and its newest plan data."""

    number: int
    tools: ConnectorTools
    parameters: Mapping[str, Any]
    data: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ExecutorQuestions:
    """Questions to a worker; pickled into a task.

    Attributes:
        place: how workers open the store of the checkpoint; None to ask nothing about it.
        probe: the name of a file that the driver has written there.
        streams: the streams whose brokers the worker asks.
    """

    place: StorePlace | None = None
    probe: str = ""
    streams: Sequence[StreamConnection] = ()

    def answers(self) -> list[Answer]:
        """Return an answer for the checkpoint and one for each stream. Runs in a worker. Blocks on the store and the brokers."""
        return list(self._answers())

    def _answers(self) -> Iterator[Answer]:
        if self.place is not None:
            yield CHECKPOINT, _trouble_with_store(self.place, self.probe)
        for stream in self.streams:
            yield f"stream {stream.number}", _trouble_with_brokers(stream)


@contextmanager
def questions_about(store: FileStore, streams: Sequence[StreamConnection] = ()) -> Generator[ExecutorQuestions]:
    """Yield the questions about a checkpoint and its streams. During the body the checkpoint has a file of the driver. Blocks on the store.

    Where only the driver reads and writes state (HDFS, memory), and where the driver itself cannot write, nothing is asked about the store.
    """
    place = place_for_workers(store, single_writer=True)
    probe = f"probe-{uuid.uuid4().hex}"
    try:
        if place is not None:
            place.write(probe, b"probe")
    except KStreamError:  # the start, or the check of the store, tells it
        place = None
    try:
        yield ExecutorQuestions(place, probe, streams)
    finally:
        if place is not None:
            with suppress(KStreamError):
                store.delete(probe)


def _trouble_with_store(place: StorePlace, probe: str) -> str:
    """Read the driver's file, then write, read and delete one as a task does with state. Return what is wrong; "" if nothing."""
    mine = f"{probe}-{uuid.uuid4().hex[:8]}"
    try:
        store = place.open()
        if not store.exists(probe):
            return f"{store.path(probe)}, which the driver has just written, is not there: it is another directory"
        place.write(mine, b"probe")
        if store.read(mine) != b"probe":
            return f"{store.path(mine)} was written and has another content"
        store.delete(mine)
    except Exception as e:  # a client library may raise anything
        return one_line(e)
    return ""


def _trouble_with_brokers(stream: StreamConnection) -> str:
    """Look whether the stream could read on, as `kstream doctor` does on the driver. Return what is wrong; "" if nothing."""
    try:
        findings = stream.tools.examine(stream.parameters, stream.data)
    except Exception as e:  # a client library may raise anything
        return one_line(e)
    return "; ".join(f"{finding.name}: {' '.join(finding.seen.split())}" for finding in findings if finding.verdict == "failed")
