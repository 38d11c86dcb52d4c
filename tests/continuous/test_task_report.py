"""What a task tells of its epochs."""

from __future__ import annotations

import json

from kstream.continuous.task_report import LATENCIES_MS, TaskReport, latencies_of

T0 = ("t", 0)
T1 = ("t", 1)


def test_reports_are_added_up_and_the_later_positions_count() -> None:
    first = TaskReport({T0: 5, T1: 1}, 1, 4, 40, 100, latencies_of(3))
    both = first.plus(TaskReport({T0: 9}, 2, 6, 60, None, latencies_of(3)))
    assert (both.positions, both.epochs, both.records, both.num_bytes, both.newest_ms) == ({T0: 9, T1: 1}, 3, 10, 100, 100)
    assert sum(both.latencies) == 2


def test_a_report_comes_through_a_message_as_it_was() -> None:
    report = TaskReport({T0: 5, T1: 1}, 1, 4, 40, 100, latencies_of(3))
    assert TaskReport.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_a_percentile_is_the_end_of_a_range() -> None:
    report = TaskReport()
    assert report.percentile_ms(0.5) is None
    for latency in (*[4] * 98, 700, 10**9):
        report = report.plus(TaskReport(latencies=latencies_of(latency)))
    assert [report.percentile_ms(share) for share in (0.5, 0.98, 0.99, 1.0)] == [5, 5, 1000, LATENCIES_MS[-1]]


def test_the_end_of_a_range_is_in_it_and_a_clock_that_is_behind_makes_no_latency() -> None:
    assert TaskReport(latencies=latencies_of(100)).percentile_ms(1) == 100
    assert TaskReport(latencies=latencies_of(-7)).percentile_ms(1) == LATENCIES_MS[0]
