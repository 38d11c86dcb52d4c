"""Executor allocation on a standalone cluster with three workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.spark_cluster import running_cluster


@pytest.mark.timeout(400)
def test_executors_follow_the_load_and_a_receiver_outlives_its_executor(tmp_path: Path) -> None:
    """The executor of a receiver is never one that ends. The lost one is replaced, although until then executors were only ended."""
    with running_cluster(tmp_path / "cluster", workers=3, cores=2) as cluster:
        command = [sys.executable, "-m", "integration.allocation_job", cluster.url, str(tmp_path / "checkpoint")]
        environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    (first, second), (before, after) = found["started"], found["left"]
    assert first in before and first not in after
    assert second in before and second in after
    assert found["failed"] == []
