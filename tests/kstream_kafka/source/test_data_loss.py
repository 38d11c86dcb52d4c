"""What was lost before it could be read: three causes told apart, raised or read past, counted."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from kstream_kafka.client.ports import FetchErrorKind
from kstream_kafka.errors import LogTruncatedError, RecordsRemovedError, TopicRecreatedError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.reader.range_consumer import TopicIdCache
from kstream_kafka.reader.range_reader import read_splits

from kstream.offsets.offset_range import LostRange, OffsetRange
from kstream.offsets.read_report import ReadReport, counts_of, lost_ranges, merge
from tests.kstream_kafka.fakes import FakeConsumer, Message, records

EOF, OUT = FetchErrorKind.END_OF_PARTITION, FetchErrorKind.OUT_OF_RANGE


def read(
    consumer: FakeConsumer, *splits: RangeSplit, tolerate_loss: bool = True, ids: dict[str, str] | None = None
) -> tuple[list[int], ReadReport]:
    """The offsets given out, and the report."""
    report = ReadReport(tolerate_loss)
    chunks = read_splits(consumer, splits, 1000, consumer.monotonic, report, ids)
    return [m.offset() for _, messages in chunks for m in messages], report


def split(begin: int, until: int, epoch: int | None = None, from_epoch: int | None = None) -> RangeSplit:
    return RangeSplit(OffsetRange("t", 0, begin, until), epoch, from_epoch)


def lost(report: ReadReport) -> list[tuple[int, int | None, str]]:
    return [(entry.lost_from, entry.lost_until, entry.cause) for entry in lost_ranges(report.lost)]


class Refused(str):
    """An error event's error, as the client words it."""


class ByWords(FakeConsumer):
    def classify_error(self, error: Any) -> FetchErrorKind:
        return OUT if isinstance(error, Refused) else error


def refused(at: int, words: str = "") -> Message:
    return Message(at, problem=Refused(words) if words else OUT)  # pyright: ignore[reportArgumentType]


def test_what_retention_left_of_a_range_is_read_and_the_rest_is_noted():
    consumer = FakeConsumer([[refused(5)], records([8, 9])], log_range=(8, 20))
    given, report = read(consumer, split(5, 10))
    assert given == [8, 9] and lost(report) == [(5, 8, "retention")]
    assert [at for _, _, at, _ in consumer.assigned] == [5, 8]
    assert report.counts == {("t", 0, 5): (10, 2)}


def test_a_range_that_retention_removed_wholly_is_lost_to_its_end_and_no_further():
    consumer = FakeConsumer([[refused(5)]], log_range=(30, 40))
    given, report = read(consumer, split(5, 10))
    assert given == [] and lost(report) == [(5, 10, "retention")] and consumer.assignments == 1


def test_a_log_that_ends_inside_a_range_gives_what_it_has():
    consumer = FakeConsumer([[*records([5, 6]), Message(7, problem=EOF)]], log_range=(0, 7))
    given, report = read(consumer, split(5, 10, 3))
    assert given == [5, 6] and lost(report) == [(7, 10, "truncation")]


def test_a_log_that_ends_just_where_the_range_begins_has_lost_all_of_the_range():
    """The broker refuses the offset under the epoch of the range: the log was cut to just there, and nothing was written since."""
    consumer = FakeConsumer([[refused(5)]], log_range=(0, 5))
    given, report = read(consumer, split(5, 10, 2, 1))
    assert given == [] and lost(report) == [(5, 10, "truncation")]
    with pytest.raises(LogTruncatedError, match=r"offset 5 is past the log's end 5.*Records \[5, 10\) are lost"):
        read(FakeConsumer([[refused(5)]], log_range=(0, 5)), split(5, 10, 2, 1), tolerate_loss=False)


