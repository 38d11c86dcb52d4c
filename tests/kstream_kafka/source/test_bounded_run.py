"""A bounded run of the direct stream: what its user may say, and what is stored of it. Where it ends is in test_stopping_offsets."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

import pytest
from kstream_kafka import KafkaUtils

from kstream.errors import ConfigurationError
from tests.kstream_kafka.stream import BROKERS, FakeHost, Stream

A, B = ("t", 0), ("t", 1)


def bounded(until: Any) -> Stream:
    return Stream({A: (0, 10), B: (0, 5)}, until=until, auto_offset_reset="earliest")


def test_a_stream_is_exhausted_when_it_has_planned_up_to_the_ends() -> None:
    s = bounded("latest").start()
    assert not s.stream.exhausted
    s.batch()
    assert s.stream.exhausted


@pytest.mark.parametrize(("until", "stored"), [("latest", True), ("-10", True), ({A: 5, B: 5}, False), (datetime.now(timezone.utc), False)])
def test_a_moment_or_offsets_are_not_stored_since_tonights_setup_means_others(until: Any, stored: bool) -> None:
    assert (bounded(until).stream.recipe() is not None) == stored


def test_ends_of_other_topics_and_words_without_meaning_are_refused() -> None:
    host: Any = FakeHost()
    for until in ({("other", 0): 1}, "soon", 5):
        with pytest.raises(ConfigurationError, match="untilOffsets"):
            KafkaUtils.createDirectStream(host, ["t"], BROKERS, untilOffsets=until)
