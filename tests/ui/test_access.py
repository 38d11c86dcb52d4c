"""Who may see the page: names of the server, tokens, and the delays of answers to wrong ones."""

from __future__ import annotations

import logging
import threading

import pytest

from kstream.clock import StopFlag
from kstream.testing import ManualClock
from kstream.ui.access import TokenCheck, delay_ms, is_allowed_host, is_loopback


class SteppedClock(ManualClock):
    """A wait moves it, and is noted."""

    def __init__(self) -> None:
        super().__init__(0)
        self.waits: list[int] = []

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self.waits.append(milliseconds)
        self.set_time(self.time_ms() + milliseconds)
        return stop.is_set()


@pytest.mark.parametrize(
    "header", ["localhost", "localhost:4050", "LOCALHOST:9", "127.0.0.1", "127.0.0.1:4050", "[::1]", "[::1]:4050", "127.0.0.2:1"]
)
def test_a_page_of_this_machine_answers_to_the_names_of_this_machine(header: str) -> None:
    assert is_allowed_host(header, "127.0.0.2")


@pytest.mark.parametrize(
    "header", [None, "", "evil.example", "evil.example:4050", "localhost.evil.example", "127.0.0.1.evil.example", "[::2]", "127.0.0.3"]
)
def test_a_page_of_this_machine_answers_to_no_other_name(header: str | None) -> None:
    assert not is_allowed_host(header, "127.0.0.1")


def test_a_page_that_others_reach_answers_to_any_name_as_it_has_a_token() -> None:
    assert is_allowed_host("driver-7.example:4050", "0.0.0.0") and is_allowed_host(None, "10.0.0.7")


@pytest.mark.parametrize(
    ("host", "is_it"),
    [("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("", False), ("driver-7", False)],
)
def test_an_address_of_this_machine_only_is_known(host: str, is_it: bool) -> None:
    assert is_loopback(host) is is_it


def test_each_further_wrong_token_is_answered_later_up_to_two_seconds() -> None:
    assert [delay_ms(n) for n in (1, 2, 3, 4, 5, 6, 100)] == [100, 200, 400, 800, 1600, 2000, 2000]


def test_wrong_tokens_are_counted_and_after_a_minute_without_one_the_delays_begin_anew(caplog: pytest.LogCaptureFixture) -> None:
    clock = SteppedClock()
    check = TokenCheck("right", clock)
    assert all(check.count_wrong("10.0.0.9") for _ in range(3))
    clock.advance(60_001)
    assert check.count_wrong("10.0.0.9")
    assert clock.waits == [100, 200, 400, 100] and check.refused == 4
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "the page has refused a wrong token from 10.0.0.9, the 1. since its start"
    ]


def test_a_token_is_right_or_wrong_whatever_text_it_is() -> None:
    check = TokenCheck("right", ManualClock(0))
    assert check.is_needed and check.is_right("right")
    assert not any(check.is_right(text) for text in ("", "righ", "right ", "ü", "\udcff"))
    assert TokenCheck(None, ManualClock(0)).is_right("any")


def test_a_fifth_wrong_token_does_not_wait_and_an_end_ends_the_waits() -> None:
    clock = ManualClock(0)
    check = TokenCheck("right", clock)
    waiting = [threading.Thread(target=check.count_wrong, args=("10.0.0.9",)) for _ in range(4)]
    for thread in waiting:
        thread.start()
    clock.wait_for_waiters(4)
    assert not check.count_wrong("10.0.0.9")
    assert check.is_right("right")
    check.stop()
    clock.advance(1, wait=False)
    for thread in waiting:
        thread.join(20)
    assert not any(thread.is_alive() for thread in waiting)
