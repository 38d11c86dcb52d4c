"""A bounded run: where it ends, that it ends, and that a restart ends at the same place."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from kstream_kafka.errors import KafkaConfigError

from tests.kstream_kafka.planner import Logs, Planner, limited_to

A, B = ("t", 0), ("t", 1)


def bounded(until: Any, logs: Logs | None = None, **options: Any) -> Planner:
    return Planner(logs or {A: (0, 10), B: (0, 5)}, until=until, auto_offset_reset="earliest", **options)


def test_up_to_latest_means_the_ends_of_the_first_start() -> None:
    p = bounded("latest").start()
    assert not p.planner.exhausted
    p.client.logs.update({A: (0, 100), B: (0, 100)})
    assert p.batch() == [["t", 0, 0, 10], ["t", 1, 0, 5]]
    assert p.planner.exhausted


def test_the_ends_are_part_of_every_plan_so_that_a_restart_in_the_middle_keeps_them() -> None:
    p = bounded("latest", limits=limited_to(4)).start()
    data = p.plan()
    assert data["until"] == [["t", 0, 10], ["t", 1, 5]]
    again = bounded("latest", limits=limited_to(4), logs={A: (0, 100), B: (0, 100)})
    again.restore(data).start()
    assert [again.batch(), again.batch()][-1] == [["t", 0, 8, 10], ["t", 1, 5, 5]]
    assert again.planner.exhausted


def test_a_run_after_one_that_reached_its_ends_is_a_new_run() -> None:
    done = {"ranges": [["t", 0, 0, 10], ["t", 1, 0, 5]], "until": [["t", 0, 10], ["t", 1, 5]]}
    p = bounded("latest", logs={A: (0, 30), B: (0, 5), ("t", 2): (0, 7)})
    p.restore(done)
    assert p.start().batch() == [["t", 0, 10, 30], ["t", 1, 5, 5], ["t", 2, 0, 7]]
    assert p.planner.exhausted


def test_a_run_without_bounds_forgets_those_of_the_one_before() -> None:
    p = Planner({A: (0, 30)})
    p.restore({"ranges": [["t", 0, 0, 10]], "until": [["t", 0, 10]]})
    assert p.start().batch() == [["t", 0, 10, 30]]
    assert not p.planner.exhausted


def test_offsets_that_are_not_written_yet_are_waited_for() -> None:
    p = bounded({A: 12, B: 5}).start()
    assert p.batch() == [["t", 0, 0, 10], ["t", 1, 0, 5]]
    assert not p.planner.exhausted
    p.client.logs[A] = (0, 20)
    assert p.batch()[0] == ["t", 0, 10, 12]
    assert p.planner.exhausted


def test_a_time_that_has_passed_is_an_offset_at_once() -> None:
    p = bounded(datetime.fromtimestamp(0.5, timezone.utc))
    p.client.times = {A: [(499, 3), (501, 7)], B: []}
    p.clock.advance(1000)
    assert p.start().batch() == [["t", 0, 0, 7], ["t", 1, 0, 5]]
    assert p.planner.exhausted


def test_a_time_to_come_bounds_the_first_batch_at_or_after_it() -> None:
    p = bounded(datetime.fromtimestamp(2, timezone.utc))
    p.client.times = {A: [(2000, 13)], B: []}
    p.start()
    p.clock.advance(1000)
    assert p.batch()[0] == ["t", 0, 0, 10]
    p.client.logs[A] = (0, 40)
    p.clock.advance(1000)
    assert p.batch() == [["t", 0, 10, 13], ["t", 1, 5, 5]]
    assert p.planner.exhausted


def test_a_batch_that_comes_late_does_not_run_past_a_moment_that_has_come() -> None:
    p = bounded(datetime.fromtimestamp(2, timezone.utc))
    p.client.times = {A: [(2000, 13)], B: []}
    p.start()
    p.client.logs[A] = (0, 100)
    p.clock.advance(9000)
    assert p.batch()[0] == ["t", 0, 0, 13]


def test_a_partition_that_comes_while_the_end_is_a_moment_ahead_is_none_of_this_runs() -> None:
    p = bounded({A: datetime.fromtimestamp(2, timezone.utc)}, logs={A: (0, 10)}, metadata_max_age_ms=0).start()
    p.client.logs[B] = (0, 5)
    p.client.times = {A: [(2000, 7)]}
    p.clock.advance(2000)
    assert p.batch() == [["t", 0, 0, 7], ["t", 1, 0, 0]]
    assert p.planner.exhausted


def test_topics_no_longer_read_do_not_keep_a_run_from_ending() -> None:
    p = bounded("latest", logs={A: (0, 10)})
    p.restore({"ranges": [["t", 0, 0, 4], ["old", 0, 0, 4]], "until": [["t", 0, 10], ["old", 0, 10]]})
    assert p.start().batch() == [["t", 0, 4, 10]]
    assert p.planner.exhausted


def test_a_bound_before_the_start_is_nothing_to_read() -> None:
    p = bounded({A: 3, B: 3}, given={A: 5, B: 5}).start()
    assert p.planner.exhausted


def test_no_more_partitions_are_looked_for_once_the_ends_are_known() -> None:
    p = bounded("latest", metadata_max_age_ms=0).start()
    p.client.logs["t", 2] = (0, 9)
    assert len(p.batch()) == 2
    assert "partitions" not in p.client.asked[1:]


def test_a_partition_without_an_end_is_an_error_that_names_it() -> None:
    with pytest.raises(KafkaConfigError, match=r"untilOffsets.*'t', 1"):
        bounded({A: 3}).start()
