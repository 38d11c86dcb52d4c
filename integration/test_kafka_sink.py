"""`saveToKafka` writes each record of a killed job once, for readers of committed records. More kills: `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.exactness.campaign import IN_WRITE, PARTITIONS, Campaign, Kill
from integration.exactness.database import NAIVE, ONCE
from integration.exactness.kafka_sink import SINK_PARTITIONS
from integration.exactness.sinks import KAFKA
from integration.kafka_broker import Broker
from kstream.crash_point import JOB_DONE, PLAN_DURABLE, RUNNING


@pytest.mark.timeout(600)
def test_each_record_of_a_killed_job_is_in_the_topic_once(own_kafka: Broker, tmp_path: Path) -> None:
    """Killed before and after a commit of a worker, and around the jobs. The naive producer shows that the kills meet batches."""
    for table in (ONCE, NAIVE):
        own_kafka.create_topic(table, SINK_PARTITIONS)
    own_kafka.create_topic("fed", PARTITIONS)
    sink = KAFKA + own_kafka.bootstrap
    campaign = Campaign(own_kafka.bootstrap, "fed", tmp_path / "job", own_kafka.produce, sink=sink)
    kills = [Kill(IN_WRITE, 1), Kill(RUNNING, 3), Kill(IN_WRITE, 4), Kill(JOB_DONE, 2), Kill(IN_WRITE, 2), Kill(PLAN_DURABLE, 3)]
    verdict = campaign.run(kills)
    assert verdict.breaches == []
    assert verdict.runs_again > 0 and verdict.records > 500
