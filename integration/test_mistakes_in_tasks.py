"""The mistakes of a newcomer that show when a batch runs: each is one clear signal with the record, in few lines, and loses nothing."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from integration.kafka_broker import Broker, running_broker
from integration.terminal import MOST_LINES, Terminal
from kstream.checkpoint import read_log
from kstream.checkpoint.history import read_ledger
from kstream.cli.exit_codes import RunCode
from kstream.storage import open_store

JOBS = """
import json, os, threading
from pathlib import Path

from pyspark import SparkConf

from kstream import StreamingContext
from kstream_kafka import KafkaUtils

OUT = Path("out")
PARAMS = {"bootstrap.servers": os.environ["BROKER"], "auto.offset.reset": "smallest", "metadata.max.age.ms": "1000"}
LOCK = threading.Lock()


def stream(topic):
    conf = SparkConf().setMaster("local[2]").setAppName("orders").set("spark.ui.enabled", "false")
    return KafkaUtils.createDirectStream(StreamingContext(conf, 0.5), [topic], PARAMS)


def save(time, rdd):
    OUT.mkdir(exist_ok=True)
    (OUT / str(time.milliseconds)).write_text(json.dumps(rdd.map(lambda record: record[1]).collect()))


def price(record):
    return {}["price"]


def parse(record):
    return None, json.loads(record[1])


def down(time, rdd):
    raise ValueError("the database is down")


def job(topic, mapped=None, output=save):
    records = stream(topic)
    (records if mapped is None else records.map(mapped)).foreachRDD(output)
    return records.context()


def exception_in_map():
    return job("t-numbers", price)


def exception_in_foreachRDD():
    return job("t-numbers", output=down)


def lock_in_a_function():
    return job("t-numbers", lambda record: (LOCK, record))


def no_such_python():
    return job("t-numbers", price)


def no_text():
    return job("t-binary")


def no_json():
    return job("t-poison", parse)


def no_value():
    return job("t-null", parse)


def numbers():
    return job("t-numbers")
"""


@dataclass(frozen=True)
class Mistake:
    """A job of JOBS, a pattern of its signal, and the code with which it ends."""

    job: str
    signal: str
    code: RunCode = RunCode.FAILED_BATCH

    def __str__(self) -> str:
        return self.job


MISTAKES = [
    Mistake("exception_in_map", r"KeyError: 'price' .*of batch \d+ ms: map of \S+jobs\.py:\d+, record t-numbers-0@0 \("),
    Mistake(
        "exception_in_foreachRDD", r"ValueError: the database is down \(in output operation 0, foreachRDD at \S+jobs\.py:\d+, of batch"
    ),
    Mistake(
        "lock_in_a_function", r"The function given to map at \S+jobs\.py:\d+ .*cannot pickle '_thread\.lock' object", RunCode.CONFIGURATION
    ),
    Mistake("no_such_python", r"the executors cannot run '/no/such/python' as the workers' Python: set PYSPARK_PYTHON"),
    Mistake("no_text", r"UnicodeDecodeError: .*0xff in position 1.*record t-binary-0@1 \("),
    Mistake("no_json", r"JSONDecodeError: .*map of \S+jobs\.py:\d+, record t-poison-0@1 \("),
    Mistake("no_value", r"TypeError: the JSON object must be str.* not NoneType .*record t-null-0@1 \("),
]


def make_topics(kafka: Broker) -> None:
    """Topics of one partition with three records, of which the second one is the bad one."""
    for topic, bad in (("t-numbers", b"1"), ("t-binary", b"a\xff"), ("t-poison", b'{"price": '), ("t-null", None)):
        kafka.create_topic(topic, 1)
        kafka.produce(topic, [(None, b"0"), (None, bad), (None, b"2")])


@pytest.fixture(scope="module")
def terminal(kafka: Broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Terminal]:
    make_topics(kafka)
    made = Terminal(tmp_path_factory.mktemp("mistakes"), kafka, "t-numbers", "")
    (made.folder / "jobs.py").write_text(JOBS)
    yield made


def run(terminal: Terminal, job: str, *options: str) -> list[str]:
    return ["-m", "kstream.cli", "run", f"jobs.py:{job}", "--checkpoint", f"checkpoint-{job}", "--log-level", "WARNING", *options]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("mistake", MISTAKES, ids=str)
def test_a_mistake_that_fails_a_batch_is_one_clear_signal_and_its_records_wait(
    terminal: Terminal, mistake: Mistake, monkeypatch: pytest.MonkeyPatch
) -> None:
    if mistake.job == "no_such_python":
        monkeypatch.setitem(terminal.environment, "PYSPARK_PYTHON", "/no/such/python")
    running = terminal.start(*run(terminal, mistake.job, "--no-restart"))
    try:
        running.shows(mistake.signal, 120)
        assert running.end() == mistake.code, running.output
    finally:
        running.kill()
    assert len(running.output.splitlines()) <= MOST_LINES, running.output
    store = open_store(str(terminal.folder / f"checkpoint-{mistake.job}"))
    contents = read_log(store)
    assert not sum(sum(contents.plans[time].num_records.values()) for time in contents.done), "no batch with records has ended"
    assert not contents.given_up and not read_ledger(store)


@pytest.mark.timeout(300)
def test_a_broker_that_is_dead_for_twenty_seconds_is_told_in_few_lines_and_every_record_is_read_once(tmp_path: Path) -> None:
    with running_broker(tmp_path / "kafka") as kafka:
        make_topics(kafka)
        terminal = Terminal(tmp_path, kafka, "t-numbers", "")
        (tmp_path / "jobs.py").write_text(JOBS)
        running = terminal.start(*run(terminal, "numbers", "--no-restart"))
        try:
            running.wait_for(lambda: terminal.records() == [0, 1, 2], 120)
            kafka.kill9()
            running.shows("answered within|is away|waits", 60)
            kafka.restart()
            kafka.produce("t-numbers", [(None, b"3"), (None, b"4")])
            running.wait_for(lambda: terminal.records() == [0, 1, 2, 3, 4], 120)
            assert running.end(signal.SIGTERM) in (RunCode.ENDED, RunCode.TERMINATED)
        finally:
            running.kill()
    assert len(running.output.splitlines()) <= MOST_LINES, running.output
