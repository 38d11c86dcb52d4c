"""How fast a receiver may be (Spark behaviour RM1)."""

from __future__ import annotations

import threading

import pytest

from kstream.clock import StopFlag
from kstream.receiver.block_generator import RateLimiter
from kstream.testing import ManualClock


class SleepingClock:
    """Waiting moves it on, as for one thread that sleeps."""

    def __init__(self) -> None:
        self.now = 50_000

    def time_ms(self) -> int:
        return self.now

    monotonic_ms = time_ms

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        if not stop.is_set():
            self.now += milliseconds
        return stop.is_set()


def taken_in(limiter: RateLimiter, clock: SleepingClock, milliseconds: int) -> int:
    """Permits that a thread which does nothing else gets in so long."""
    end, taken = clock.now + milliseconds, 0
    while clock.now < end:
        assert limiter.waitToPush()
        taken += clock.now < end
    return taken


@pytest.mark.parametrize(("most", "limit"), [(None, 105), (0, 105), (-1, 105), (110, 105), (100, 100)])
def test_an_update_holds_up_to_the_highest_rate_there_may_be(most: int | None, limit: int) -> None:
    """Spark behaviour RM1."""
    limiter = RateLimiter(SleepingClock(), most)
    limiter.updateRate(105)
    assert limiter.getCurrentLimit() == limit


@pytest.mark.parametrize("rate", [0, -1, -105])
def test_an_update_to_zero_or_less_is_ignored(rate: int) -> None:
    """Spark behaviour RM1."""
    for limiter, limit in ((RateLimiter(SleepingClock(), 110, 50), 50), (RateLimiter(SleepingClock()), None)):
        limiter.updateRate(rate)
        assert limiter.getCurrentLimit() == limit


@pytest.mark.parametrize(
    ("most", "initial", "limit"),
    [(None, None, None), (100, None, 100), (100, 40, 40), (100, 400, 100), (None, 40, 40), (100, 0, 100), (0, 0, None)],
)
def test_the_first_rate_is_the_initial_one_bounded_by_the_highest_and_that_without_it(
    most: int | None, initial: int | None, limit: int | None
) -> None:
    """Spark behaviour RM1."""
    assert RateLimiter(SleepingClock(), most, initial).getCurrentLimit() == limit


@pytest.mark.parametrize("rate", [1, 7, 100, 1001, 25_000])
def test_a_thread_that_does_nothing_else_gets_the_rate(rate: int) -> None:
    clock = SleepingClock()
    assert taken_in(RateLimiter(clock, rate), clock, 2000) == pytest.approx(2 * rate, abs=1 + rate / 1000)


def test_without_a_limit_nobody_waits_until_there_is_one() -> None:
    clock = SleepingClock()
    limiter = RateLimiter(clock)
    for _ in range(1000):
        assert limiter.waitToPush()
    assert clock.now == 50_000
    limiter.updateRate(10)
    assert taken_in(limiter, clock, 1000) == 10


def test_after_a_pause_a_seconds_permits_may_be_taken_at_once_and_no_more() -> None:
    clock = SleepingClock()
    limiter = RateLimiter(clock, 100)
    clock.now += 60_000
    start = clock.now
    for _ in range(101):  # the kept ones, and the one for which the next has to wait
        limiter.waitToPush()
    assert clock.now == start
    limiter.waitToPush()
    assert clock.now == start + 10


def test_kept_permits_are_taken_together_and_no_more_than_are_wanted() -> None:
    clock = SleepingClock()
    limiter = RateLimiter(clock, 100)
    clock.now += 500
    start = clock.now
    assert [limiter.wait_to_push_some(30), limiter.wait_to_push_some(30)] == [30, 20]
    assert limiter.wait_to_push_some(30) == 1 and clock.now == start, "the next one has to wait"
    assert limiter.wait_to_push_some(30) == 1 and clock.now == start + 10


def test_permits_taken_together_keep_the_rate() -> None:
    clock = SleepingClock()
    limiter = RateLimiter(clock, 25_000)
    end, taken = clock.now + 2000, 0
    while clock.now < end:
        taken += limiter.wait_to_push_some(1000)
    assert taken == pytest.approx(50_000, abs=26)


def test_without_a_limit_all_permits_are_taken_together() -> None:
    limiter = RateLimiter(SleepingClock())
    assert limiter.wait_to_push_some(1000) == 1000


def test_a_new_rate_is_that_of_the_next_second() -> None:
    clock = SleepingClock()
    limiter = RateLimiter(clock, 1000)
    assert taken_in(limiter, clock, 1000) == pytest.approx(1000, abs=2)
    limiter.updateRate(50)
    assert taken_in(limiter, clock, 1000) == pytest.approx(50, abs=1)
    limiter.updateRate(500)
    assert taken_in(limiter, clock, 1000) == pytest.approx(500, abs=11)


def test_a_stop_ends_the_wait() -> None:
    clock, stop, answers = ManualClock(), threading.Event(), list[bool]()
    limiter = RateLimiter(clock, 1)
    assert limiter.waitToPush(stop)
    waiter = threading.Thread(target=lambda: answers.append(limiter.waitToPush(stop)))
    waiter.start()
    clock.wait_for_waiters()
    stop.set()
    waiter.join(20)
    assert answers == [False]
