"""Records of claimed partitions in chunks, with the offsets behind them."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import KafkaConfigError, KafkaError
from kstream_kafka.zookeeper.group_reader import GroupReader

from tests.kstream_kafka.fakes import FakeClient, FakeConsumer, Message, records
from tests.kstream_kafka.zookeeper.fakes import settings


class Made:
    """A reader with its fakes; `settings` are those its consumer was made with."""

    def __init__(self, script: Any = (), **more: Any) -> None:
        self.consumer = FakeConsumer(script)
        self.client = FakeClient({("t", 0): (3, 9), ("t", 1): (0, 4), ("u", 0): (0, 1)})
        self.settings: dict[str, Any] = {}
        self.reader = GroupReader(settings(**more), self._consumer, lambda: self.client)

    def _consumer(self, given: Any) -> FakeConsumer:
        self.settings = dict(given)
        return self.consumer


def test_a_chunk_has_the_raw_pairs_and_the_next_offset_of_each_partition() -> None:
    made = Made([[*records([3, 4]), *records([0], where=("t", 1)), *records([7])]])
    made.reader.assign({("t", 0): 3, ("t", 1): 0})
    chunk = made.reader.read(10)
    assert chunk.records == [(None, b"3"), (None, b"4"), (None, b"0"), (None, b"7")]
    assert chunk.offsets == made.reader.positions == {("t", 0): 8, ("t", 1): 1}
    assert list(chunk.places()) == [(("t", 0), 3), (("t", 0), 4), (("t", 1), 0), (("t", 0), 7)]
    assert made.consumer.assigned == [("t", 0, 3, None), ("t", 1, 0, None)]


def test_topics_are_told_apart() -> None:
    made = Made([[*records([3]), *records([5], where=("u", 0))]], topics={"t": 1, "u": 1})
    made.reader.assign({("t", 0): 3, ("u", 0): 5})
    assert made.reader.read(10).offsets == {("t", 0): 4, ("u", 0): 6}


def test_the_consumer_knows_no_group_and_commits_nothing() -> None:
    made = Made(group_id="other")
    made.reader.assign({("t", 0): 0})
    assert made.settings["enable.auto.commit"] == "false" and made.settings["auto.offset.reset"] == "error"
    assert made.settings["enable.partition.eof"] == "false"


def test_a_position_the_log_does_not_have_is_told_and_the_records_beside_it_are_kept() -> None:
    made = Made(
        [[Message(3, problem=FetchErrorKind.OUT_OF_RANGE), Message(0, problem=FetchErrorKind.RETRIABLE), *records([1], where=("t", 1))]]
    )
    made.reader.assign({("t", 0): 3, ("t", 1): 1})
    chunk = made.reader.read(10)
    assert chunk.out_of_range == [("t", 0)] and chunk.offsets == {("t", 1): 2} and len(chunk.records) == 1


def test_what_does_not_pass_is_an_error() -> None:
    made = Made([[Message(3, problem=FetchErrorKind.FATAL)]])
    made.reader.assign({("t", 0): 3})
    with pytest.raises(KafkaError, match="t-0 cannot be read any more"):
        made.reader.read(10)


@pytest.mark.parametrize(("reset", "expected"), [("smallest", 3), ("largest", 9), ("earliest", 3), ("latest", 9)])
def test_without_an_offset_auto_offset_reset_says_where_to_begin(reset: str, expected: int) -> None:
    made = Made(auto_offset_reset=reset)
    assert made.reader.initial_offsets({("t", 0)}) == {("t", 0): expected}


def test_without_an_offset_and_with_a_reset_of_none_it_is_an_error() -> None:
    made = Made(auto_offset_reset="none")
    assert made.reader.initial_offsets(set()) == {}
    with pytest.raises(KafkaConfigError, match="no offset to begin t-0 at"):
        made.reader.initial_offsets({("t", 0)})


def test_all_partitions_of_the_topics_are_known_and_none_of_others() -> None:
    assert Made().reader.partitions() == {("t", 0), ("t", 1)}


def test_clients_are_made_when_they_are_needed_and_closed() -> None:
    made = Made()
    made.reader.close()
    assert not made.settings and not made.consumer.closed
    made.reader.assign({("t", 0): 3})
    made.reader.assign({})
    assert made.consumer.unassigned == 1
    made.reader.partitions()
    made.reader.close()
    assert made.consumer.closed and made.client.closed
