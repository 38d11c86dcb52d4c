"""The schedules of tests/simulator/test_schedules.py, eight thousand further ones: ten thousand in all. They compute for minutes."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager

import pytest

from tests.simulator import simulate
from tests.simulator.kafka import KafkaSource


@contextmanager
def on_one_core() -> Generator[None]:
    """A baton that goes from core to core takes twice the time."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


@pytest.mark.timeout(1200)
def test_eight_thousand_further_schedules_of_the_direct_stream_break_nothing() -> None:
    """On one core: the other belongs to the tests beside."""
    with on_one_core():
        report = simulate(KafkaSource, schedules=8_000, first_seed=2_000)
    assert report.schedules == 8_000
    assert report.drivers > 16_000 and report.attempts > report.batches > 80_000  # there was something to break
