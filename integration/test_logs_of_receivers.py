"""A receiver's write-ahead log on a real HDFS and on an S3 server, written and read by the workers themselves."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from integration.hdfs_cluster import Hdfs
from integration.received.campaign import Campaign
from integration.received.processes import children, commands, parent_of
from integration.s3_server import S3Process
from kstream.conf import Settings
from kstream.receiver.block_reading import ReceiverLogs
from kstream.spark.checkpoint_store import open_checkpoint, open_checkpoint_to_write
from kstream.spark.receivers import place_of
from kstream.wal import WriteAheadLogRecordHandle

if TYPE_CHECKING:
    from pyspark import SparkContext

_PATIENCE_S = 240.0
LOG = "receivedData/0"
ROLLING = {"spark.streaming.receiver.writeAheadLog.rollingIntervalSecs": "1"}


@dataclass
class Store:
    kind: str
    url: str
    environment: dict[str, str]


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Store:
    where: S3Process | Hdfs = request.getfixturevalue(request.param)
    environment = where.environment() if isinstance(where, S3Process) else {}
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    return Store(request.param, where.url(f"received/{uuid.uuid4().hex}"), environment)


def wait(what: Callable[[], Any], patience: float = _PATIENCE_S) -> Any:
    end = time.monotonic() + patience
    while not (found := what()):
        assert time.monotonic() < end, "what was waited for never happened"
        time.sleep(0.1)
    return found


def gateways(pid: int) -> list[int]:
    """The JVMs of the workers below a driver, told by their main class."""
    below = set(children(pid))
    return [child for child, command in commands() if child in below and "py4j.GatewayServer" in command]


@pytest.mark.timeout(900)
def test_what_was_acknowledged_outlives_the_driver_and_old_files_of_the_log_go(store: Store, tmp_path: Path) -> None:
    """The driver is killed with its executors; what their blocks held is read from the log by the next ones' workers."""
    files = open_checkpoint(store.url)
    campaign = Campaign(tmp_path / "job", 11, executors=2, checkpoint=store.url, environment=store.environment, conf=ROLLING)
    try:
        first = wait(lambda: files.list(LOG))[0]
        campaign.source.wait(lambda source: source.acked > 1000, _PATIENCE_S)
        jvms = gateways(campaign.driver.process.pid)
        assert len(jvms) == (store.kind == "hdfs"), "the receiver's worker writes by one, and blocks are read from the stores"
        campaign.meet("driver")
        assert not [pid for pid, _command in commands() if pid in jvms]
        wait(lambda: first not in files.list(LOG))  # while it runs
        verdict = campaign.finish()
    finally:
        campaign.close()
    print(store.kind, verdict, files.list(LOG))
    assert verdict.breaches == [] and verdict.kills == {"driver": 1}
    assert files.list(LOG), "the newest file stays"


@pytest.mark.timeout(600)
def test_records_are_read_by_their_handles_in_any_process_also_when_their_writer_is_dead(
    store: Store, sc: SparkContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer never closes the log: it is killed, and a JVM of its own with it."""
    for key, value in store.environment.items():
        monkeypatch.setitem(sc.environment, key, value)
    place = place_of(open_checkpoint_to_write(store.url, Settings({})), False)
    assert place is not None
    logs = ReceiverLogs((), place)
    records = [b"%d" % number * 1000 for number in range(30)]

    def write(_nothing: int) -> tuple[int, list[WriteAheadLogRecordHandle]]:
        log = logs.open(0)
        return os.getpid(), [log.write(record, 1000) for record in records]

    [(writer, handles)] = sc.parallelize([0], 1).map(write).collect()
    assert [logs.read(handle) for handle in handles] == records
    assert len(open_checkpoint(store.url).list(LOG)) == (1 if store.kind == "hdfs" else len(records))
    jvms = gateways(os.getpid())
    assert len(jvms) == (store.kind == "hdfs")
    os.kill(writer, signal.SIGKILL)
    wait(lambda: not set(jvms) & {pid for pid, _command in commands()})
    assert [logs.read(handle) for handle in handles] == records
    assert sc.parallelize(handles, 2).map(logs.read).collect() == records
    workers = {parent_of(jvm) for jvm in gateways(os.getpid())}
    for jvm in gateways(os.getpid()):
        os.kill(jvm, signal.SIGKILL)
    wait(lambda: not workers & set(children(os.getpid())))  # or Spark may give a task to one that is about to end
    assert sc.parallelize(handles, 2).map(logs.read).collect() == records, "a worker without its JVM is none"
