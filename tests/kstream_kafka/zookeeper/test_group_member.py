"""One consumer of a group: what it reads, when it acknowledges, and what it does when its partitions become another's."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest
from kstream_kafka.zookeeper.group_member import MOST_UNDER_WAY
from kstream_kafka.zookeeper.stored_offsets import AfterStoring, OnTimer

from kstream.errors import IllegalStateError
from kstream.receiver.block_generator import BlockGenerator, BlockIds, RateLimiter
from kstream.testing import ManualClock
from tests.kstream_kafka.zookeeper.fakes import FakeGroup, Member, log

MOST_AT_50 = 5
"""Records that a member reads at once, and that wait together, where 50 a second are permitted."""


def values(partition: int, begin: int, end: int) -> list[str]:
    return [f"{partition}:{n}" for n in range(begin, end)]


def test_offsets_are_written_when_their_block_is_stored_and_not_before() -> None:
    group = FakeGroup(offsets={("t", 0): 3})
    one = Member(group, log(1, 5))
    one.generator.held = True
    one.step(2)
    assert group.done == [] and one.host.blocks == []
    one.generator.push()
    assert group.done == [("stored", 2), ("committed", {("t", 0): 5})]
    assert one.host.blocks == [values(0, 3, 5)] and one.host.metadata == [{"next": [["t", 0, 5]]}]


def test_where_the_group_has_no_offset_the_end_it_begins_at_is_written_before_anything_is_read() -> None:
    """A receiver that died before its first block would else begin at a later end, and skip what is between."""
    group = FakeGroup()
    one = Member(group, {("t", 0): (7, 7)})
    one.step()
    assert group.offsets == {("t", 0): 7} and one.reader.reads == 0


def test_two_members_share_the_partitions_and_the_first_lets_go_only_of_what_it_has_stored() -> None:
    group, logs = FakeGroup(), log(4, 10)
    one, two = Member(group, logs), Member(group, logs)
    one.step(2)
    assert one.owned == [0, 1, 2, 3]
    two.step()
    assert two.owned == [], "the first one holds them still"
    one.step()
    assert one.owned == [0, 1] and group.done[-1] == ("released", [("t", 2), ("t", 3)])
    two.step()
    assert two.owned == [2, 3]
    assert two.reader.positions == {("t", 2): 10, ("t", 3): 10}, "it goes on where the first one stood"


def test_partitions_that_stay_are_read_on_without_a_gap_when_others_go() -> None:
    group, logs = FakeGroup(), log(2, 10)
    one, two = Member(group, logs), Member(group, logs)
    one.step(2)
    two.step()
    logs.update(log(2, 20))
    one.step(2)
    two.step(2)
    assert sorted(one.host.stored + two.host.stored) == sorted(values(0, 0, 20) + values(1, 0, 20))


def test_a_member_that_leaves_hands_its_partitions_on() -> None:
    group, logs = FakeGroup(), log(2, 10)
    one, two = Member(group, logs), Member(group, logs)
    one.step(2)
    two.step()
    one.step()
    two.step()
    one.member.close()
    two.step()
    assert two.owned == [0, 1] and one.reader.closed and one.generator.stopped


def test_a_claim_that_another_holds_is_asked_for_again_and_told_after_the_retries() -> None:
    group, clock = FakeGroup(owners={("t", 1): "ghost-0"}), ManualClock(1000)
    one = Member(group, log(2, 10), clock=clock, rebalance_backoff_ms=100, rebalance_max_retries=2)
    one.step(2)
    assert one.owned == [0] and one.host.stored == values(0, 0, 10), "what is free is read meanwhile"
    for _ in range(2):
        clock.advance(100)
        one.step()
    assert len(one.host.errors) == 1 and "t-1 by ghost-0" in one.host.errors[0]
    del group.owners["t", 1]
    clock.advance(100)
    one.step(2)
    assert one.owned == [0, 1] and one.host.stored[10:] == values(1, 0, 10)


def test_after_its_session_expired_nothing_is_acknowledged_and_it_reads_again_from_zookeeper() -> None:
    group, logs = FakeGroup(offsets={("t", 0): 0}), log(1, 10)
    one = Member(group, logs)
    one.step(2)
    logs["t", 0] = (0, 20)
    one.generator.held = True
    one.step()
    before = one.membership
    before.expire()
    one.generator.push()
    assert group.offsets == {("t", 0): 10} and one.host.stored == values(0, 0, 10), "thrown away: whoever has it now reads it"
    one.generator.held = False
    one.step()
    assert one.reader.positions == {} and len(one.host.errors) == 1
    one.step(2)
    assert one.membership is not before and one.owned == [0]
    assert one.host.stored == values(0, 0, 20) and group.offsets == {("t", 0): 20}


def test_a_block_that_was_being_stored_when_the_claim_was_lost_is_not_acknowledged() -> None:
    group = FakeGroup(offsets={("t", 0): 0})
    one = Member(group, log(1, 10))
    one.generator.held = True
    one.step(2)
    group.owners["t", 0] = "c9-0"
    one.generator.push()
    assert one.host.stored == values(0, 0, 10)
    assert group.offsets == {("t", 0): 0} and one.membership.lost


def test_a_member_whose_registration_was_removed_comes_again() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 10))
    one.step(2)
    del group.members["c1"]
    one.membership.news = True
    one.step(3)
    assert one.membership.consumer == "c2" and one.owned == [0]


def test_while_zookeeper_is_away_nothing_is_read() -> None:
    clock = ManualClock(1000)
    one = Member(FakeGroup(), log(1, 10), clock=clock)
    one.step()
    one.membership.connected = False
    one.member._over.set()  # the pause ends at once
    one.step(3)
    assert one.reader.reads == 0
    one.membership.connected = True
    one.step()
    assert one.reader.reads == 1


def test_nothing_is_read_while_too_much_waits_to_be_stored() -> None:
    one = Member(FakeGroup(), log(1, MOST_UNDER_WAY * 2))
    one.generator.held = True
    one.step(1 + MOST_UNDER_WAY // 2000 + 1)
    reads = one.reader.reads
    one.member._over.set()
    one.step(2)
    assert one.reader.reads == reads and MOST_UNDER_WAY < len(one.generator.open) <= MOST_UNDER_WAY + 2000


def test_a_block_that_is_stored_by_the_third_try_is_acknowledged() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 10))
    one.host.refuse = 2
    one.step(2)
    assert group.offsets == {("t", 0): 10} and not one.host.restarts


def test_a_block_that_cannot_be_stored_restarts_the_receiver_and_nothing_behind_it_is_stored_or_acknowledged() -> None:
    group, logs = FakeGroup(offsets={("t", 0): 0}), log(1, 10)
    one = Member(group, logs)
    one.host.refuse = 3
    one.step(2)
    ((message, error),) = one.host.restarts
    assert "block b1 of 10 records could not be stored after 3 tries" in message and isinstance(error, OSError)
    logs["t", 0] = (0, 20)
    one.step()
    one.member.close()
    assert one.host.blocks == [] and group.offsets == {("t", 0): 0} and group.members == {}
    again = Member(group, logs).step(2)
    assert again.host.stored == values(0, 0, 20)


def test_offsets_the_log_does_not_have_are_replaced_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    group = FakeGroup(offsets={("t", 0): 70, ("t", 1): 4})
    one = Member(group, {("t", 0): (5, 10), ("t", 1): (0, 10)})
    with caplog.at_level(logging.WARNING, "kstream.kafka"):
        one.step(3)
    assert "t-0: offset 70 of group g is out of range, the log has [5, 10): reading continues at 5" in caplog.text
    assert one.host.stored == values(1, 4, 10) + values(0, 5, 10) and group.offsets == {("t", 0): 10, ("t", 1): 10}


def test_new_partitions_are_found_and_the_whole_group_is_made_to_look() -> None:
    group, logs, clock = FakeGroup(), log(2, 10), ManualClock(1000)
    one, two = (Member(group, logs, clock=clock, metadata_max_age_ms=60000) for _ in range(2))
    one.step(2)
    two.step()
    one.step()
    two.step(2)
    logs.update(log(4, 10))
    clock.advance(60000)
    for _ in range(4):
        one.step()
        two.step()
    assert (one.owned, two.owned, group.joined) == ([2, 3], [0, 1], 3), "as another, which the other was told of"
    assert sorted(one.host.stored + two.host.stored) == sorted(value for number in range(4) for value in values(number, 0, 10))
    assert one.host.errors == []


def test_with_a_rate_limit_little_is_read_at_a_time() -> None:
    one = Member(FakeGroup(), log(1, 1000))
    one.generator.limit = 50
    one.step(3)
    assert [len(block) for block in one.host.blocks] == [5, 5]


def limited(one: Member, permits: int, records: int) -> None:
    """Let a read of so many records be handed on in parts of so many."""
    one.generator.permits = permits
    one.step()
    for place, (first, _) in one.reader.logs.items():
        one.reader.logs[place] = (first, records)


def test_what_the_rate_does_not_permit_yet_is_handed_on_later_and_no_more_is_read_meanwhile() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 0))
    limited(one, 3, 7)
    one.step()
    assert one.host.blocks == [values(0, 0, 3)] and group.offsets == {("t", 0): 3}, "each part has its own offsets"
    one.step(2)
    assert one.host.blocks == [values(0, 0, 3), values(0, 3, 6), values(0, 6, 7)] and group.offsets == {("t", 0): 7}
    assert one.reader.reads == 1


def test_partitions_share_what_the_rate_permits() -> None:
    one = Member(FakeGroup(), log(3, 0))
    limited(one, 6, 100)
    one.step(2)
    assert one.host.stored == [f"{number}:{n}" for n in range(4) for number in range(3)]


def test_waiting_records_of_a_partition_that_is_given_up_are_read_by_its_next_owner_alone() -> None:
    group, logs = FakeGroup(), log(2, 0)
    one, two = Member(group, logs), Member(group, logs)
    limited(one, 4, 10)
    one.step()
    assert sorted(one.host.stored) == values(0, 0, 2) + values(1, 0, 2)
    two.step()
    one.step(20)
    two.step(2)
    assert (one.owned, two.owned) == ([0], [1])
    assert sorted(one.host.stored) == values(0, 0, 10) + values(1, 0, 2) and two.host.stored == values(1, 2, 10)


def test_waiting_records_of_a_lost_session_are_read_again_once() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 0))
    limited(one, 4, 10)
    one.step()
    one.membership.expire()
    one.step(10)
    assert group.joined == 2 and one.host.stored == values(0, 0, 10) and group.offsets == {("t", 0): 10}


def test_a_stop_while_records_wait_stores_and_acknowledges_only_what_was_handed_on() -> None:
    for acknowledgement in (lambda _now: AfterStoring(), lambda now: OnTimer(60_000, now)):
        group = FakeGroup()
        one = Member(group, log(1, 0), acknowledgement)
        limited(one, 4, 10)
        one.step()
        one.member.close()
        assert one.host.stored == values(0, 0, 4) and group.offsets == {("t", 0): 4}


def test_offsets_the_log_does_not_have_are_replaced_when_the_records_beside_them_are_handed_on() -> None:
    group = FakeGroup(offsets={("t", 0): 70, ("t", 1): 0})
    one = Member(group, {("t", 0): (5, 10), ("t", 1): (0, 6)})
    one.generator.permits = 4
    one.step(2)
    assert one.host.stored == values(1, 0, 4) and one.reader.positions["t", 0] == 70
    one.step()
    assert one.host.stored == values(1, 0, 6) and one.reader.positions["t", 0] == 5


def test_a_rate_that_comes_while_a_member_reads_holds_for_what_it_has_read() -> None:
    """Spark's receivers obey at the next record. Two thousand records at 100 a second would be in no block for 20 seconds."""
    clock, group = ManualClock(1000), FakeGroup()
    one = Member(group, log(2, 100_000), clock=clock)
    limiter = RateLimiter(clock)
    one.member._generator = BlockGenerator(one.member._blocks, BlockIds(0), clock, 200, limiter=limiter)
    read = one.reader.read

    def told_meanwhile(most: int) -> Any:
        chunk = read(most)
        if limiter.getCurrentLimit() is None:
            assert len(chunk.records) == 4000
            limiter.updateRate(100)
        return chunk

    one.reader.read = told_meanwhile  # type: ignore[method-assign]
    one.member.start()
    clock.wait_for_waiters(2)
    for _ in range(20):
        clock.advance(10)
        clock.wait_for_waiters(2)
    assert 19 <= one.member._blocks.under_way + len(one.host.stored) <= 22
    stopping = threading.Thread(target=one.member.stop, daemon=True)
    stopping.start()
    while stopping.is_alive():
        clock.advance(20)
        stopping.join(0.001)
    assert sum(group.offsets.values()) == len(one.host.stored) < 40, "the rest is read again"


