"""Receivers on executors: processes of their own, three of them. Executors are killed, and have no core but for their receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from integration.one_core_job import BLOCK
from integration.spark_cluster import running_cluster


def job(victim: str) -> dict[str, Any]:
    return run("integration.receiver_job", victim)


def run(module: str, argument: str) -> dict[str, Any]:
    command = [sys.executable, "-m", module, argument]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


@pytest.mark.timeout(240)
def test_a_block_outlives_the_executor_of_its_receiver_which_moves_to_another() -> None:
    """Two replicas on distinct executors; the store of the one that was killed has died with it."""
    found = job("executor")
    assert len(set(found["executors"])) == 2 and found["executors"][0] == found["started"][0]
    assert found["started"][1] != found["started"][0]
    assert found["stores_alive"] == [False, True]
    assert found["records"] == list(range(1000)) and found["stopped"]


@pytest.mark.timeout(240)
def test_a_block_outlives_the_worker_of_its_receiver_in_both_stores() -> None:
    """Of stores that encrypt."""
    found = job("worker")
    assert len(set(found["executors"])) == 2 and len(found["started"]) == 2
    assert found["stores_alive"] == [True, True]
    assert found["records"] == list(range(1000)) and found["stopped"]


@pytest.mark.timeout(500)
def test_batches_of_received_blocks_do_not_wait_for_executors_whose_only_core_a_receiver_holds(tmp_path: Path) -> None:
    """Spark would wait ten minutes for each such executor, so that the first batch with blocks would not end within the test."""
    with running_cluster(tmp_path / "cluster", workers=3, cores=1) as cluster:
        found = run("integration.one_core_job", cluster.url)
    assert found["kept_up"]
    for batch in found["batches"]:
        assert batch["records"] > 0 and batch["records"] % BLOCK == 0
        held = batch["receivers"]
        assert len(held) == 2 and not [name for name in batch["preferred"] if name.rpartition("_")[2] in held], batch
