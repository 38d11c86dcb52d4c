"""`kstream replay` and `kstream offsets` in a terminal, on a job that ran against the real broker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from integration.kafka_broker import KafkaBroker

ROOT = Path(__file__).resolve().parent.parent
JOB = """
import json, os
from pathlib import Path

from pyspark import SparkConf

from kstream import StreamingContext
from kstream_kafka import KafkaUtils

OUT = Path(os.environ["JOB_OUT"])


def save(time, rdd):
    (OUT / f"{time.milliseconds}.json").write_text(json.dumps(sorted(rdd.collect())))


def setup():
    conf = SparkConf().setMaster("local[2]").set("spark.ui.enabled", "false").set("spark.ui.showConsoleProgress", "false")
    conf.set("spark.streaming.kafka.maxRatePerPartition", "10").set("spark.streaming.kafka.maxRetries", "20")
    ssc = StreamingContext(conf, 0.5)
    params = {"bootstrap.servers": os.environ["JOB_BROKER"], "auto.offset.reset": "smallest"}
    stream = KafkaUtils.createDirectStream(ssc, [os.environ["JOB_TOPIC"]], params, untilOffsets="latest")
    stream.map(lambda kv: int(kv[1])).foreachRDD(save)
    return ssc
"""


class Terminal:
    """Commands in a folder of their own, with the job beside them."""

    def __init__(self, folder: Path, bootstrap: str, topic: str) -> None:
        self.folder = folder
        (folder / "jobs.py").write_text(JOB)
        (folder / "out").mkdir()
        path = os.pathsep.join([str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")])
        self.environment = {**os.environ, "JOB_OUT": str(folder / "out"), "JOB_BROKER": bootstrap, "JOB_TOPIC": topic, "PYTHONPATH": path}

    def kstream(self, *words: str, expect: int = 0) -> str:
        """Standard output of a command; its exit code must be the one expected."""
        command = [sys.executable, "-m", "kstream.cli", *words]
        done = subprocess.run(command, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=240)
        assert done.returncode == expect, done.stdout + done.stderr
        return done.stdout if expect == 0 else done.stdout + done.stderr

    def sink(self) -> dict[str, list[int]]:
        """What the job has written, by batch time; batches without records left out."""
        found = {path.stem: json.loads(path.read_text()) for path in (self.folder / "out").glob("*.json")}
        return {time: records for time, records in found.items() if records}


@pytest.mark.timeout(900)
def test_a_jobs_past_is_replayed_and_its_offsets_are_set(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(2)
    kafka.produce(name, ((None, str(i), i % 2) for i in range(40)))
    shell = Terminal(tmp_path, kafka.bootstrap, name)
    run = ("run", "jobs:setup", "--checkpoint", "checkpoint")
    shell.kstream(*run)
    first = shell.sink()
    assert sorted(i for records in first.values() for i in records) == list(range(40)) and len(first) >= 2

    into_the_shadow(shell, first, tmp_path)
    cut = TopicPartition(name, 0, 3)
    kafka.admin.delete_records([cut])[cut].result(30)
    changed_input(shell, name)

    time.sleep(2)  # a driver that planned in the last three intervals is taken to be running
    dry = shell.kstream("offsets", "reset", "checkpoint", "--to", "earliest", "--dry-run")
    assert f"{name}/0" in dry and "-17" in dry and "nothing was changed" in dry
    shell.kstream("offsets", "reset", "checkpoint", "--to", "earliest")
    shell.kstream(*run)
    again = {time: records for time, records in shell.sink().items() if time not in first}
    assert sorted(i for records in again.values() for i in records) == [i for i in range(40) if i % 2 or i >= 6]


def into_the_shadow(shell: Terminal, first: dict[str, list[int]], folder: Path) -> None:
    """Every batch again, beside the sink: the same records under the same batch times, and the sink untouched."""
    for path in (folder / "out").glob("*.json"):
        path.write_text("[]")
    times = sorted(first)
    replay = ("replay", "jobs:setup", "--checkpoint", "checkpoint", "--from", times[0], "--to", times[-1], "--json")
    lines = shell.kstream(*replay, "--sink", "shadow", "--out", "shadow").splitlines()
    batches: list[Any] = [json.loads(line) for line in lines]
    assert all(batch["same"] for batch in batches) and {str(b["batch"]) for b in batches} >= set(first)
    shadow = {
        time: sorted(int(line) for part in (folder / "shadow" / "output-0" / time).glob("part-*") for line in part.read_text().split())
        for time in times
    }
    assert shadow == first and shell.sink() == {}
    shell.kstream(*replay, "--sink", "same")
    assert shell.sink() == first


def changed_input(shell: Terminal, name: str) -> None:
    """Three records are gone by now: the batches that held them say so, in words and by the exit code."""
    options = ("--sink", "shadow", "--out", "shadow-2", "--from", "-1h")
    said = shell.kstream("replay", "jobs:setup", "--checkpoint", "checkpoint", *options, expect=1)
    assert f"{name}/0 [0, 3) is gone: retention" in said
    assert "could not be replayed with the same result" in said
