"""The back-off of the supervisor."""

from __future__ import annotations

from kstream.cli.supervisor import RestartPolicy


def delays(lives: list[float], policy: RestartPolicy | None = None) -> list[float]:
    """The delays after drivers that have lived so many seconds, one after the other."""
    policy, quick_ends, found = policy or RestartPolicy(), 0, list[float]()
    for lived_s in lives:
        restart = policy.after(quick_ends, lived_s)
        quick_ends = restart.quick_ends
        found.append(restart.delay_s)
    return found


def test_the_delay_doubles_from_a_second_to_a_minute() -> None:
    assert delays([0.0] * 9) == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_after_ten_minutes_of_health_it_begins_anew() -> None:
    assert delays([5, 5, 599.9, 600, 5, 5]) == [1, 2, 4, 1, 2, 4]


def test_a_job_that_fails_for_a_year_waits_a_minute_each_time() -> None:
    assert delays([30.0] * 400_000)[-1] == 60


def test_a_delay_of_nothing_stays_nothing() -> None:
    assert delays([0.0] * 3, RestartPolicy(first_s=0)) == [0, 0, 0]
