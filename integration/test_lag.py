"""`kstream lag` and `kstream checkpoint diff` as a user types them, of a stream that ran against a real broker."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from integration.driver_process import Job, running, wait_for
from integration.kafka_broker import KafkaBroker
from kstream.checkpoint import read_log
from kstream.storage import open_store

ROOT = Path(__file__).resolve().parent.parent


def kstream(*words: object) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "kstream.cli", *map(str, words)]
    return subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, check=False)


def lags(*words: object) -> list[tuple[Any, ...]]:
    ran = kstream("lag", *words, "--json")
    assert ran.returncode == 0, ran.stderr
    rows = json.loads(ran.stdout)["partitions"]
    return [(r["partition"], r["next"], r["completed"], r["log_end"], r["lag"]) for r in rows]


def nothing_pending(checkpoint: Path) -> bool:
    """Whether every batch that was given records is marked as completed."""
    contents = read_log(open_store(str(checkpoint)))
    return not any(sum(contents.plans[time].num_records.values()) for time in contents.pending)


@pytest.mark.timeout(360)
def test_the_lag_of_a_stream_that_ran_is_what_was_produced_since(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    name = topic(2)
    job = Job(tmp_path / "job", kafka.bootstrap, name)
    checkpoint, before = tmp_path / "job" / "checkpoint", tmp_path / "before"
    kafka.produce(name, (("k", f"{i % 2}:{i // 2}", i % 2) for i in range(100)))
    driver = job.start()
    with running(driver):
        wait_for(lambda: job.records_tried() == 100 and nothing_pending(checkpoint), "completing the batch of 100 records", job)
        driver.send_signal(signal.SIGTERM)
        assert driver.wait(60) == 0, job.output()
    assert lags(checkpoint) == [(0, 50, 50, 50, 0), (1, 50, 50, 50, 0)]
    assert kstream("lag", checkpoint, "--max-lag", 0).returncode == 0
    shutil.copytree(checkpoint, before)

    kafka.produce(name, (("k", f"1:{i}", 1) for i in range(50, 80)))
    assert lags(checkpoint) == [(0, 50, 50, 50, 0), (1, 50, 50, 80, 30)]
    over = kstream("lag", checkpoint, "--max-lag", 29, "--bootstrap", kafka.bootstrap)
    assert (over.returncode, over.stderr) == (1, f"kstream: {name}/1 is 30 records behind, above --max-lag 29\n")

    again = job.start()
    with running(again):
        wait_for(lambda: job.records_tried() == 130, "reading the other 30 records", job)
        again.kill()
        again.wait()
    ((_, *zero), (_, at, completed, end, lag)) = lags(checkpoint)
    assert zero == [50, 50, 50, 0] and (at, end) == (80, 80)
    assert completed in (50, 80) and lag == end - completed, "killed before or after the batch was done"
    differ = kstream("checkpoint", "diff", before, checkpoint)
    assert differ.returncode == 1 and "the second is 30 records ahead of the first" in " ".join(differ.stdout.split())
    assert kstream("checkpoint", "diff", before, before).returncode == 0

    kafka.delete_topic(name)
    gone = kstream("lag", checkpoint)
    assert (gone.returncode, gone.stdout) == (3, "")
    assert gone.stderr.startswith(f"kstream: Kafka knows no topic '{name}'") and gone.stderr.count("\n") == 1
