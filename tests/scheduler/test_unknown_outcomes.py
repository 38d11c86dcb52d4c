"""A batch that ends without an outcome."""

from __future__ import annotations

import pytest

from tests.harness import PATIENCE, World, started


def test_a_batch_that_has_no_outcome_has_failed_and_holds_nothing_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """With jobs and without: a batch has one way to end."""
    world = World()
    driver = started(world)
    monkeypatch.setattr(driver.input, "outcome", lambda _time, _plan: 1 / 0)
    driver.tick(1)
    monkeypatch.setattr(driver.host.graph, "generate_jobs", lambda _time: [])
    driver.tick_only(1)
    driver.wait_error(ZeroDivisionError, count=2)
    assert [message for message in driver.messages() if "is not known: the next batch asks again" in message] == driver.messages()
    assert driver.engine._generator._lifecycle.wait_none_running(PATIENCE)
    monkeypatch.undo()
    driver.kill()
    again = started(world)
    again.stop()
    assert sorted({record for attempt in world.attempts for record in attempt.records}) == [0, 1]
