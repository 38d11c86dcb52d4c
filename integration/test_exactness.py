"""Five deaths of the driver, one at each named moment of a batch's life; the long campaign is `python -m integration.exactness`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.exactness.campaign import PARTITIONS, Campaign, Kill
from integration.kafka_broker import KafkaBroker
from kstream import crash_point


@pytest.mark.timeout(600)
def test_a_driver_killed_at_every_step_of_a_batch_misses_nothing_and_never_changes_a_range(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    kills = [Kill(point, nth=2) for point in crash_point.CRASH_POINTS]
    verdict = Campaign(kafka.bootstrap, topic(PARTITIONS), tmp_path, kafka.produce).run(kills)
    assert verdict.breaches == []
    assert verdict.runs_again >= 2, "the kills met no batch in the middle"
    assert verdict.records > 1000


@pytest.mark.timeout(600)
def test_with_two_concurrent_jobs_a_killed_driver_misses_nothing_either(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    conf = {"spark.streaming.concurrentJobs": "2"}
    kills = [Kill(crash_point.RUNNING, nth=3), Kill(crash_point.JOB_DONE, nth=4)]
    verdict = Campaign(kafka.bootstrap, topic(PARTITIONS), tmp_path, kafka.produce, conf).run(kills)
    assert verdict.breaches == []
