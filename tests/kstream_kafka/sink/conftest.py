"""What the tests of the sink share."""

from __future__ import annotations

import pytest

from .fake_kafka import installed
from .jobs import TOTALS, Jobs


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> Jobs:
    kafka = installed(monkeypatch)
    monkeypatch.setattr("kstream_kafka.sink.kafka_output.is_one_to_one", lambda rdd: not rdd.is_shuffled)
    kafka.create(TOTALS, 3)
    return Jobs(kafka)
