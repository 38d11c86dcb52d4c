"""A user at a terminal who types a job with a mistake in it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from integration.kafka_broker import Broker

MOST_LINES = 12


ROOT = Path(__file__).resolve().parent.parent


JOBS = """
import json, os
from pathlib import Path

from pyspark import SparkConf

from kstream import StreamingContext
from kstream_kafka import KafkaUtils

OUT = Path("out")
PARAMS = {"bootstrap.servers": os.environ["BROKER"], "auto.offset.reset": "smallest"}


def context(interval=0.5, **settings):
    conf = SparkConf().setMaster("local[2]").setAppName("orders").set("spark.ui.enabled", "false")
    for key, value in settings.items():
        conf.set("spark.streaming." + key.replace("_", "."), value)
    return StreamingContext(conf, interval)


def save(time, rdd):
    OUT.mkdir(exist_ok=True)
    (OUT / str(time.milliseconds)).write_text(json.dumps(rdd.map(lambda record: record[1]).collect()))


def job(topic=os.environ["TOPIC"], ssc=None, **params):
    ssc = ssc or context()
    KafkaUtils.createDirectStream(ssc, [topic], {**PARAMS, **params}).foreachRDD(save)
    return ssc


def orders():
    return job(ssc=context(kafka_maxRatePerPartiton="1000"))


def dynamic_allocation():
    return job(ssc=context(dynamicAllocation_enabled="true"))


def no_duration():
    return job(ssc=context(blockInterval="soon"))


def no_interval():
    return job(ssc=context(0))


def interval_as_text():
    return job(ssc=context("1s"))


def no_return():
    pass


def missing_variable():
    return connect()


def connect():
    return os.environ["DB_URL"]


def wrong_topic():
    return job(os.environ["TOPIC"][:-1])


def wrong_broker():
    return job(**{"bootstrap.servers": "127.0.0.1:9"})


def returns():
    return job(os.environ["RETURNS"])
"""


@dataclass(frozen=True)
class Mistake:
    """A mistake: the arguments of `kstream run`, a pattern of the signal, the code of the end (None: it goes on), the most seconds."""

    name: str
    arguments: tuple[str, ...]
    signal: str
    code: int | None
    seconds: float
    before_spark: bool = True

    def __str__(self) -> str:
        return self.name


class Terminal:
    """Commands in a folder that has the user's jobs.py."""

    def __init__(self, folder: Path, broker: Broker, topic: str, returns: str) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(JOBS)
        path = os.pathsep.join([str(ROOT), str(ROOT / "connectors")])
        self.environment = {**os.environ, "BROKER": broker.bootstrap, "TOPIC": topic, "RETURNS": returns, "PYTHONPATH": path}
        self.environment.pop("DB_URL", None)

    def start(self, *arguments: str) -> Running:
        return Running(self, [sys.executable, *arguments])

    def run(self, mistake: Mistake) -> Running:
        return self.start("-m", "kstream.cli", "run", *mistake.arguments)

    def records(self) -> list[int]:
        return sorted(int(value) for file in (self.folder / "out").glob("*") for value in json.loads(file.read_text()))


class Running:
    """A command that runs, and the lines that it has written."""

    def __init__(self, terminal: Terminal, command: list[str]) -> None:
        self._log = terminal.folder / f"log-{time.monotonic_ns()}"
        self._began = time.monotonic()
        with open(self._log, "wb") as log:
            self.process = subprocess.Popen(command, cwd=terminal.folder, env=terminal.environment, stdout=log, stderr=log)

    @property
    def output(self) -> str:
        return self._log.read_text()

    def wait_for(self, done: Callable[[], bool], seconds: float) -> float:
        """Returns after how many seconds since the start of the command it was so."""
        while not done():
            ended = self.process.poll() is not None
            assert (not ended or done()) and time.monotonic() - self._began < seconds, self.output
            time.sleep(0.05)
        return time.monotonic() - self._began

    def shows(self, pattern: str, seconds: float) -> float:
        return self.wait_for(lambda: re.search(pattern, self.output) is not None, seconds)

    def end(self, number: signal.Signals | None = None) -> int:
        """The exit code, after this signal."""
        if number is not None and self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(60)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
