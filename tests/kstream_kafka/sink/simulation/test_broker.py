"""The simulated broker keeps transactions and logs as brokers do."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import ProducerFencedError

from .broker import SimulatedBroker, SimulatedLog

TOTALS = ("totals", 0)


@pytest.fixture
def broker() -> SimulatedBroker:
    broker = SimulatedBroker()
    broker.create("totals", 1)
    return broker


def log_of(broker: SimulatedBroker) -> SimulatedLog:
    log = broker.log(TOTALS)
    assert log is not None
    return log


def begun(broker: SimulatedBroker, transactional_id: str, value: bytes, key: bytes | None = None) -> int:
    """Take an id and write a record with it. Return the epoch."""
    epoch = broker.take(transactional_id)
    assert epoch is not None
    broker.write(transactional_id, epoch, 60_000, [(TOTALS, key, value)])
    return epoch


def values(broker: SimulatedBroker) -> list[bytes | None]:
    return [record.value() for record in broker.committed("totals")]


def test_a_transaction_is_seen_when_its_marker_is_written(broker: SimulatedBroker) -> None:
    epoch = begun(broker, "a", b"1")
    broker.end("a", epoch, is_committed=True)
    assert values(broker) == [] and (log_of(broker).stable_end, log_of(broker).end) == (0, 1)
    broker.write_marker(0)
    assert values(broker) == [b"1"] and log_of(broker).stable_end == 2


def test_an_open_transaction_hides_what_is_behind_it(broker: SimulatedBroker) -> None:
    begun(broker, "a", b"1")
    broker.end("b", begun(broker, "b", b"2"), is_committed=True)
    broker.write_marker(0)
    assert values(broker) == []
    broker.time_out(broker.open_transactions()[0])
    broker.write_marker(0)
    assert values(broker) == [b"2"]


def test_who_takes_an_id_ends_its_transaction_once_the_markers_are_written(broker: SimulatedBroker) -> None:
    first = begun(broker, "a", b"1")
    assert broker.take("a") is None and not broker.is_free("a")
    broker.write_marker(0)
    assert broker.is_free("a")
    second = broker.take("a")
    assert second is not None and second > first
    for late in (lambda: broker.end("a", first, is_committed=True), lambda: broker.write("a", first, 0, [(TOTALS, None, b"2")])):
        with pytest.raises(ProducerFencedError):
            late()
    assert values(broker) == []


def test_a_commit_that_is_decided_is_not_undone_by_who_takes_the_id(broker: SimulatedBroker) -> None:
    broker.end("a", begun(broker, "a", b"1"), is_committed=True)
    assert broker.take("a") is None
    broker.write_marker(0)
    assert broker.take("a") is not None and values(broker) == [b"1"]


def test_compaction_keeps_the_newest_record_of_each_key_and_what_is_not_stable(broker: SimulatedBroker) -> None:
    for value in (b"1", b"2"):
        broker.end("a", begun(broker, "a", value, b"key"), is_committed=True)
        broker.write_marker(0)
    broker.end("b", begun(broker, "b", b"of another key", b"other"), is_committed=True)
    broker.write_marker(0)
    begun(broker, "a", b"3", b"key")
    assert log_of(broker).compact() == 4
    assert values(broker) == [b"2", b"of another key"]
    assert [record.value() for record in log_of(broker).records][-1] == b"3" and log_of(broker).end == 7


def test_a_topic_that_is_made_anew_has_another_id_and_nothing_in_it(broker: SimulatedBroker) -> None:
    epoch = begun(broker, "a", b"1")
    before = broker.topics["totals"].id
    broker.delete("totals")
    broker.create("totals", 1)
    assert broker.topics["totals"].id != before and log_of(broker).end == 0
    broker.end("a", epoch, is_committed=True)
    assert broker.markers == [] and broker.take("a") is not None
