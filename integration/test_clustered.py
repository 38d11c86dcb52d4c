"""Three kills of each kind around a job with state on a cluster; forty of them, and downtimes, are `python -m integration.clustered`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from integration.clustered.campaign import BROKER, DRIVER, EXECUTOR, WORKER, ClusterCampaign
from integration.clustered.catch_up import CatchUp, catch_ups
from integration.clustered.job import WINDOW
from integration.clustered.verdict import expectations
from integration.exactness.job import append_line
from integration.kafka_broker import Broker, KafkaBroker
from integration.masters import IN_PROCESS, Master

KILLS = {EXECUTOR: 3, WORKER: 3, DRIVER: 3, BROKER: 3}


@pytest.mark.timeout(900)
def test_whatever_dies_on_a_cluster_states_and_windows_equal_a_recount(cluster: Master, own_kafka: Broker, tmp_path: Path) -> None:
    assert isinstance(own_kafka, KafkaBroker)
    campaign = ClusterCampaign(own_kafka, cluster, tmp_path / "run", rate=150, interval=3)
    report = campaign.run(KILLS, seconds=60, limit_s=800, least_batches=12)
    print("\n".join(report.lines_of()))
    assert report.breaches == []
    assert report.kills == KILLS and report.restarts == 3
    assert report.recount.plans > 10, "the plans were not compared"


@pytest.mark.timeout(600)
def test_after_a_downtime_records_flow_at_once_and_no_batch_is_empty_while_they_wait(own_kafka: Broker, tmp_path: Path) -> None:
    assert isinstance(own_kafka, KafkaBroker)
    campaign = ClusterCampaign(own_kafka, IN_PROCESS, tmp_path / "run", rate=150, interval=3, behind=10)
    report = campaign.run({DRIVER: 1}, seconds=20, limit_s=500)
    print("\n".join(report.lines_of()))
    assert report.breaches == []
    (restart,) = report.away
    assert restart.judged and restart.late >= 10 and restart.caught_up_s is not None


def test_a_restart_that_took_long_is_too_slow_where_the_job_could_catch_up_after_a_downtime_on_purpose() -> None:
    restart = CatchUp(100.0, late=50, start_s=5.0, caught_up_s=301.0, speed=1.5, first_records=1, empty=0, judged=True)
    assert restart.is_slow and replace(restart, caught_up_s=None).is_slow and restart.breaches == []
    for fine in ({"caught_up_s": 300.0}, {"speed": 1.4}, {"judged": False}):
        assert not replace(restart, **fine).is_slow


def test_the_recount_tells_totals_windows_and_joins_from_ranges() -> None:
    """Keys are the offsets modulo twenty: a range of two whole rounds has two records of each."""
    orders = {1000: [("orders", 0, 0, 40)], 2000: [("orders", 0, 40, 41), ("orders", 1, 0, 1)], 3000: [("orders", 0, 41, 41)]}
    payments = {1000: [("payments", 0, 0, 1)], 2000: [("payments", 0, 1, 1)], 3000: [("payments", 0, 1, 1)]}
    found = expectations(orders, payments, 1000)
    assert found["totals"][2000][:2] == [(0, 4), (1, 2)] and found["mapped"][2000] == [(0, 4)]
    assert found["window"][3000] == found["inverse"][3000] == found["snapshots"][3000] == found["totals"][2000]
    assert found["join"] == {1000: [(0, [2, 1])], 2000: [], 3000: []}
    assert found["frames"] == {1000: [(0, 40)], 2000: [(0, 1), (1, 1)], 3000: []}


def test_a_window_has_fewer_batches_where_an_outage_has_left_some_out() -> None:
    orders = {time: [("orders", 0, offset, offset + 1)] for offset, time in enumerate((1000, 2000, 6000))}
    found = expectations(orders, {}, 1000)["window"]
    assert WINDOW == 5 and found == {1000: [(0, 1)], 2000: [(0, 1), (1, 1)], 6000: [(1, 1), (2, 1)]}


def test_an_empty_batch_counts_while_later_ones_have_records(tmp_path: Path) -> None:
    """The second driver is late all the time. After the last record of the feed nothing waits."""
    ranges = {1000: (0, 5), 2000: (5, 5), 3000: (5, 9), 4000: (9, 9)}
    append_line(tmp_path / "starts.jsonl", {"pid": 1, "at": 1.0})
    append_line(tmp_path / "starts.jsonl", {"pid": 2, "at": 100.0})
    append_line(tmp_path / "ended.jsonl", {"pid": 1, "time": 0, "at": 2.0})
    (tmp_path / "orders").mkdir()
    for time, (start, until) in ranges.items():
        append_line(tmp_path / "orders" / "attempts.jsonl", {"pid": 2, "time": time, "ranges": [["orders", 0, start, until]], "at": 101.0})
        append_line(tmp_path / "ended.jsonl", {"pid": 2, "time": time, "at": 102.0})
    (restart,) = catch_ups(tmp_path, interval=1.0, rate=100, behind=5)
    assert restart.judged and restart.empty == 1 and restart.caught_up_s is None
