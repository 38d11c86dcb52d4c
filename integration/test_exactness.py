"""Five deaths of the driver, one at each named moment of a batch's life; the long campaign is `python -m integration.exactness`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.exactness.campaign import PARTITIONS, Campaign, Kill
from integration.kafka_broker import KafkaBroker
from kstream import crash_point
from kstream.scheduler.retry_policy import HOLD
from kstream.scheduler.settings import FAILED_BATCH, RETRIES


@pytest.mark.timeout(600)
def test_a_driver_killed_at_every_step_of_a_batch_misses_nothing_and_never_changes_a_range(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    kills = [Kill(point, nth=2) for point in crash_point.CRASH_POINTS]
    verdict = Campaign(kafka.bootstrap, topic(PARTITIONS), tmp_path, kafka.produce).run(kills)
    assert verdict.breaches == []
    assert verdict.runs_again >= 2, "the kills met no batch in the middle"
    assert verdict.records > 1000


WINDOW = 3
"""Batches of the window in the tests below: the last driver goes on for so many. The test above has ten."""
SETTINGS = {
    "two concurrent jobs": {"spark.streaming.concurrentJobs": "2"},
    "all ranges in one task": {"spark.streaming.kstream.kafka.maxTasks": "1"},
    "ranges split, packed and run by two jobs at once": {
        "spark.streaming.kstream.kafka.maxRecordsPerTask": "40",
        "spark.streaming.kstream.kafka.maxTasks": "3",
        "spark.streaming.concurrentJobs": "2",
    },
}


@pytest.mark.timeout(600)
def test_a_killed_driver_whose_sink_refuses_batches_holds_later_ones_in_their_order(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    settings = {FAILED_BATCH.key: HOLD, RETRIES.key: "5", "spark.streaming.concurrentJobs": "2"}
    kills = [Kill(crash_point.RUNNING, nth=6), Kill(crash_point.JOB_DONE, nth=6)]
    campaign = Campaign(kafka.bootstrap, topic(PARTITIONS), tmp_path, kafka.produce, settings, refusals=2, window=WINDOW)
    verdict = campaign.run(kills)
    assert verdict.breaches == []
    assert list((tmp_path / "refused").iterdir()), "the sink refused nothing"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("settings", SETTINGS)
def test_a_killed_driver_misses_nothing_with(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path, settings: str) -> None:
    kills = [Kill(crash_point.RUNNING, nth=3), Kill(crash_point.JOB_DONE, nth=4)]
    verdict = Campaign(kafka.bootstrap, topic(PARTITIONS), tmp_path, kafka.produce, SETTINGS[settings], window=WINDOW).run(kills)
    assert verdict.breaches == []
    assert verdict.records > 500
