"""`kstream run`: a job from the command line, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import pytest
from kstream_kafka.demo.embedded_broker import EmbeddedBroker
from kstream_kafka.demo.order_feed import OrderFeed

from integration import kstream_run
from integration.kstream_run import SECONDS, stop, wait_for
from integration.received.processes import children_of
from kstream.checkpoint import read_log
from kstream.cli.exit_codes import RunCode
from kstream.cli.supervisor import members_of
from kstream.storage import open_store
from tests.daemon_trace import without_broken_pipes

JOB = """
import json, os
from pathlib import Path

from pyspark import SparkConf

from kstream import StreamingContext
from kstream_kafka import KafkaUtils

OUT = Path(os.environ["JOB_OUT"])


def order_id(record):
    return json.loads(record[1])["order_id"]


def save(time, rdd):
    if (OUT / "broken").exists():
        raise OSError("the sink is broken")
    path = OUT / f"{time.milliseconds}.json"
    path.with_suffix(".tmp").write_text(json.dumps(rdd.map(order_id).collect()))
    os.replace(path.with_suffix(".tmp"), path)


def setup():
    with open(OUT / "setups", "a") as file:
        file.write("setup was called\\n")
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    ssc = StreamingContext(conf.set("spark.streaming.stopGracefullyOnShutdown", "true"), 0.5)
    params = {"bootstrap.servers": os.environ["JOB_BROKER"], "auto.offset.reset": "smallest", "default.api.timeout.ms": 3000}
    KafkaUtils.createDirectStream(ssc, ["orders"], params).foreachRDD(save)
    return ssc