def test_the_plain_receiver_writes_what_it_handed_over_when_its_interval_is_over() -> None:
    group, clock = FakeGroup(offsets={("t", 0): 0}), ManualClock(1000)
    one = Member(group, log(1, 10), lambda now: OnTimer(500, now), clock)
    one.generator.held = True
    one.step(2)
    assert group.offsets == {("t", 0): 0}
    clock.advance(500)
    one.step()
    assert group.offsets == {("t", 0): 10} and one.host.blocks == [], "stored or not"


def test_the_plain_receiver_writes_its_offsets_when_it_ends_and_before_it_gives_partitions_up() -> None:
    group, logs, clock = FakeGroup(), log(2, 10), ManualClock(1000)
    one, two = (Member(group, logs, lambda now: OnTimer(60000, now), clock) for _ in range(2))
    one.step(2)
    two.step()
    one.step()
    assert group.offsets == {("t", 0): 10, ("t", 1): 10} and group.done[-1] == ("released", [("t", 1)])
    logs.update(log(2, 20))
    one.step()
    one.member.close()
    assert group.offsets["t", 0] == 20


def test_the_plain_receiver_tells_of_a_block_that_is_lost_and_goes_on() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 10), lambda now: OnTimer(60000, now))
    one.host.refuse = 3
    one.step(2)
    assert "could not be stored" in one.host.errors[0] and not one.host.restarts


