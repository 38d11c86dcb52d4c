"""One consumer per worker process, lent and taken back."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.reader.consumer_cache import ConsumerCache

from tests.kstream_kafka.fakes import FakeConsumer


class Maker:
    def __init__(self) -> None:
        self.made: list[FakeConsumer] = []

    def __call__(self, settings: Any) -> FakeConsumer:
        self.made.append(FakeConsumer())
        return self.made[-1]


@pytest.fixture
def maker() -> Maker:
    return Maker()


@pytest.fixture
def cache(maker: Maker) -> ConsumerCache:
    return ConsumerCache(maker)


def test_a_consumer_is_kept_between_tasks_and_left_unassigned(cache: ConsumerCache, maker: Maker):
    for attempt in (1, 2):
        with cache.lend({"a": 1}, attempt) as consumer:
            assert consumer is maker.made[0]
    assert maker.made[0].unassigned == 2 and not maker.made[0].closed


def test_each_configuration_has_its_own(cache: ConsumerCache, maker: Maker):
    with cache.lend({"a": 1}, 1):
        pass
    with cache.lend({"a": 2}, 2):
        pass
    assert len(maker.made) == 2


def test_KC1_a_task_tried_again_gets_a_fresh_consumer_and_the_cached_one_is_dropped(cache: ConsumerCache, maker: Maker):
    with cache.lend({}, 1):
        pass
    with cache.lend({}, 2, retry=True) as fresh:
        assert fresh is maker.made[1] and maker.made[0].closed
    assert maker.made[1].closed
    with cache.lend({}, 3) as third:
        assert third is maker.made[2]


def test_a_read_that_failed_drops_its_consumer(cache: ConsumerCache, maker: Maker):
    with pytest.raises(ValueError), cache.lend({}, 1):
        raise ValueError
    assert maker.made[0].closed
    with cache.lend({}, 2) as fresh:
        assert fresh is maker.made[1]


def test_a_read_abandoned_half_way_gives_the_consumer_back(cache: ConsumerCache, maker: Maker):
    def reading():
        with cache.lend({}, 1):
            yield 1
            yield 2

    generator = reading()
    next(generator)
    generator.close()
    assert maker.made[0].unassigned == 1 and not maker.made[0].closed


def test_a_loan_given_back_late_does_not_disturb_the_next_task(cache: ConsumerCache, maker: Maker):
    late = cache.lend({}, 1)
    late.__enter__()
    with cache.lend({}, 2) as consumer:
        assert consumer is maker.made[0]
        late.__exit__(None, None, None)
        assert maker.made[0].unassigned == 0
    assert maker.made[0].unassigned == 1


def test_one_task_reading_two_ranges_in_turns_has_two_consumers(cache: ConsumerCache, maker: Maker):
    with cache.lend({}, 1) as one, cache.lend({}, 1) as other:
        assert one is not other
    assert maker.made[1].closed and not maker.made[0].closed


def test_a_forked_child_makes_its_own_and_leaves_the_parents_alone(cache: ConsumerCache, maker: Maker, monkeypatch: pytest.MonkeyPatch):
    with cache.lend({}, 1):
        pass
    monkeypatch.setattr("os.getpid", lambda: -1)
    with cache.lend({}, 2) as child:
        assert child is maker.made[1]
    cache.close()
    assert not maker.made[0].closed and maker.made[0].unassigned == 1 and maker.made[1].closed


def test_callbacks_unpickled_anew_in_each_task_do_not_make_new_consumers(cache: ConsumerCache, maker: Maker):
    for attempt in (1, 2):
        with cache.lend({"oauth_cb": lambda _: ("token", 0.0)}, attempt):
            pass
    assert len(maker.made) == 1