"""


def running(folder: Path, bootstrap: str, *options: str) -> AbstractContextManager[subprocess.Popen[bytes]]:
    """`kstream run` of JOB in `folder`."""
    (folder / "job_orders.py").write_text(JOB)
    (folder / "out").mkdir(exist_ok=True)
    words = ("job_orders:setup", "--checkpoint", str(folder / "checkpoint"), *options)
    return kstream_run.running(folder, *words, JOB_OUT=str(folder / "out"), JOB_BROKER=bootstrap)


def counted(folder: Path) -> list[int]:
    return sorted(i for path in (folder / "out").glob("*.json") for i in json.loads(path.read_text()))


def feed(bootstrap: str, total: int) -> OrderFeed:
    """Sends so many orders, ids from 1, and returns when Kafka has them."""
    orders = OrderFeed(bootstrap, "orders", rate=2000, limit=total)
    stop = threading.Event()
    threading.Timer(total / 2000 + 0.5, stop.set).start()
    orders.run(stop)
    assert len(orders.acknowledged) == total and orders.lost == 0
    return orders


@pytest.mark.timeout(4 * SECONDS)
def test_a_job_killed_and_run_again_goes_on_exactly(tmp_path: Path) -> None:
    with EmbeddedBroker() as broker:
        feed(broker.bootstrap, 300)
        with running(tmp_path, broker.bootstrap, "--no-restart") as process:
            wait_for(lambda: len(counted(tmp_path)) >= 300, process, tmp_path)
            process.send_signal(signal.SIGKILL)
        feed(broker.bootstrap, 200)
        with running(tmp_path, broker.bootstrap) as process:
            wait_for(lambda: len(counted(tmp_path)) >= 500, process, tmp_path)
            stop(process, tmp_path)
    assert counted(tmp_path) == sorted([*range(1, 301), *range(1, 201)])
    assert (tmp_path / "out" / "setups").read_text().count("\n") == 2, "setup is called at every start"
    assert "Traceback" not in without_broken_pipes((tmp_path / "log").read_text())


@dataclass(frozen=True)
class Killed:
    """A job of which one process was killed. The supervisor started the first driver again as the second one."""

    first: int
    victim: int
    second: int
    log: str

    @property
    def supervisor_lines(self) -> list[str]:
        return [line for line in self.log.splitlines() if "kstream.cli.supervisor" in line]


def kill_in_the_middle(folder: Path, victim: Callable[[int], int]) -> Killed:
    """Kill a process of a running job, which counts all orders nevertheless, before and after; then stop the job.

    Args:
        folder: where the job runs.
        victim: pid of the driver → pid of the process to kill.
    """
    with EmbeddedBroker() as broker:
        feed(broker.bootstrap, 300)
        with running(folder, broker.bootstrap) as process:
            wait_for(lambda: len(counted(folder)) >= 300, process, folder)
            (first,) = children_of(process.pid)
            killed = victim(first)
            os.kill(killed, signal.SIGKILL)
            feed(broker.bootstrap, 200)
            wait_for(lambda: len(counted(folder)) >= 500, process, folder)
            (second,) = children_of(process.pid)
            stop(process, folder)
    assert counted(folder) == sorted([*range(1, 301), *range(1, 201)])
    return Killed(first, killed, second, (folder / "log").read_text())


def jvm_of(driver: int) -> int:
    (jvm,) = [pid for pid in children_of(driver) if "java" in Path(f"/proc/{pid}/cmdline").read_text()]
    return jvm


@pytest.mark.timeout(4 * SECONDS)
def test_a_driver_that_is_killed_is_started_again_and_goes_on_exactly(tmp_path: Path) -> None:
    job = kill_in_the_middle(tmp_path, lambda driver: driver)
    restarted, forwarded, ended = job.supervisor_lines
    assert f"driver {job.first} ended after " in restarted
    assert ": a signal killed it: SIGKILL; it is started again in 1 s (restart 1)" in restarted
    assert f"SIGTERM: forwarded to driver {job.second}" in forwarded and f"driver {job.second} ended after " in ended
    assert "Traceback" not in without_broken_pipes(job.log) and not members_of(job.first) and not members_of(job.second)


@pytest.mark.timeout(4 * SECONDS)
def test_a_driver_whose_jvm_is_killed_is_started_again_and_goes_on_exactly(tmp_path: Path) -> None:
    job = kill_in_the_middle(tmp_path, jvm_of)
    restarted = job.supervisor_lines[0]
    assert (
        f": the driver has lost its JVM: Spark's JVM (process {job.victim}) has ended, killed by SIGKILL: this driver can run" in restarted
    )
    assert restarted.endswith("it is started again in 1 s (restart 1)") and "Traceback" not in without_broken_pipes(job.log)
    assert not read_log(open_store(str(tmp_path / "checkpoint"))).failures, "a batch that lost its JVM has not failed"


@pytest.mark.timeout(6 * SECONDS)
def test_a_job_whose_sink_fails_is_started_again_until_it_works_and_its_batches_do_not_pile_up(tmp_path: Path) -> None:
    """Each start of a driver takes seconds, and each second has two batches."""
    store = open_store(str(tmp_path / "checkpoint"))
    with EmbeddedBroker() as broker:
        feed(broker.bootstrap, 100)
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "broken").touch()
        with running(tmp_path, broker.bootstrap) as process:
            wait_for(lambda: "(restart 1)" in (tmp_path / "log").read_text(), process, tmp_path)
            first = len(read_log(store).pending)  # on a slow machine many, before the first failure
            wait_for(lambda: "(restart 3)" in (tmp_path / "log").read_text(), process, tmp_path)
            pending = len(read_log(store).pending)
            (tmp_path / "out" / "broken").unlink()
            feed(broker.bootstrap, 50)
            wait_for(lambda: len(counted(tmp_path)) >= 150, process, tmp_path)
            stop(process, tmp_path)
    assert counted(tmp_path) == sorted([*range(1, 101), *range(1, 51)])
    ends = [line for line in (tmp_path / "log").read_text().splitlines() if "is started again" in line]
    assert all(": a batch failed: OSError: the sink is broken (in output operation 0, foreachRDD" in end for end in ends), ends
    page = f"Its page until then: kstream page {tmp_path / 'checkpoint'}"
    expected = ["1 s (restart 1)", "2 s (restart 2)", f"4 s (restart 3). {page}"]
    assert [end.rpartition("started again in ")[2] for end in ends[:3]] == expected
    assert pending - first <= 4, "five starts left 131 before missed batches waited"


def test_a_job_that_cannot_be_imported_is_not_started_again(tmp_path: Path) -> None:
    (tmp_path / "job_typo.py").write_text("import no_such_module_anywhere\n")
    command = [sys.executable, "-m", "kstream.cli", "run", "job_typo.py:setup", "--checkpoint", "checkpoint"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False)
    assert done.returncode == RunCode.IMPORT and len(done.stderr.splitlines()) == 1, done.stderr
    assert "the job cannot be imported: ModuleNotFoundError: No module named 'no_such_module_anywhere'" in done.stderr
    assert done.stderr.endswith("it is not started again (exit code 3)\n")


def test_a_broker_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as reserved:  # bound and not listening: nobody answers there
        reserved.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{reserved.getsockname()[1]}"
        with running(tmp_path, bootstrap, "--no-restart") as process:
            assert process.wait(SECONDS) == RunCode.FAILED
    log = (tmp_path / "log").read_text()
    said = [line for line in log.splitlines() if "kstream" in line or bootstrap in line]
    assert len(said) == 1 and said[0].startswith(f"kstream: No Kafka broker of {bootstrap} answered within"), log
    assert not any(word in log for word in ("Traceback", "rdkafka", "FAIL ", "thrd:")), log
