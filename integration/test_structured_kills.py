"""Three deaths of a driver of `format("kstream")`; twenty of them, and those of executors, are `python -m integration.structured_kills`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from integration.kafka_broker import KafkaBroker
from integration.masters import IN_PROCESS
from integration.structured_kills.campaign import DRIVER, JVM, PARTITIONS, StructuredCampaign
from integration.structured_kills.sink_campaign import TARGET_PARTITIONS, SinkCampaign


@pytest.mark.timeout(300)
def test_a_query_whose_drivers_are_killed_has_each_record_in_one_batch_that_never_changes(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    campaign = StructuredCampaign(kafka, topic(PARTITIONS), IN_PROCESS, tmp_path / "run")
    report = campaign.run({DRIVER: 2, JVM: 1})
    print("\n".join(report.lines_of()))
    assert report.verdict.breaches == [] and report.drivers == 4
    assert report.verdict.records > 1000


@pytest.mark.timeout(300)
def test_a_query_from_kafka_to_kafka_whose_drivers_are_killed_writes_each_batch_once_and_as_a_whole(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Behind a shuffle, with another number of tasks after the kill. Twenty kills are `--sink kstream`."""
    campaign = SinkCampaign(kafka, topic(PARTITIONS), topic(TARGET_PARTITIONS), IN_PROCESS, tmp_path / "run")
    report = campaign.run({JVM: 1})
    print("\n".join(report.lines_of()))
    assert report.verdict.breaches == [] and report.drivers == 2
    assert report.verdict.records > 1000
