"""The benchmarks run: each to its end, on so little data that its ratios say nothing. What is run by hand only breaks unseen."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from integration.benchmarks.__main__ import MODULES
from integration.kafka_broker import Broker

pytestmark = pytest.mark.timeout(400)
LITTLE = {
    "bookkeeping": ["--batches", "2"],
    "operating": ["--batches", "2"],
    "once": ["--batches", "2"],
    "kafka_sink": ["--records", "1600", "--rounds", "1", "--alone"],
    "structured_sink": ["--records", "2000", "--triggers", "5", "--rounds", "1", "--alone"],
    "metrics": ["--batches", "2", "--partitions", "10"],
    "page": ["--ended", "20", "--queued", "20", "--partitions", "10", "--seconds", "1"],
    "map_with_state": ["--batches", "11", "--keys", "200", "--touched", "20"],
    "registry_values": ["--records", "500", "--rounds", "1"],
    "receivers": ["--records", "20000", "--rounds", "1"],
    "inverse_window": ["--batches", "2", "--short", "2", "--long", "3", "--keys", "5", "--records", "10"],
}
ON_THE_BROKER = {
    "kafka_read": ["--records", "2000", "--rounds", "1"],
    "poison_records": ["--records", "2000", "--rounds", "1"],
    "data_frames": ["--records", "2000", "--rounds", "1", "--alone"],
    "structured": ["--records", "2000", "--triggers", "5", "--rounds", "1", "--alone"],
    "typed_values": ["--records", "2000", "--rounds", "1", "--alone"],
}


def ended(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """It ends with 1 if a bar is missed; a failure tells of itself on stderr – as the daemon of PySpark's workers does, now and then, when
    Spark stops before a worker has said all."""
    command = [sys.executable, "-m", f"integration.benchmarks.{name}", *arguments]
    done = subprocess.run(command, env=os.environ, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode in (0, 1) and "/integration/benchmarks/" not in done.stderr, done.stderr[-3000:]
    return done


def run(name: str, *arguments: str) -> str:
    """What it prints. A bar that is missed means nothing on so little data."""
    return ended(name, *arguments).stdout


@pytest.mark.parametrize("name", LITTLE)
def test_a_benchmark_runs_to_its_end(name: str) -> None:
    assert "bar" in run(name, *LITTLE[name])


@pytest.mark.parametrize("name", ON_THE_BROKER)
def test_a_benchmark_on_kafka_runs_to_its_end(name: str, kafka: Broker) -> None:
    assert "M/s" in run(name, "--bootstrap", kafka.bootstrap, *ON_THE_BROKER[name])


def test_the_path_of_a_batch_passes_driver_and_workers_and_misses_its_bar_if_it_is_longer_than_before(tmp_path: Path) -> None:
    before, found = tmp_path / "before.json", tmp_path / "found.json"
    before.write_text(json.dumps({"one tick": {"files": ["f"] * 1000}, "one received block": {"files": ["f"]}}))
    done = ended("path_of_a_batch", "--batches", "2", "--json", str(found), "--compare", str(before))
    assert done.returncode == 1
    assert [line.rpartition(" ")[2] for line in done.stdout.splitlines()[-2:]] == ["met", "MISSED"]
    for passed in json.loads(found.read_text()).values():
        assert {where for places in passed["files"].values() for where in places} == {"driver", "workers"}


def test_every_benchmark_is_run_here() -> None:
    assert {*LITTLE, *ON_THE_BROKER} == set(MODULES)
