"""Brokers that do not keep what a transaction promises are refused before anything is written."""

from __future__ import annotations

import pytest
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.sink.receipt import is_fence

from .jobs import RECEIPTS, TOTALS, Jobs, Partitions


def test_the_embedded_broker_is_refused_before_a_topic_is_made(jobs: Jobs) -> None:
    jobs.kafka.cluster_id = "mockCluster7f31"
    with pytest.raises(KafkaConfigError, match=r"the embedded broker has no transactions.*delivery='at-least-once'"):
        jobs.write(jobs.driver(), 1000, Partitions([1]))
    assert jobs.kafka.topics.keys() == {TOTALS}


@pytest.mark.parametrize(("lacks", "words"), [("fences", "let an earlier producer commit"), ("hides_aborted", "show aborted records")])
def test_brokers_that_do_not_fence_or_do_not_hide_aborted_records_are_refused_at_each_try(jobs: Jobs, lacks: str, words: str) -> None:
    setattr(jobs.kafka, lacks, False)
    output = jobs.driver()
    for _ in range(2):
        with pytest.raises(KafkaConfigError, match=words):
            jobs.write(output, 1000, Partitions([1]))
    assert jobs.numbers() == []
    setattr(jobs.kafka, lacks, True)
    jobs.write(output, 1000, Partitions([1]), is_first_try=False)
    assert jobs.numbers() == [1]


def test_only_the_first_driver_of_a_checkpoint_tries_the_brokers(jobs: Jobs) -> None:
    stored = jobs.write(jobs.driver(), 1000, Partitions([1]))
    (probe,) = [identity for identity in jobs.kafka.epochs if identity.endswith("-probe")]
    assert jobs.kafka.epochs[probe] == 2
    jobs.write(jobs.driver(stored), 2000, Partitions([2]), is_first_try=False)
    assert jobs.kafka.epochs[probe] == 2 and jobs.numbers() == [1, 2]


def test_the_try_leaves_no_record_that_a_reader_sees(jobs: Jobs) -> None:
    jobs.write(jobs.driver(), 1000, Partitions([1]))
    assert all(is_fence(entry.its_key, "job", "kafka totals") for entry in jobs.kafka.committed(RECEIPTS, 0)) and not jobs.kafka.open
