"""`kstream run`: a job from the command line, killed and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kstream_kafka.demo.embedded_broker import EmbeddedBroker
from kstream_kafka.demo.order_feed import OrderFeed

SECONDS = 120
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
    path = OUT / f"{round(time.timestamp() * 1000)}.json"
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


@contextmanager
def running(folder: Path, bootstrap: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kstream run` of JOB in `folder`; killed at the end if it still runs. Its words are in `folder`/log."""
    (folder / "job_orders.py").write_text(JOB)
    (folder / "out").mkdir(exist_ok=True)
    environment = {**os.environ, "JOB_OUT": str(folder / "out"), "JOB_BROKER": bootstrap}
    command = [sys.executable, "-m", "kstream.cli", "run", "job_orders:setup", "--checkpoint", str(folder / "checkpoint")]
    root = Path(__file__).resolve().parent.parent
    environment["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "connectors"), os.environ.get("PYTHONPATH", "")])
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def counted(folder: Path) -> list[int]:
    return sorted(i for path in (folder / "out").glob("*.json") for i in json.loads(path.read_text()))


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)


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
        with running(tmp_path, broker.bootstrap) as process:
            wait_for(lambda: len(counted(tmp_path)) >= 300, process, tmp_path)
            process.send_signal(signal.SIGKILL)
        feed(broker.bootstrap, 200)
        with running(tmp_path, broker.bootstrap) as process:
            wait_for(lambda: len(counted(tmp_path)) >= 500, process, tmp_path)
            process.send_signal(signal.SIGTERM)
            assert process.wait(SECONDS) == 0, (tmp_path / "log").read_text()
    assert counted(tmp_path) == sorted([*range(1, 301), *range(1, 201)])
    assert (tmp_path / "out" / "setups").read_text().count("\n") == 2, "setup is called at every start"
    assert "Traceback" not in (tmp_path / "log").read_text()


def test_a_broker_that_cannot_be_reached_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as reserved:  # bound and not listening: nobody answers there
        reserved.bind(("127.0.0.1", 0))
        bootstrap = f"127.0.0.1:{reserved.getsockname()[1]}"
        with running(tmp_path, bootstrap) as process:
            assert process.wait(SECONDS) == 1
    log = (tmp_path / "log").read_text()
    said = [line for line in log.splitlines() if "kstream" in line or bootstrap in line]
    assert len(said) == 1 and said[0].startswith(f"kstream: No Kafka broker of {bootstrap} answered within"), log
    assert not any(word in log for word in ("Traceback", "rdkafka", "FAIL ", "thrd:")), log