def test_a_log_cut_below_the_range_and_written_anew_is_read_on_and_the_unread_new_records_are_named():
    words = "Partition log truncation detected at offset 5 (leader epoch 1): broker end offset is 3 (offset leader epoch 1)."
    consumer = ByWords([[refused(5, words)], records([5, 6], epoch=2)], log_range=(0, 30))
    given, report = read(consumer, split(5, 7, 2, 1))
    assert given == [5, 6] and lost(report) == [(3, 5, "truncation")]
    assert consumer.assigned == [("t", 0, 5, 1), ("t", 0, 5, None)]


def test_records_that_took_the_place_of_planned_ones_are_read_and_noted_once():
    consumer = FakeConsumer([records([5, 6], epoch=3), records([7, 8], epoch=4), records([9], epoch=5)])
    given, report = read(consumer, split(5, 10, 3))
    assert given == [5, 6, 7, 8, 9] and lost(report) == [(7, 10, "truncation")]


def test_a_range_begins_under_the_epoch_of_the_plan_before():
    """Under that of its own plan, a cut between the two plans would go unseen."""
    consumer = FakeConsumer([records([5], epoch=4)])
    read(consumer, split(5, 6, epoch=4, from_epoch=2))
    assert consumer.assigned == [("t", 0, 5, 2)]


def test_a_topic_made_anew_gives_nothing_out():
    consumer = FakeConsumer([records([5, 6])])
    consumer.ids = {"t": "new"}
    with pytest.raises(TopicRecreatedError, match=r"its id was old and is new now.*0 \[5, 7\)") as caught:
        read(consumer, split(5, 7), tolerate_loss=False, ids={"t": "old"})
    assert caught.value.facts["topic"] == "t"
    consumer = FakeConsumer([records([5, 6])])
    consumer.ids = {"t": "new"}
    given, report = read(consumer, split(5, 7), ids={"t": "old"})
    assert given == [] and lost(report) == [(5, 7, "recreation")]


class RememberingConsumer(FakeConsumer):
    """It knows the id of the topic of a moment ago, unless it is asked for that of now."""

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        return super().topic_ids(topics, fresh) if fresh else dict.fromkeys(topics, "old")


@pytest.mark.parametrize("tolerate_loss", [True, False])
def test_a_worker_that_remembers_the_id_of_the_old_topic_reads_the_new_one_of_the_plan(tolerate_loss: bool) -> None:
    """A slow answer counts for longer. The records of the new topic were recorded as lost."""
    consumer = RememberingConsumer([records([0, 1])])
    consumer.ids = {"t": "new"}
    given, report = read(consumer, split(0, 2), tolerate_loss=tolerate_loss, ids={"t": "new"})
    assert given == [0, 1] and lost(report) == []


def test_a_topic_made_anew_while_it_is_read_keeps_what_was_given_out_before():
    consumer = FakeConsumer([records([5, 6]), records([7, 8])])
    consumer.ids = {"t": "old"}
    report = ReadReport(tolerate_loss=True)
    chunks = read_splits(consumer, [split(5, 9)], 1000, consumer.monotonic, report, {"t": "old"})
    assert [m.offset() for m in next(chunks)[1]] == [5, 6]
    consumer.ids = {"t": "new"}
    assert list(chunks) == [] and lost(report) == [(7, 9, "recreation")]


def test_a_shorter_topic_made_anew_is_no_truncation():
    for tolerate_loss in (False, True):
        consumer = FakeConsumer([[refused(50)]], log_range=(0, 3))
        consumer.ids = {"t": "new"}
        if tolerate_loss:
            _, report = read(consumer, split(50, 60), ids={"t": "old"})
            assert lost(report) == [(50, 60, "recreation")]
        else:
            with pytest.raises(TopicRecreatedError):
                read(consumer, split(50, 60), tolerate_loss=False, ids={"t": "old"})
        assert True in consumer.id_questions  # of just now, not of a moment ago


