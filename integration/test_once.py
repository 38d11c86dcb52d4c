"""`once` writes each record of a killed job to a database once, where a naive sink writes some twice. More kills: `make chaos`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.exactness.campaign import IN_WRITE, PARTITIONS, Campaign, Kill
from integration.exactness.sinks import breaches_of, places, repeats_of_the_naive
from integration.kafka_broker import KafkaBroker
from integration.postgres_server import Postgres
from kstream import crash_point

INTERVAL_S, WINDOW = 1.0, 2
"""The tables are judged, and no window: so the last driver need not go on for a long one."""
KILLS = [Kill(IN_WRITE, nth=2), Kill(crash_point.RUNNING, nth=4), Kill(IN_WRITE, nth=1), Kill(crash_point.JOB_DONE, nth=6)]


def campaign(kafka: KafkaBroker, topic: str, folder: Path, sink: str) -> Campaign:
    return Campaign(kafka.bootstrap, topic, folder / "job", kafka.produce, sink=sink, interval=INTERVAL_S, window=WINDOW)


def breaches(campaign: Campaign, kills: list[Kill]) -> list[str]:
    """Kill the driver, let it end, and compare its table with what was sent."""
    fed = campaign.kill_all(kills)
    assert repeats_of_the_naive(campaign.sink), "the kills met no batch in the middle"
    return breaches_of(campaign.sink, places(fed))


@pytest.mark.timeout(600)
def test_each_record_of_a_killed_job_is_in_sqlite_once(kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path) -> None:
    assert breaches(campaign(kafka, topic(PARTITIONS), tmp_path, str(tmp_path / "sink.db")), KILLS) == []


@pytest.mark.timeout(600)
def test_a_half_written_batch_is_divided_as_before_whatever_the_settings_are_now(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    divided = campaign(kafka, topic(PARTITIONS), tmp_path, str(tmp_path / "sink.db"))
    divided.conf = {"spark.streaming.kstream.kafka.maxRecordsPerTask": "20"}
    divided.last_conf = {"spark.streaming.kstream.kafka.maxRecordsPerTask": "0", "spark.streaming.kstream.kafka.maxTasks": "1"}
    assert breaches(divided, [Kill(IN_WRITE, nth=6)]) == []


@pytest.mark.postgres
@pytest.mark.timeout(600)
def test_each_record_of_a_killed_job_is_in_postgresql_once(
    kafka: KafkaBroker, topic: Callable[..., str], postgres: Postgres, tmp_path: Path
) -> None:
    assert breaches(campaign(kafka, topic(PARTITIONS), tmp_path, postgres.url), KILLS) == []
