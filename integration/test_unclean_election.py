"""Unclean leader elections, on three real nodes: a log that was cut below a planned range is an error, never silently other records.

The follower of a partition lags behind, the leader alone takes records, a plan is made of them; then the leader dies and the follower,
with its shorter log, takes over.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import KafkaRDD, OffsetRange, value_only
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.range_reads import RangeReads

from integration.kafka_cluster import KafkaCluster
from integration.kafka_handle import QUIET, produce_all
from integration.reading import wait_until

pytestmark = pytest.mark.timeout(300)

LEADER, FOLLOWER = 1, 2
UNCLEAN = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
KEPT, PLANNED, AGAIN = 100, 300, 400
"""The log's end on both nodes; on the leader alone, when the plans are made; on the new leader after more records came."""
REFUSED = r"LogTruncatedError: .*(epoch|written again)"
"""In which words depends on whether the client asked the broker about the epoch before the first records came."""


@dataclass
class Cut:
    """A log that was cut. `epoch` is the leader's when the plans were made."""

    cluster: KafkaCluster
    topic: str
    epoch: int | None

    def write(self, until: int, what: str) -> None:
        """Records up to that offset, on all replicas that are in sync: they say what they are."""
        end = self.cluster.log_range(self.topic)[1]
        producer = Producer({"bootstrap.servers": self.cluster.bootstrap, "acks": "all", **QUIET})
        produce_all(producer, self.topic, [(None, f"{what} {at}", 0) for at in range(end, until)])

    def read(self, sc: Any, start: int, until: int) -> list[str]:
        """The range as a task of a batch reads it that was planned before the election."""
        params = KafkaParams.parse({"bootstrap.servers": self.cluster.bootstrap})
        wanted = OffsetRange(self.topic, 0, start, until)
        reads = RangeReads.of([RangeSplit(wanted, self.epoch)], params.executor(), 30_000)
        return KafkaRDD(sc, [wanted], reads, Decoding(message_handler=value_only)).collect()


@pytest.fixture(scope="module")
def cut(_cluster: KafkaCluster) -> Cut:
    """The election has been held; the log ends at KEPT."""
    cluster, topic = _cluster, f"unclean-{uuid.uuid4().hex[:8]}"
    cluster.start()
    cluster.create_topic(topic, 1, UNCLEAN, replicas=[LEADER, FOLLOWER])
    found = Cut(cluster, topic, None)
    found.write(KEPT, "kept")
    cluster.wait_in_sync(topic, {LEADER, FOLLOWER})
    cluster.kill9(FOLLOWER)
    cluster.wait_in_sync(topic, {LEADER})
    found.write(PLANNED, "lost")
    end = KafkaDriverClient(KafkaParams.parse({"bootstrap.servers": cluster.bootstrap})).latest([(topic, 0)])[topic, 0]
    assert end.offset == PLANNED and end.leader_epoch is not None
    found.epoch = end.leader_epoch
    cluster.kill9(LEADER)
    cluster.restart(FOLLOWER)
    cluster.wait_for_leader(topic, lambda node: node == FOLLOWER)
    wait_until(lambda: cluster.log_range(topic) == (0, KEPT), "the new leader knowing its end")
    return found


def test_a_log_that_ends_before_the_range_begins_is_an_error_with_both_offsets(sc: Any, cut: Cut) -> None:
    with pytest.raises(Exception, match=rf"LogTruncatedError: {cut.topic}-0 \[200, 300\): offset 200 is past the log's end {KEPT}"):
        cut.read(sc, 200, PLANNED)


def test_a_log_that_ends_inside_the_range_is_an_error_that_says_where(sc: Any, cut: Cut) -> None:
    with pytest.raises(Exception, match=rf"LogTruncatedError: {cut.topic}-0 \[50, 300\): the partition ends at {KEPT}"):
        cut.read(sc, 50, PLANNED)


def test_what_was_planned_and_is_left_is_read(sc: Any, cut: Cut) -> None:
    assert cut.read(sc, 50, KEPT) == [f"kept {at}" for at in range(50, KEPT)]


@pytest.fixture(scope="module")
def rewritten(cut: Cut) -> Cut:
    """The log is long again: other records, of a later epoch, have taken the offsets that were cut off."""
    cut.write(AGAIN, "other")
    return cut


def test_other_records_from_the_begin_of_the_range_on_are_refused(sc: Any, rewritten: Cut) -> None:
    with pytest.raises(Exception, match=REFUSED):
        rewritten.read(sc, 200, PLANNED)


def test_other_records_inside_the_range_are_refused_and_none_is_passed_on(sc: Any, rewritten: Cut) -> None:
    with pytest.raises(Exception, match=rf"LogTruncatedError: {rewritten.topic}-0 \[50, 300\): .*epoch"):
        rewritten.read(sc, 50, PLANNED)


def test_a_range_that_ends_where_the_log_was_cut_is_read(sc: Any, rewritten: Cut) -> None:
    assert rewritten.read(sc, 90, KEPT) == [f"kept {at}" for at in range(90, KEPT)]


def test_other_records_exactly_from_the_cut_on_are_refused(sc: Any, rewritten: Cut) -> None:
    with pytest.raises(Exception, match=REFUSED):
        rewritten.read(sc, KEPT, PLANNED)


def test_the_old_leader_comes_back_and_changes_nothing(sc: Any, rewritten: Cut) -> None:
    rewritten.cluster.restart(LEADER)
    rewritten.cluster.wait_in_sync(rewritten.topic, {LEADER, FOLLOWER})
    with pytest.raises(Exception, match=REFUSED):
        rewritten.read(sc, 50, PLANNED)
