"""Tasks that Spark runs twice, on a cluster: what is counted once and what is not, as the table in docs/outputs.md says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import TopicPartition
from kstream_kafka.planning.dead_letter import dead_letter_of

from integration.kafka_broker import KafkaBroker
from integration.masters import Master
from integration.record_errors import letters_in
from kstream.checkpoint.history import read_ledger
from kstream.storage import open_store

PARTITIONS, EACH, LOST = 4, 150, 10
"""So many records has each partition, and so many of partition 3 are gone before they are read."""


def is_poison(number: int) -> bool:
    return number % 20 == 17


def good_and_poison(ranges: list[list[int]]) -> tuple[int, int]:
    """How many records of the ranges can be read and decoded, and how many are poison."""
    there = [n for p, start, until in ranges for n in range(max(start, LOST if p == 3 else 0), until)]
    poison = sum(map(is_poison, there))
    return len(there) - poison, poison


def run_job(cluster: Master, kafka: KafkaBroker, topic: str, dead: str, directory: Path) -> tuple[dict[str, Any], str]:
    """What the job has counted, and its log. Records of its first batch are deleted between plan and read."""
    options = {
        "bootstrap": kafka.bootstrap, "topic": topic, "dead": dead, "total": PARTITIONS * EACH, "directory": str(directory),
        "settings": dict(cluster.settings),
    }  # fmt: skip
    with open(directory / "log", "wb") as log:
        command = [sys.executable, "-m", "integration.counted_job", json.dumps(options)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, env={**os.environ, **cluster.environment}) as job:
            try:
                while not (directory / "planned").exists():
                    assert job.poll() is None, (directory / "log").read_text()[-4000:]
                    time.sleep(0.1)
                where = TopicPartition(topic, 3, LOST)
                kafka.admin.delete_records([where])[where].result(30)
                (directory / "go").touch()
                told, _ = job.communicate(timeout=500)
            finally:
                job.kill()
    said = (directory / "log").read_text(errors="replace")
    assert job.returncode == 0, said[-6000:]
    return json.loads(told.splitlines()[-1]), said


def rows_in(folder: Path) -> Counter[str]:
    return Counter(row for file in folder.iterdir() for row in json.loads(file.read_text()))


@pytest.mark.timeout(700)
def test_rows_errors_losses_and_metrics_are_counted_once_and_a_naive_sink_has_rows_twice(
    cluster: Master, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name, dead = topic(PARTITIONS), topic()
    kafka.produce(name, [(None, "poison" if is_poison(n) else f"{p}:{n}", p) for p in range(PARTITIONS) for n in range(EACH)])
    found, said = run_job(cluster, kafka, name, dead, tmp_path)
    assert len(list((tmp_path / "killed").iterdir())) == 2 and "FetchFailed" in said, "no map output was lost"

    planned = good = poison = 0
    for batch, counted in found["batches"].items():
        right, wrong = good_and_poison(counted["ranges"])
        rows = sum(until - start for _, start, until in counted["ranges"])
        assert (counted["count"], counted["shuffled"]) == (right, right), batch
        assert found["told"][batch] == [rows, wrong], batch
        planned, good, poison = planned + rows, good + right, poison + wrong
    assert (planned, good + poison) == (PARTITIONS * EACH, PARTITIONS * EACH - LOST)

    values = {re.sub(r"\{.*\}", "", line.split(" ")[0]): float(line.split(" ")[1]) for line in found["metrics"]}
    assert values == {"kstream_input_records_total": planned, "kstream_record_errors_total": poison}
    (entry,) = read_ledger(open_store(str(tmp_path / "checkpoint")))
    assert [(loss["partition"], loss["from"], loss["until"]) for losses in entry.streams.values() for loss in losses] == [(3, 0, LOST)]
    assert found["accumulators"]["in_action"] == good < found["accumulators"]["in_map"]

    expected = {f"{p}:{n}" for p in range(PARTITIONS) for n in range(LOST if p == 3 else 0, EACH) if not is_poison(n)}
    assert rows_in(tmp_path / "once") == Counter(expected)
    naive = rows_in(tmp_path / "naive")
    print(f"{sum(naive.values())} rows of {len(naive)} records in the naive sink, {found['accumulators']}")
    assert set(naive) == expected
    assert {row for row, times in naive.items() if times > 1} >= {row for row in expected if row.startswith(("1:", "2:"))}

    letters = Counter(letter.place for message in letters_in(kafka, dead) if (letter := dead_letter_of(message.headers())))
    print(f"{sum(letters.values())} dead letters of {len(letters)} records")
    assert len(letters) == poison
