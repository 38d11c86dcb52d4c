"""A bounded run: where it ends, that it ends, and that a restart ends at the same place."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from kstream_kafka.errors import KafkaConfigError

from kstream.batch_time import Time
from kstream.errors import ConfigurationError
from tests.kstream_kafka.fakes import FakeHost
from tests.kstream_kafka.stream import BROKERS, Logs, Stream

A, B = ("t", 0), ("t", 1)


def bounded(until: Any, logs: Logs | None = None, **options: Any) -> Stream:
    return Stream(logs or {A: (0, 10), B: (0, 5)}, until=until, auto_offset_reset="earliest", **options)


def test_up_to_latest_means_the_ends_of_the_first_start() -> None:
    s = bounded("latest").start()
    assert not s.stream.exhausted
    s.client.logs.update({A: (0, 100), B: (0, 100)})
    assert s.batch() == [["t", 0, 0, 10], ["t", 1, 0, 5]]
    assert s.stream.exhausted


def test_the_ends_are_part_of_every_plan_so_that_a_restart_in_the_middle_keeps_them() -> None:
    conf = {"spark.streaming.kafka.maxRatePerPartition": "4"}
    s = bounded("latest", conf=conf).start()
    data = s.plan()
    assert data["until"] == [["t", 0, 10], ["t", 1, 5]]
    again = bounded("latest", conf=conf, logs={A: (0, 100), B: (0, 100)})
    again.stream.restored(Time(1000), again.stream.decode(data))
    again.start()
    assert [again.batch(), again.batch()][-1] == [["t", 0, 8, 10], ["t", 1, 5, 5]]
    assert again.stream.exhausted


def test_a_run_after_one_that_reached_its_ends_is_a_new_run() -> None:
    done = {"ranges": [["t", 0, 0, 10], ["t", 1, 0, 5]], "until": [["t", 0, 10], ["t", 1, 5]]}
    s = bounded("latest", logs={A: (0, 30), B: (0, 5), ("t", 2): (0, 7)})
    s.stream.restored(Time(1000), s.stream.decode(done))
    assert s.start().batch() == [["t", 0, 10, 30], ["t", 1, 5, 5], ["t", 2, 0, 7]]
    assert s.stream.exhausted


def test_a_run_without_bounds_forgets_those_of_the_one_before() -> None:
    s = Stream({A: (0, 30)})
    s.stream.restored(Time(1000), s.stream.decode({"ranges": [["t", 0, 0, 10]], "until": [["t", 0, 10]]}))
    assert s.start().batch() == [["t", 0, 10, 30]]
    assert not s.stream.exhausted


def test_offsets_that_are_not_written_yet_are_waited_for() -> None:
    s = bounded({A: 12, B: 5}).start()
    assert s.batch() == [["t", 0, 0, 10], ["t", 1, 0, 5]]
    assert not s.stream.exhausted
    s.client.logs[A] = (0, 20)
    assert s.batch()[0] == ["t", 0, 10, 12]
    assert s.stream.exhausted


def test_a_time_that_has_passed_is_an_offset_at_once() -> None:
    s = bounded(datetime.fromtimestamp(0.5, timezone.utc))
    s.client.times = {A: [(499, 3), (501, 7)], B: []}
    s.clock.advance(1000)
    assert s.start().batch() == [["t", 0, 0, 7], ["t", 1, 0, 5]]
    assert s.stream.exhausted


def test_a_time_to_come_bounds_the_first_batch_at_or_after_it() -> None:
    s = bounded(datetime.fromtimestamp(2, timezone.utc))
    s.client.times = {A: [(2000, 13)], B: []}
    s.start()
    s.clock.advance(1000)
    assert s.batch()[0] == ["t", 0, 0, 10]
    s.client.logs[A] = (0, 40)
    s.clock.advance(1000)
    assert s.batch() == [["t", 0, 10, 13], ["t", 1, 5, 5]]
    assert s.stream.exhausted


def test_a_batch_that_comes_late_does_not_run_past_a_moment_that_has_come() -> None:
    s = bounded(datetime.fromtimestamp(2, timezone.utc))
    s.client.times = {A: [(2000, 13)], B: []}
    s.start()
    s.client.logs[A] = (0, 100)
    s.clock.advance(9000)
    assert s.batch()[0] == ["t", 0, 0, 13]


def test_a_partition_that_comes_while_the_end_is_a_moment_ahead_is_none_of_this_runs() -> None:
    s = bounded({A: datetime.fromtimestamp(2, timezone.utc)}, logs={A: (0, 10)}, metadata_max_age_ms=0).start()
    s.client.logs[B] = (0, 5)
    s.client.times = {A: [(2000, 7)]}
    s.clock.advance(2000)
    assert s.batch() == [["t", 0, 0, 7], ["t", 1, 0, 0]]
    assert s.stream.exhausted


def test_topics_no_longer_read_do_not_keep_a_run_from_ending() -> None:
    s = bounded("latest", logs={A: (0, 10)})
    s.stream.restored(Time(1000), s.stream.decode({"ranges": [["t", 0, 0, 4], ["old", 0, 0, 4]], "until": [["t", 0, 10], ["old", 0, 10]]}))
    assert s.start().batch() == [["t", 0, 4, 10]]
    assert s.stream.exhausted


@pytest.mark.parametrize(("until", "stored"), [("latest", True), ("-10", True), ({A: 5, B: 5}, False), (datetime.now(timezone.utc), False)])
def test_a_moment_or_offsets_are_not_stored_since_tonights_setup_means_others(until: Any, stored: bool) -> None:
    assert (bounded(until).stream.recipe() is not None) == stored


def test_a_bound_before_the_start_is_nothing_to_read() -> None:
    s = bounded({A: 3, B: 3}, given={A: 5, B: 5}).start()
    assert s.stream.exhausted


def test_no_more_partitions_are_looked_for_once_the_ends_are_known() -> None:
    s = bounded("latest", metadata_max_age_ms=0).start()
    s.client.logs["t", 2] = (0, 9)
    assert len(s.batch()) == 2
    assert "partitions" not in s.client.asked[1:]


def test_a_partition_without_an_end_is_an_error_that_names_it() -> None:
    with pytest.raises(KafkaConfigError, match=r"untilOffsets.*'t', 1"):
        bounded({A: 3}).start()


def test_ends_of_other_topics_and_words_without_meaning_are_refused() -> None:
    host: Any = FakeHost()
    for until in ({("other", 0): 1}, "soon", 5):
        with pytest.raises(ConfigurationError, match="untilOffsets"):
            KafkaUtils.createDirectStream(host, ["t"], BROKERS, untilOffsets=until)
