"""Where logs ended at a time, and how few questions that takes."""

from __future__ import annotations

import random
from collections.abc import Sequence

from kstream.offsets.log_ends import ends_at_times, times_with_records
from kstream.offsets.offset_range import Partition

A, B = ("t", 0), ("t", 1)


class Log:
    """Records with timestamps; answers as Kafka does, and counts."""

    def __init__(self, stamps: dict[Partition, list[int]]) -> None:
        self.stamps = stamps
        self.asked = 0
        self.rounds = 0

    def ask(self, times: Sequence[int]) -> list[dict[Partition, int | None]]:
        self.asked += len(times)
        self.rounds += 1
        return [{p: next((i for i, s in enumerate(stamps) if s >= ms), None) for p, stamps in self.stamps.items()} for ms in times]

    @property
    def latest(self) -> dict[Partition, int]:
        return {p: len(stamps) for p, stamps in self.stamps.items()}


def test_each_time_gets_what_was_written_before_it() -> None:
    log = Log({A: [5, 10, 15, 19, 20], B: [12]})
    ends = ends_at_times(log.ask, [10, 20, 30], log.latest)
    assert ends == {10: {A: 1, B: 0}, 20: {A: 4, B: 1}, 30: {A: 5, B: 1}}
    assert times_with_records([10, 20, 30], ends, {A: 0, B: 0}) == [10, 20, 30]
    assert times_with_records([10, 20, 30], ends, {A: 5, B: 0}) == [20]


def test_the_answer_is_that_of_asking_for_every_time_and_never_takes_more_questions() -> None:
    rng = random.Random(4)
    for _ in range(100):
        log = Log({p: sorted(rng.randrange(200) for _ in range(rng.randrange(6))) for p in (A, B)})
        times = list(range(10, 10 + 10 * rng.randrange(1, 20), 10))
        ends = ends_at_times(log.ask, times, log.latest)
        assert log.asked <= len(times)
        each = [{p: len(log.stamps[p]) if at is None else at for p, at in answer.items()} for answer in log.ask(times)]
        assert [ends[ms] for ms in times] == each


def test_an_idle_night_costs_a_few_questions() -> None:
    log = Log({A: [1, 50_000]})
    ends_at_times(log.ask, list(range(2, 100_002)), log.latest)
    assert log.asked < 60 and log.rounds < 20


def test_no_time_is_no_question() -> None:
    log = Log({A: [1]})
    assert ends_at_times(log.ask, [], log.latest) == {} and log.asked == 0


def test_a_shuffled_log_still_only_rises() -> None:
    log = Log({A: [30, 10, 20, 15, 40]})
    ends = ends_at_times(log.ask, [10, 20, 31, 50], log.latest)
    assert [ends[ms][A] for ms in (10, 20, 31, 50)] == [0, 0, 4, 5]


def test_a_record_from_the_future_hides_the_records_after_it() -> None:
    log = Log({A: [5, 99_999, 7, 8], B: [5]})
    ends = ends_at_times(log.ask, [6, 10, 20], log.latest)
    assert [ends[ms][A] for ms in (6, 10, 20)] == [1, 1, 1]


def test_the_end_is_never_past_the_log_as_first_seen() -> None:
    log = Log({A: [1, 2, 3]})
    assert ends_at_times(log.ask, [3], {A: 1}) == {3: {A: 1}}
