"""The schedules of tests/simulator/test_schedules.py, eight thousand further ones: ten thousand in all. They compute for minutes."""

from __future__ import annotations

import pytest
from kstream_kafka.simulation import KafkaSource

from kstream.testing.simulator import simulate


@pytest.mark.timeout(1200)
def test_eight_thousand_further_schedules_of_the_direct_stream_break_nothing() -> None:
    """In one process: the other core belongs to the tests beside."""
    report = simulate(KafkaSource, schedules=8_000, first_seed=2_000)
    assert report.schedules == 8_000
    assert report.drivers > 16_000 and report.attempts > report.batches > 80_000  # there was something to break
