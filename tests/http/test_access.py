"""Who may see the page: names of the server, tokens, and the delays of answers to wrong ones."""

from __future__ import annotations

import logging
import threading

import pytest

from kstream.http.access import TokenAnswer, TokenCheck, delay_ms, is_allowed_host, is_loopback
from kstream.testing import ManualClock
from tests.clocks import SteppedClock


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
    check = TokenCheck("right", clock, "the page")
    verdicts = [check.check(f"guess {n}", "10.0.0.9") for n in range(3)]
    clock.advance(60_001)
    verdicts.append(check.check("guess 3", "10.0.0.9"))
    assert verdicts == [TokenAnswer.WRONG] * 4
    assert clock.waits == [100, 200, 400, 100] and check.refused == 4
    assert [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING] == [
        "the page has refused a wrong token from 10.0.0.9, the 1. since its start"
    ]


def test_a_token_is_right_or_wrong_whatever_text_it_is() -> None:
    check = TokenCheck("right", SteppedClock(), "the page")
    assert check.is_needed and check.check("right", "10.0.0.1") is TokenAnswer.RIGHT
    assert {check.check(text, "10.0.0.1") for text in ("", "righ", "right ", "ü", "\udcff")} == {TokenAnswer.WRONG}
    assert TokenCheck(None, ManualClock(0), "the page").check("any", "10.0.0.1") is TokenAnswer.RIGHT


def test_a_fifth_wrong_token_does_not_wait_and_an_end_ends_the_waits() -> None:
    clock = ManualClock(0)
    check = TokenCheck("right", clock, "the page")
    waiting = [threading.Thread(target=check.check, args=("wrong", "10.0.0.9")) for _ in range(4)]
    for thread in waiting:
        thread.start()
    clock.wait_for_waiters(4)
    assert check.check("wrong", "10.0.0.9") is TokenAnswer.TOO_MANY
    assert check.check("right", "10.0.0.1") is TokenAnswer.RIGHT
    check.stop()
    clock.advance(1, wait=False)
    for thread in waiting:
        thread.join(20)
    assert not any(thread.is_alive() for thread in waiting)


GUESSES = 20
"""How many guesses are compared at once."""


@pytest.fixture
def undelayed() -> TokenCheck:
    """Its answers do not come late, and its clock stands still."""
    check = TokenCheck("right", ManualClock(0), "the page")
    check.stop()
    return check


def test_many_clients_together_make_twenty_guesses_and_then_one_a_second() -> None:
    clock = ManualClock(0)
    check = TokenCheck("right", clock, "the page")
    check.stop()
    clients = [f"10.0.{n // 250}.{n % 250}" for n in range(1000)]
    verdicts = [check.check(f"guess {n}", client) for n, client in enumerate(clients)]
    assert verdicts == [TokenAnswer.WRONG] * GUESSES + [TokenAnswer.TOO_MANY] * 980 and check.refused == GUESSES
    clock.advance(3000)
    verdicts = [check.check(f"later guess {n}", client) for n, client in enumerate(clients)]
    assert verdicts == [TokenAnswer.WRONG] * 3 + [TokenAnswer.TOO_MANY] * 997


def test_a_machine_that_is_up_for_days_allows_no_more_guesses_at_once() -> None:
    clock = ManualClock(5 * 24 * 3600 * 1000)
    check = TokenCheck("right", clock, "the page")
    check.stop()
    verdicts = [check.check(f"guess {n}", "10.0.0.9") for n in range(1000)]
    assert verdicts == [TokenAnswer.WRONG] * GUESSES + [TokenAnswer.TOO_MANY] * 980
    clock.advance(5 * 24 * 3600 * 1000)
    verdicts = [check.check(f"later guess {n}", "10.0.0.9") for n in range(1000)]
    assert verdicts == [TokenAnswer.WRONG] * GUESSES + [TokenAnswer.TOO_MANY] * 980


def test_the_right_guess_is_told_from_no_other_one_once_there_were_too_many(undelayed: TokenCheck) -> None:
    for n in range(GUESSES):
        undelayed.check(f"guess {n}", "10.0.0.9")
    assert undelayed.check("right", "10.0.0.9") is undelayed.check("wrong", "10.0.0.9") is TokenAnswer.TOO_MANY


def test_an_address_that_has_shown_the_right_token_is_not_kept_out_by_guesses_of_others(undelayed: TokenCheck) -> None:
    assert undelayed.check("right", "10.0.0.1") is TokenAnswer.RIGHT
    for n in range(1000):
        undelayed.check(f"guess {n}", "10.0.0.9")
    assert [undelayed.check("right", "10.0.0.1") for _ in range(1000)] == [TokenAnswer.RIGHT] * 1000


def test_who_guesses_from_an_address_that_has_shown_the_right_token_has_no_more_guesses(undelayed: TokenCheck) -> None:
    """Behind a proxy all have one address."""
    undelayed.check("right", "127.0.0.1")
    verdicts = [undelayed.check(f"guess {n}", "127.0.0.1") for n in range(100)]
    assert verdicts == [TokenAnswer.WRONG] * GUESSES + [TokenAnswer.TOO_MANY] * 80
    assert undelayed.check("right", "127.0.0.1") is TokenAnswer.TOO_MANY
    assert undelayed.check("right", "127.0.0.1", undelayed.proof) is TokenAnswer.RIGHT
    assert undelayed.check("right", "127.0.0.1", "another proof") is TokenAnswer.TOO_MANY


def test_the_same_wrong_token_again_and_again_keeps_nobody_out(undelayed: TokenCheck) -> None:
    """Pages that are open with the token of an earlier driver ask for ever."""
    assert {undelayed.check("of yesterday", f"10.0.0.{n}") for n in range(200)} == {TokenAnswer.WRONG}
    assert undelayed.check("right", "10.0.1.1") is TokenAnswer.RIGHT


def test_what_is_remembered_of_clients_and_tokens_has_bounds() -> None:
    clock = ManualClock(0)
    check = TokenCheck("right", clock, "the page")
    check.stop()
    for n in range(3000):
        check.check("right", f"address {n}")
        check.check(f"guess {n}", "10.0.0.9")
        clock.advance(1000)
    assert len(check._known) == len(check._wrong) == 1000
    for n in range(GUESSES):
        check.check(f"last guess {n}", "10.0.0.9")
    assert check.check("right", "address 2999") is TokenAnswer.RIGHT and check.check("right", "address 0") is TokenAnswer.TOO_MANY
