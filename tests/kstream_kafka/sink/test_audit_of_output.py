"""Each batch leaves an entry for the audit, when all of it is committed."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import BrokerUnreachableError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.sink.audit import decode_entry

from kstream.offsets.offset_range import OffsetRange

from .jobs import AUDIT, TOTALS, Jobs, Partitions


def planned(begin: int, end: int) -> dict[int, KafkaPlan]:
    return {0: KafkaPlan([OffsetRange("orders", 0, begin, end)], [None], [None])}


def test_each_batch_with_records_leaves_one_entry_when_all_of_it_is_committed(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.kafka.on["audit"] = lambda: jobs.numbers() == [1, 2, 3] or pytest.fail("not all is committed")
    jobs.write(output, 1000, Partitions([1, 2], [3]), inputs=planned(0, 5))
    jobs.write(output, 2000, Partitions([], []), inputs=planned(5, 6))
    jobs.write(output, 3000, Partitions([], []), inputs=planned(6, 6))
    first, second = jobs.entries()
    assert (first.time_ms, first.num_partitions, first.inputs) == (1000, 2, {"0": [("orders", 0, 0, 5)]})
    assert first.digests["totals"].records == 3 and first.ends == {"totals": [2, 2, 2]}, "a record and the end of a transaction each"
    assert (second.time_ms, second.digests, second.ends) == (2000, {}, {})


def test_a_batch_whose_entry_cannot_be_written_fails_and_has_one_after_its_next_try(jobs: Jobs) -> None:
    output = jobs.driver()

    def no_answer() -> None:
        raise BrokerUnreachableError("fake", 1, "")

    jobs.kafka.on["audit"] = no_answer
    with pytest.raises(BrokerUnreachableError):
        jobs.write(output, 1000, Partitions([1], [2]))
    jobs.write(output, 1000, Partitions([1], [2]), is_first_try=False)
    (entry,) = jobs.entries()
    assert entry.digests["totals"].records == 2 and jobs.numbers() == [1, 2]


def test_a_batch_that_a_later_one_follows_leaves_no_second_entry(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.write(output, 1000, Partitions([1]), inputs=planned(0, 1))
    jobs.write(output, 2000, Partitions([2]), inputs=planned(1, 2))
    jobs.write(jobs.driver(), 1000, Partitions([1]), is_first_try=False, partitions=None, inputs=planned(0, 1))
    assert [entry.time_ms for entry in jobs.entries()] == [1000, 2000]


def test_without_the_audit_no_topic_is_made(jobs: Jobs) -> None:
    output = jobs.driver(audit=False)
    jobs.write(output, 1000, Partitions([1]))
    output.stop()
    assert jobs.numbers() == [1] and AUDIT not in jobs.kafka.topics


def test_an_output_with_one_topic_notes_where_its_first_batch_begins(jobs: Jobs) -> None:
    jobs.kafka.append(TOTALS, 1, None, b"of another program")
    stored = jobs.write(jobs.driver(topic=TOTALS), 1000, Partitions([1]))
    jobs.write(jobs.driver(stored, topic=TOTALS), 2000, Partitions([2]), is_first_try=False)
    entries = [decode_entry("job", "kafka totals", entry.its_value or b"", "") for entry in jobs.kafka.topics[AUDIT][1][0]]
    assert [entry.time_ms for entry in entries] == [0, 1000, 2000]
    assert entries[0].ends == {TOTALS: [0, 1, 0]} and not entries[0].is_batch


def test_the_beginning_is_noted_by_a_later_try_if_the_first_one_could_not(jobs: Jobs) -> None:
    output = jobs.driver(topic=TOTALS)

    def no_answer() -> None:
        raise BrokerUnreachableError("fake", 1, "")

    jobs.kafka.on["audit"] = no_answer
    with pytest.raises(BrokerUnreachableError):
        jobs.write(output, 1000, Partitions([1]))
    jobs.write(output, 1000, Partitions([1]), is_first_try=False)
    first, second = (decode_entry("job", "kafka totals", entry.its_value or b"", "") for entry in jobs.kafka.topics[AUDIT][1][0])
    assert (first.is_batch, first.ends, second.time_ms) == (False, {TOTALS: [0, 0, 0]}, 1000)


def test_a_topic_that_is_gone_does_not_hold_the_job(jobs: Jobs) -> None:
    output = jobs.driver()
    jobs.kafka.on["committed"] = lambda: jobs.kafka.topics.pop(TOTALS) and None
    jobs.write(output, 1000, Partitions([1]))
    (entry,) = jobs.entries()
    assert entry.ends == {} and entry.digests[TOTALS].records == 1
