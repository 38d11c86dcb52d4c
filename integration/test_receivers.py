"""Receivers on executors: processes of their own, three of them, which are killed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest


def job(victim: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "integration.receiver_job", victim]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=200, check=False, env={**os.environ, "PYSPARK_PYTHON": sys.executable}
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
