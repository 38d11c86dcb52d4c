"""Brokers and drivers that die under load: three quarters of a minute of it; the long campaign is `python -m integration.chaos`."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from integration.chaos.campaign import DRIVER, ChaosCampaign
from integration.kafka_cluster import KafkaCluster


@pytest.mark.timeout(600)
def test_leaders_and_drivers_killed_under_load_cost_no_record_and_change_no_range(kafka_cluster: KafkaCluster, tmp_path: Path) -> None:
    campaign = ChaosCampaign(kafka_cluster, f"chaos-{uuid.uuid4().hex[:8]}", tmp_path, rate=2000)
    report = campaign.unleash(seconds=45, kills={DRIVER: 2}, leader_kill_every_s=15)
    print("\n".join(report.lines()))
    assert report.verdict.breaches == []
    assert report.kills[DRIVER] == 2 and report.leader_kills >= 1
    assert report.verdict.records > 20_000
    assert report.driver_ends == {}, "the death of a leader ended the driver"
