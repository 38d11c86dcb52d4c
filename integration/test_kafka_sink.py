"""`saveToKafka` writes each record of a killed job once, for readers of committed records. More kills: `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.exactness.campaign import IN_WRITE, PARTITIONS, Campaign, Kill
from integration.exactness.sinks import TOPICS, running_sink
from integration.kafka_broker import Broker
from kstream.crash_point import JOB_DONE, PLAN_DURABLE, RUNNING

KILLS = [Kill(IN_WRITE, 1), Kill(RUNNING, 3), Kill(IN_WRITE, 4), Kill(JOB_DONE, 2), Kill(IN_WRITE, 2), Kill(PLAN_DURABLE, 3)]


@pytest.mark.timeout(600)
def test_each_record_of_a_killed_job_is_in_the_topic_once(own_kafka: Broker, tmp_path: Path) -> None:
    """Killed before and after a commit of a worker, and around the jobs. The naive producer shows that the kills meet batches."""
    own_kafka.create_topic("fed", PARTITIONS)
    with running_sink(TOPICS, tmp_path, own_kafka) as sink:
        campaign = Campaign(own_kafka.bootstrap, "fed", tmp_path / "job", own_kafka.produce, sink=sink)
        verdict = campaign.run(KILLS)
    assert verdict.breaches == []
    assert verdict.runs_again > 0 and verdict.records > 500
