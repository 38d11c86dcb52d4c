"""A half-written batch that differs when it is computed again: what is written is compared, and is never written a second time."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.errors import BrokerUnreachableError, CommitUnknownError

from kstream.errors import OutputChangedError

from .jobs import Jobs, Partitions


def half_written(jobs: Jobs, rdd: Partitions) -> None:
    """Partition 1 of batch 1000 is written, the others are not."""
    jobs.write(jobs.driver(), 1000, rdd, partitions=[1])


def test_behind_a_shuffle_what_is_written_is_compared_before_the_rest_is_written(jobs: Jobs) -> None:
    half_written(jobs, Partitions([1], [2, 3], is_shuffled=True))
    moved = Partitions([1, 3], [2], is_shuffled=True)
    for _ in range(2):
        with pytest.raises(
            OutputChangedError, match=r"partition 1, topic totals: 2 records are written, and there are 1 now.*kstream sink acc"
        ):
            jobs.write(jobs.driver(), 1000, moved, is_first_try=False)
    assert jobs.numbers() == [2, 3] and moved.ran == [1, 1], "only the written partition was computed"
    jobs.write(jobs.driver(), 1000, Partitions([1], [3, 2], is_shuffled=True), is_first_try=False)
    assert jobs.numbers() == [1, 2, 3], "another order is no difference"


def test_behind_a_shuffle_other_keys_are_an_error_and_other_values_a_warning(jobs: Jobs, caplog: pytest.LogCaptureFixture) -> None:
    half_written(jobs, Partitions([1], [2], is_shuffled=True, keys=b"k"))
    with pytest.raises(OutputChangedError, match="its 1 records have other keys"):
        jobs.write(jobs.driver(), 1000, Partitions([1], [2], is_shuffled=True, keys=b"l"), is_first_try=False)
    jobs.write(jobs.driver(), 1000, Partitions([1], [7], is_shuffled=True, keys=b"k"), is_first_try=False)
    assert jobs.numbers() == [1, 2]
    warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert [warning.partition("totals: ")[2] for warning in warnings] == [  # a test before may have made the rest of the name a secret
        "batch 1000 ms is half-written, and differs now in partition 1, topic totals: some values are others than those that are written. "
        "What is written stands: the code, or what it reads, has changed"
    ]
    assert jobs.entries()[-1].kept == [], "no record can have moved"


@pytest.mark.parametrize("way", ["keep", "accept while it runs", "accept before its start"])
def test_what_is_written_is_kept_where_the_user_says_so(jobs: Jobs, way: str) -> None:
    half_written(jobs, Partitions([1], [2, 3], is_shuffled=True))
    moved = Partitions([1, 3], [2], is_shuffled=True)
    if way == "accept before its start":
        jobs.accept(1000)
    output = jobs.driver(keeps=way == "keep")
    if way == "accept while it runs":
        with pytest.raises(OutputChangedError):
            jobs.write(output, 1000, moved, is_first_try=False)
        jobs.accept(1000)
    jobs.write(output, 1000, moved, is_first_try=False)
    assert jobs.numbers() == [1, 2, 3, 3] and jobs.entries()[-1].kept == [1]


def test_an_acceptance_holds_for_each_try(jobs: Jobs) -> None:
    half_written(jobs, Partitions([1], [2, 3], is_shuffled=True))
    jobs.accept(1000)
    output, moved = jobs.driver(), Partitions([1, 3], [2], is_shuffled=True)

    def no_answer() -> None:
        raise BrokerUnreachableError("fake", 1, "")

    jobs.kafka.on["audit"] = no_answer
    with pytest.raises(BrokerUnreachableError):
        jobs.write(output, 1000, moved, is_first_try=False)
    jobs.write(output, 1000, moved, is_first_try=False)
    assert jobs.numbers() == [1, 2, 3, 3] and jobs.entries()[-1].kept == [1], "also when all of it is written"


def test_without_keys_other_values_may_mean_that_records_have_moved(jobs: Jobs) -> None:
    half_written(jobs, Partitions([1], [2], is_shuffled=True))
    with pytest.raises(OutputChangedError, match="some values are others"):
        jobs.write(jobs.driver(), 1000, Partitions([2], [1], is_shuffled=True), is_first_try=False)
    assert jobs.numbers() == [2]


def test_an_acceptance_holds_while_partitions_are_missing(jobs: Jobs) -> None:
    half_written(jobs, Partitions([1], [2, 3], is_shuffled=True))
    jobs.accept(1000)
    output, moved = jobs.driver(), Partitions([1, 3], [2], is_shuffled=True)

    def no_answer() -> None:
        raise CommitUnknownError("id", "timeout")

    jobs.kafka.on["commit"] = no_answer
    with pytest.raises(CommitUnknownError):
        jobs.write(output, 1000, moved, is_first_try=False)
    jobs.write(output, 1000, moved, is_first_try=False)
    assert jobs.numbers() == [1, 2, 3, 3]


def test_an_accepted_batch_does_not_accept_another_one(jobs: Jobs) -> None:
    half_written(jobs, Partitions([1], [2, 3], is_shuffled=True))
    jobs.accept(999)
    with pytest.raises(OutputChangedError):
        jobs.write(jobs.driver(), 1000, Partitions([1, 3], [2], is_shuffled=True), is_first_try=False)


@pytest.mark.parametrize("partitions", [..., None])
def test_on_a_narrow_lineage_what_is_written_stands(jobs: Jobs, caplog: pytest.LogCaptureFixture, partitions: Any) -> None:
    """Each partition has its own input: changed code has moved no record. It is compared only where it is computed anyway."""
    half_written(jobs, Partitions([1], [2, 3]))
    jobs.write(jobs.driver(), 1000, Partitions([4], [5]), is_first_try=False, partitions=partitions)
    assert jobs.numbers() == [2, 3, 4]
    assert ("What is written stands" in caplog.text) == (partitions is None)
