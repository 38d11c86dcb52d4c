"""`saveToKafka` writes each record of a killed job once, for readers of committed records. More kills: `make chaos`."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration.exactness.campaign import IN_WRITE, PARTITIONS, Campaign, Kill
from integration.exactness.changed_code import versions_by_partition
from integration.exactness.kafka_sink import KEYS, REDUCED_PARTITIONS, Code, Written
from integration.exactness.sinks import TOPICS, running_sink
from integration.exactness.verdict import Verdict
from integration.kafka_broker import Broker
from kstream.crash_point import JOB_DONE, PLAN_DURABLE, RUNNING
from kstream.scheduler.settings import RETRIES

KILLS = [Kill(IN_WRITE, 1), Kill(RUNNING, 3), Kill(IN_WRITE, 4), Kill(JOB_DONE, 2), Kill(IN_WRITE, 2), Kill(PLAN_DURABLE, 3)]


def verdict_of(
    kafka: Broker, directory: Path, kills: list[Kill], code: Code | None = None, window: int = 10, conf: dict[str, str] | None = None
) -> Verdict:
    kafka.create_topic("fed", PARTITIONS)
    with running_sink(TOPICS, directory, kafka) as sink:
        campaign = Campaign(
            kafka.bootstrap, "fed", directory / "job", kafka.produce, {RETRIES.key: "5", **(conf or {})}, sink=sink, window=window
        )
        campaign.code = code or campaign.code
        return campaign.run(kills)


@pytest.mark.timeout(600)
def test_each_record_of_a_killed_job_is_in_the_topic_once(own_kafka: Broker, tmp_path: Path) -> None:
    """Killed before and after a commit of a worker, and around the jobs. The naive producer shows that the kills meet batches."""
    verdict = verdict_of(own_kafka, tmp_path, KILLS)
    assert verdict.breaches == []
    assert verdict.runs_again > 0 and verdict.records > 500


@pytest.mark.timeout(600)
def test_other_keys_behind_a_shuffle_are_refused_and_each_record_is_there_once_when_they_are_accepted(
    own_kafka: Broker, tmp_path: Path
) -> None:
    """A driver is killed in the middle of commits. Each partition has the records of one version of the code."""
    code = Code(is_reduced=True, changes=KEYS)
    assert verdict_of(own_kafka, tmp_path, [Kill(IN_WRITE, 2)], code, window=1).breaches == []


@pytest.mark.timeout(600)
def test_each_record_of_the_frames_of_a_killed_job_is_in_the_topic_once(own_kafka: Broker, tmp_path: Path) -> None:
    """A driver is killed in the middle of commits, behind a shuffle of Spark SQL with adaptive execution on."""
    conf = {"spark.sql.shuffle.partitions": str(REDUCED_PARTITIONS)}
    assert verdict_of(own_kafka, tmp_path, [Kill(IN_WRITE, 2)], Code(is_reduced=True, is_frame=True), window=1, conf=conf).breaches == []


def test_the_verdict_tells_the_versions_of_each_partition_of_a_batch() -> None:
    records = [Written(("0:0", "0:1"), 1, 0), Written(("0:2",), 2, 0), Written(("1:0",), 2, 1)]
    batch_of = {"0:0": 1000, "0:1": 1000, "0:2": 1000, "1:0": 1000}
    assert versions_by_partition(records, batch_of) == {(1000, 0): {1, 2}, (1000, 1): {2}}
