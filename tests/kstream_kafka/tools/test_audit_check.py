"""What the entries of an audit prove, and what they find."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from kstream_kafka.sink.audit import AuditEntry
from kstream_kafka.sink.receipt import GivenUp
from kstream_kafka.sink.spool import digests_of
from kstream_kafka.tools.audit_check import AuditVerdict, TopicCheck, batches_of, input_findings, inputs_of, topics_of, with_given_up

OUT = "out"


def entry(
    time_ms: int, values: Sequence[bytes] = (), ends: Sequence[int] | None = (), inputs: Mapping[str, Any] | None = None, nonce: str = ""
) -> AuditEntry:
    digests = digests_of((OUT, None, value, (), None, None) for value in values)
    return AuditEntry("job", "totals", 1, time_ms, nonce, 1, digests, {} if ends is None else {OUT: ends}, inputs or {})


def from_to(begin: int, end: int) -> dict[str, Any]:
    return {"0": [("orders", 0, begin, end)]}


def words(findings: Sequence[Any]) -> list[str]:
    return [finding.words for finding in findings]


# -- entries


def test_of_two_equal_entries_of_a_batch_the_last_one_counts() -> None:
    early, late = entry(1000, [b"a"], [5]), entry(1000, [b"a"], [7])
    assert batches_of([early, late, entry(2000)]) == ([late, entry(2000)], [])


@pytest.mark.parametrize("other", [entry(1000, [b"b"]), entry(1000, [b"a"], nonce="x"), entry(1000, [b"a"], inputs=from_to(0, 1))])
def test_two_entries_of_a_batch_that_differ_are_found(other: AuditEntry) -> None:
    _, findings = batches_of([entry(1000, [b"a"]), other])
    assert words(findings) == ["batch 1000 ms has two entries that say different things"]


def test_an_entry_that_comes_after_that_of_a_later_batch_is_found() -> None:
    batches, findings = batches_of([entry(2000), entry(1000)])
    assert [one.time_ms for one in batches] == [2000]
    assert words(findings) == ["batch 1000 ms has an entry behind that of batch 2000 ms"]


def test_an_entry_of_an_earlier_driver_that_comes_late_does_not_count() -> None:
    late = replace(entry(1000, [b"a"], [9]), epoch=1)
    batches = [replace(one, epoch=2) for one in (entry(1000, [b"a"], [5]), entry(2000, [b"b"], [9]))]
    assert batches_of([*batches, late]) == (batches, [])
    assert batches_of([batches[0], late, batches[1]]) == (batches, [])


def test_an_equal_entry_behind_that_of_a_later_batch_does_not_count() -> None:
    """The completion of a batch could not be stored, and the next one had no output."""
    batches = [entry(1000, [b"a"], [5]), entry(2000, inputs=from_to(0, 1))]
    assert batches_of([*batches, entry(1000, [b"a"], [7])]) == (batches, [])


def test_of_several_beginnings_the_last_one_before_the_first_batch_counts() -> None:
    entries = [entry(0, [], [1]), entry(0, [], [3]), entry(1000, [b"a"], [4]), entry(0, [], [4])]
    assert batches_of(entries) == (entries[1:3], [])


def test_partitions_that_were_kept_though_records_may_have_moved_are_not_provable() -> None:
    batches, (finding,) = batches_of([replace(entry(1000), kept=(1,)), replace(entry(1000), kept=())])
    assert finding.verdict == AuditVerdict.NOT_PROVABLE and batches[0].kept == (1,)
    assert finding.words == "batch 1000 ms: partitions [1] stand as an earlier try has written them, though their records may have moved"


# -- inputs


def test_offsets_that_are_in_one_batch_each_are_as_they_should_be() -> None:
    batches = [entry(1000, inputs=from_to(5, 7)), entry(2000), entry(3000, inputs=from_to(7, 9))]
    assert input_findings(batches) == [] and inputs_of(batches) == {"stream 0, orders-0": (5, 9)}


def test_offsets_in_no_batch_are_found() -> None:
    (finding,) = input_findings([entry(1000, inputs=from_to(0, 3)), entry(2000, inputs=from_to(5, 7))])
    assert finding.verdict == AuditVerdict.DIFFERS
    assert finding.words == "stream 0, orders-0: offsets 3 to 4 are in no batch, between 1000 ms and 2000 ms"


@pytest.mark.parametrize(("second", "found"), [((2, 7), "2 to 2"), ((0, 3), "0 to 2"), ((1, 2), "1 to 1")])
def test_offsets_in_two_batches_are_found(second: tuple[int, int], found: str) -> None:
    batches = [entry(1000, inputs=from_to(0, 3)), entry(2000, inputs=from_to(*second)), entry(3000, inputs=from_to(max(3, second[1]), 9))]
    assert words(input_findings(batches)) == [f"stream 0, orders-0: offsets {found} are in two batches, 1000 ms and 2000 ms"]


def test_two_streams_may_read_the_same_topic() -> None:
    both = {"0": [("orders", 0, 0, 3)], "1": [("orders", 0, 0, 3)]}
    assert input_findings([entry(1000, inputs=both)]) == []


# -- the output


def check(batches: Sequence[AuditEntry], records: Mapping[int, Mapping[int, bytes]]) -> list[str]:
    """Add records: partition → offset → value."""
    found = TopicCheck(OUT, batches)
    for partition, (begin, end) in found.ranges().items():
        for offset, value in records.get(partition, {}).items():
            assert begin <= offset < end
            found.add(partition, offset, None, value)
    return words(found.findings())


BATCHES = [entry(0, [], [10, 0]), entry(1000, [b"a", b"b"], [12, 1]), entry(2000, [b"c"], [14, 1])]


def test_each_record_counts_for_the_batch_between_whose_ends_it_is() -> None:
    assert check(BATCHES, {0: {10: b"a", 12: b"c"}, 1: {0: b"b"}}) == []
    assert TopicCheck(OUT, BATCHES).ranges() == {0: (10, 14), 1: (0, 1)}
    assert (TopicCheck(OUT, BATCHES).first, TopicCheck(OUT, BATCHES).num_records) == ("1000 ms", 3)
    assert topics_of(BATCHES) == [OUT]


def test_a_record_that_is_missing_is_found_in_its_batch() -> None:
    assert check(BATCHES, {0: {10: b"a", 12: b"c"}}) == ["topic out, batch 1000 ms: 1 record less than the receipts say"]


def test_a_record_that_is_there_twice_is_found_in_the_batch_in_which_it_came() -> None:
    found = check(BATCHES, {0: {10: b"a", 12: b"c", 13: b"b"}, 1: {0: b"b"}})
    assert found == ["topic out, batch 2000 ms: 1 record more than the receipts say, written twice or by another program"]


def test_records_too_many_are_not_provable_where_another_output_writes_too() -> None:
    found = TopicCheck(OUT, BATCHES, is_shared=True)
    for offset, value in {10: b"a", 11: b"b", 12: b"c", 13: b"of the other"}.items():
        found.add(0, offset, None, value)
    assert [(one.verdict, one.words) for one in found.findings()] == [
        (AuditVerdict.NOT_PROVABLE, "topic out, batch 2000 ms: another output writes to the topic, too")
    ]


def test_another_value_is_found() -> None:
    found = check(BATCHES, {0: {10: b"a", 12: b"x"}, 1: {0: b"b"}})
    assert found == ["topic out, batch 2000 ms: keys or values are not those of the receipts (1 record)"]


def test_a_batch_that_has_not_written_to_the_topic_does_not_move_its_ends() -> None:
    batches = [entry(0, [], [0]), entry(1000, [b"a"], [1]), entry(2000, [], None), entry(3000, [b"b"], [2])]
    assert check(batches, {0: {0: b"a", 1: b"b"}}) == []


def test_a_partition_that_is_new_begins_at_0() -> None:
    assert check([entry(0, [], [5]), entry(1000, [b"a"], [5, 1])], {1: {0: b"a"}}) == []


def test_without_a_beginning_the_first_batch_only_says_where_the_next_one_begins() -> None:
    batches = [entry(1000, [b"a"], [7]), entry(2000, [b"b"], [9])]
    assert check(batches, {0: {7: b"b"}}) == [] and TopicCheck(OUT, batches).first == "2000 ms"
    assert TopicCheck(OUT, batches[:1]).first is None


def test_a_log_that_is_shorter_than_it_was_has_no_ranges() -> None:
    assert TopicCheck(OUT, [entry(0, [], [5]), entry(1000, [b"a"], [1])]).ranges() == {}


def test_what_a_given_up_batch_has_written_counts_for_the_next_batch_that_names_the_topic() -> None:
    batches = [entry(1000, [b"a"], [1]), entry(3000, [], None), entry(4000, [b"c"], [3])]
    gone = GivenUp(2000, digests_of([(OUT, None, b"b", (), None, None)]))
    assert check(with_given_up(batches, [gone]), {0: {1: b"b", 2: b"c"}}) == []
