"""Executors and drivers are killed under a steady load: what was acknowledged is in a batch, and in one only unless it was sent again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from integration.received.campaign import FAULTS, Campaign
from integration.spark_cluster import running_cluster

KILLS = 3
"""Of each fault; `python -m integration.received` kills 20 times."""


@contextmanager
def campaign(folder: Path, **options: Any) -> Iterator[Campaign]:
    made = Campaign(folder, **options)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.timeout(1800)
def test_with_a_write_ahead_log_nothing_that_was_acknowledged_is_lost_whoever_is_killed(tmp_path: Path) -> None:
    """An executor, the driver, and both at once; in the course of it batches are run again with the same records."""
    with campaign(tmp_path / "logged", seed=7) as one:
        verdict = one.run([fault for _ in range(KILLS) for fault in FAULTS])
    print(verdict)
    assert verdict.breaches == [] and verdict.kills == dict.fromkeys(FAULTS, KILLS)
    assert verdict.acked > 1000


@pytest.mark.timeout(800)
def test_speculation_changes_nothing(tmp_path: Path) -> None:
    """Spark starts a copy of the receiver's task on another machine after a second: it takes no part, and the receiver stays."""
    conf = {
        "spark.speculation": "true", "spark.speculation.interval": "100ms", "spark.speculation.task.duration.threshold": "1s",
        "spark.speculation.minTaskRuntime": "100ms", "spark.speculation.quantile": "0.1", "spark.speculation.multiplier": "1.01",
    }  # fmt: skip
    of_speculation = {"seed": 9, "logged": False, "conf": conf}
    with running_cluster(tmp_path / "cluster") as cluster, campaign(tmp_path / "job", **of_speculation, master=cluster.url) as one:
        verdict = one.run([], load=10)
        assert len(one.driver.wait("started")) == 1, one.driver.said
        assert len(one.driver.wait("copies")[-1]) > 0, "there was a copy"
    print(verdict)
    assert verdict.breaches == [] and verdict.ran_again == 0


@pytest.mark.timeout(1200)
def test_without_one_an_executor_may_die_and_nothing_that_was_acknowledged_is_lost(tmp_path: Path) -> None:
    """Its blocks lie on another one, too; its store dies with it, and those of the others live as long as these."""
    with campaign(tmp_path / "replicated", seed=8, logged=False) as one:
        verdict = one.run(["executor"] * KILLS)
        assert len(set(one.driver.wait("started"))) > 1, "the receiver has moved"
    print(verdict)
    assert verdict.breaches == [] and verdict.ran_again == 0
