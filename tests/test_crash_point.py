"""The points at which a test may kill a driver, from the environment or by a hook."""

from __future__ import annotations

import signal
import threading

import pytest

from kstream import crash_point


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """What threads of this process would have been sent."""
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(signal, "pthread_kill", lambda thread, how: sent.append((thread, how)))
    return sent


def test_nobody_listens_by_default() -> None:
    crash_point.reach(crash_point.RUNNING)


def test_a_hook_hears_every_point_until_it_is_taken_away() -> None:
    seen: list[str] = []
    crash_point.install(seen.append)
    crash_point.reach(crash_point.RUNNING)
    crash_point.install(None)
    crash_point.reach(crash_point.RUNNING)
    assert seen == ["running"]


@pytest.mark.parametrize(
    ("spec", "dies_at", "how"),
    [("running", 1, signal.SIGKILL), ("running:3", 3, signal.SIGKILL), ("running:2:SIGSTOP", 2, signal.SIGSTOP)],
)
def test_the_environment_names_the_point_the_time_and_the_signal(
    monkeypatch: pytest.MonkeyPatch, signals: list[tuple[int, int]], spec: str, dies_at: int, how: int
) -> None:
    monkeypatch.setenv(crash_point.VARIABLE, spec)
    crash_point.install_from_environment()
    for time in range(1, 5):
        crash_point.reach(crash_point.BEFORE_PLAN)
        crash_point.reach(crash_point.RUNNING)
        assert len(signals) == (time >= dies_at)
    assert signals == [(threading.get_ident(), how)], "the thread that reaches the point cannot pass it"


def test_a_point_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash_point.VARIABLE, "nowhere:1")
    with pytest.raises(ValueError, match=r"nowhere.*before-plan"):
        crash_point.install_from_environment()


def test_a_signal_that_does_not_exist_is_refused_with_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(crash_point.VARIABLE, "running:1:SIGNONE")
    with pytest.raises(ValueError, match=r"KSTREAM_CRASH_AT.*SIGNONE.*SIGKILL"):
        crash_point.install_from_environment()