def test_without_auto_commit_the_plain_receiver_writes_no_offsets() -> None:
    group = FakeGroup()
    one = Member(group, log(1, 10), lambda now: OnTimer(None, now))
    one.step(3)
    one.member.close()
    assert group.offsets == {} and one.host.stored == values(0, 0, 10)


def test_a_stop_while_blocks_wait_to_be_stored_before_a_claim_is_given_up_keeps_the_claim_until_they_are() -> None:
    group, logs = FakeGroup(), log(2, 10)
    one, two = Member(group, logs), Member(group, logs)
    one.generator.held = True
    one.step(2)
    two.step()
    one.member._over.set()
    with pytest.raises(IllegalStateError):
        one.step()
    assert one.owned == [0, 1]
    one.member.close()
    assert group.done == [("committed", {("t", 0): 0, ("t", 1): 0}), ("stored", 20), ("committed", {("t", 0): 10, ("t", 1): 10})]


def test_under_a_rate_limit_of_50_a_second_each_second_brings_50_records_and_a_stop_in_between_loses_none() -> None:
    """Records that have no permit at the stop are not stored, and their offset is not written."""
    clock, group = ManualClock(1000), FakeGroup()
    one = Member(group, log(1, 1000), clock=clock)
    generator = BlockGenerator(one.member._blocks, BlockIds(0), clock, 200, limiter=RateLimiter(clock, 50))
    one.member._generator = generator
    one.member.start()
    for second in range(1, 4):
        for _ in range(50):
            clock.wait_for_waiters(2)  # the member, and the timer of the block interval
            clock.advance(20)
        entered = one.member._blocks.under_way + len(one.host.stored)
        assert 50 * second - MOST_AT_50 <= entered <= 50 * (second + 1)
    stopping = threading.Thread(target=one.member.stop, daemon=True)
    stopping.start()
    while stopping.is_alive():
        clock.advance(20)
        stopping.join(0.001)
    assert one.host.stored == values(0, 0, len(one.host.stored)) and len(one.host.stored) >= 150 - MOST_AT_50
    assert group.offsets == {("t", 0): len(one.host.stored)}
    assert one.host.restarts == []
