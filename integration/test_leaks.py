"""Nothing that a driver holds grows with the number of its batches."""

from __future__ import annotations

import json
import random
import subprocess
import sys

import pytest

from integration.kafka_broker import Broker
from integration.leaks import EACH, SETTLED, batches_a_sample, filled_topic, grown, growth


def test_a_line_that_rises_is_told_from_chance() -> None:
    noise = random.Random(7)
    assert all(growth([100 + noise.gauss(0, 10) for _ in range(20)]) == 0 for _ in range(100))
    assert growth([100.0] * 20) == 0
    assert growth([100 + n + noise.gauss(0, 2) for n in range(20)]) > 10


def test_a_run_of_a_day_takes_about_a_thousand_samples_and_a_short_one_each_tenth() -> None:
    assert [batches_a_sample(batches) for batches in (300, 5_000, 86_400)] == [10, 10, 86]


def test_a_figure_that_grows_only_until_its_bound_is_reached_has_not_grown() -> None:
    fills = [min(batch, SETTLED) / SETTLED for batch in range(EACH, 300, EACH)]
    leaks = [100.0 + sample for sample in range(len(fills))]
    assert growth(fills) > 0
    assert grown({"filling": fills, "leaking": leaks}).keys() == {"leaking"}


def test_a_topic_for_a_night_takes_more_records_than_a_producer_keeps_at_once(kafka: Broker) -> None:
    topic = filled_topic(kafka.bootstrap, 120_000)
    assert [kafka.log_range(topic, partition) for partition in range(2)] == [(0, 60_000)] * 2


@pytest.mark.timeout(900)
@pytest.mark.parametrize("watched", [False, True], ids=["plain", "watched"])
def test_after_many_batches_with_a_large_closure_the_driver_holds_what_it_held_before(kafka: Broker, watched: bool) -> None:
    command = [sys.executable, "-m", "integration.leaks", "--batches", "300", "--bootstrap", kafka.bootstrap]
    command += ["--watched"] if watched else []
    found = subprocess.run(command, capture_output=True, text=True, timeout=800, check=False)
    assert found.returncode == 0, found.stderr[-3000:]
    samples: dict[str, list[float]] = json.loads(found.stdout.splitlines()[-1])
    assert {name: samples[name] for name in grown(samples)} == {}