def test_a_topic_whose_id_nobody_tells_is_read():
    consumer = FakeConsumer([records([5])])
    assert read(consumer, split(5, 6), tolerate_loss=False, ids={"t": "old"})[0] == [5]
    assert read(FakeConsumer([records([5])]), split(5, 6), tolerate_loss=False)[0] == [5]


def test_a_loss_in_one_of_many_ranges_leaves_the_others_whole():
    a, b = ("t", 0), ("t", 1)
    consumer = FakeConsumer(
        [[Message(5, problem=OUT, where=a), *records([0], where=b)], [], [*records([8], where=a), *records([1], where=b)]]
    )
    consumer._log_range = (8, 20)
    given, report = read(consumer, split(5, 9), RangeSplit(OffsetRange("t", 1, 0, 2)))
    assert given == [8, 0, 1] and lost(report) == [(5, 8, "retention")]
    assert consumer.assigned[2:] == [("t", 0, 8, None), ("t", 1, 1, None)]


def test_without_an_answer_about_the_log_a_refused_offset_is_an_error_even_when_losses_are_tolerated():
    consumer = FakeConsumer([[refused(5)]], log_range=(None, None))
    with pytest.raises(LogTruncatedError):
        read(consumer, split(5, 9))


def test_nothing_is_tolerated_unless_asked_for():
    with pytest.raises(RecordsRemovedError, match=r"onDataLoss='skip'") as caught:
        read(FakeConsumer([[refused(5)]], log_range=(8, 20)), split(5, 10), tolerate_loss=False)
    assert (caught.value.lost_from, caught.value.lost_until, caught.value.cause) == (5, 8, "retention")


# -- report


def test_findings_of_the_same_read_twice_count_once_and_a_read_cut_short_does_not_count():
    place = ("t", 0, 5)
    into = merge({}, {7: {"counts": {place: (10, 3)}}})
    merge(into, {7: {"counts": {place: (10, 3)}, "lost": {place: (8, "retention", "")}}, 8: {"counts": {place: (10, 1)}}})
    assert into == {7: {"counts": {place: (10, 3)}, "lost": {place: (8, "retention", "")}}, 8: {"counts": {place: (10, 1)}, "lost": {}}}


def test_the_count_of_a_range_is_the_sum_of_its_parts_and_unknown_while_one_is_missing():
    ranges = [OffsetRange("t", 0, 0, 10), OffsetRange("t", 1, 5, 5), OffsetRange("t", 2, 0, 4)]
    counts = {("t", 0, 0): (6, 6), ("t", 0, 6): (10, 3), ("t", 2, 0): (2, 2)}
    assert counts_of(ranges, counts) == [9, 0, None]


def test_a_loss_survives_its_stored_form():
    entry = LostRange("t", 3, 5, None, "deletion", "gone")
    assert LostRange.from_json(entry.to_json()) == entry


# -- ids of about a second ago


def test_ids_are_asked_for_once_a_second_and_at_once_when_it_matters():
    asked: list[tuple[str, ...]] = []
    now = [10.0]

    def ask(topics: Any) -> dict[str, str]:
        asked.append(tuple(sorted(topics)))
        return {"a": "1"}

    ids = TopicIdCache(ask, lambda: now[0])
    assert ids.get(["a", "b"]) == {"a": "1"} and ids.get(["a"]) == {"a": "1"} and len(asked) == 1
    now[0] = 10.9
    assert ids.get(["b"]) == {} and len(asked) == 1
    ids.get(["a"], fresh=True)
    assert len(asked) == 2
    now[0] = 11.9
    ids.get(["a"])
    assert len(asked) == 3


def test_ids_that_are_dear_to_ask_for_count_longer():
    now = [0.0]

    def slow(topics: Any) -> dict[str, str]:
        now[0] += 0.2
        return dict.fromkeys(topics, "1")

    ids = TopicIdCache(slow, lambda: now[0])
    ids.get(["a"])
    now[0] = 4.0
    ids.get(["a"])
    assert now[0] == 4.0
