"""What is kept for the page has bounds, whatever a stream does."""

from __future__ import annotations

from dataclasses import replace

from kstream.batch import StreamInputInfo
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from kstream.monitoring.job_history import KEPT, JobHistory
from kstream.testing import ManualClock
from kstream.ui.batch_forms import row_of, status_of
from kstream.ui.streaming_job_progress_listener import MOST_FAILED, MOST_FAILED_ROWS, MOST_ROWS, StreamingJobProgressListener
from kstream.ui.timeline import HOUR_MS, MOST_BUCKETS, bucket_ms
from tests.ui.infos import info_of, run_through, source_of, submitted_of
from tests.untouched import Untouched


def test_a_batch_is_followed_from_waiting_to_running_to_retained_and_its_records_are_counted_at_both_ends() -> None:
    """Spark behaviour PL1."""
    listener, whole = StreamingJobProgressListener(1000, 100), info_of(1000, source_of(2))
    submitted, output = submitted_of(whole), whole.outputs[0]
    listener.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted))
    kept = listener.kept()
    assert list(kept.active) == [1000] and not kept.rows and (kept.received, kept.processed, kept.completed) == (0, 0, 0)
    listener.onBatchStarted(StreamingListenerBatchStarted(replace(submitted, processing_start_ms=1005)))
    kept = listener.kept()
    assert kept.active[1000].info.scheduling_delay_ms == 5 and (kept.received, kept.processed) == (20, 0)
    listener.onOutputOperationStarted(StreamingListenerOutputOperationStarted(replace(output, end_ms=None)))
    assert status_of(listener.kept().active[1000].operations[0]) == "PROCESSING"
    listener.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(output))
    assert status_of(listener.kept().active[1000].operations[0]) == "COMPLETED"
    listener.onBatchCompleted(StreamingListenerBatchCompleted(whole))
    kept = listener.kept()
    assert not kept.active and list(kept.rows) == list(kept.retained) == [1000]
    assert (kept.received, kept.processed, kept.completed) == (20, 20, 1)


def test_of_a_day_of_batches_few_are_kept_whole_a_row_of_more_and_an_hour_in_buckets() -> None:
    """Spark behaviour PL2: 1000 batches, and a total that keeps rising."""
    listener = StreamingJobProgressListener(1000, 100)
    source = source_of(2)
    for number in range(20_000):
        run_through(listener, info_of(number * 1000, source))
    kept, timeline = listener.kept(), listener.timeline()
    assert (len(kept.active), len(kept.retained), len(kept.rows)) == (0, 100, MOST_ROWS)
    assert list(kept.retained) == [n * 1000 for n in range(19_900, 20_000)] and kept.completed == 20_000
    buckets = timeline["buckets"]
    assert len(buckets) == MOST_BUCKETS and buckets[-1]["timeMs"] - buckets[0]["timeMs"] == HOUR_MS - timeline["bucketMs"]
    assert (kept.processed, kept.received) == (400_000, 400_000)


def test_the_width_of_a_bucket_is_whole_intervals_and_at_least_six_seconds() -> None:
    assert [bucket_ms(interval) for interval in (100, 1000, 4000, 6000, 7000, 60_000)] == [6000, 6000, 8000, 6000, 7000, 60_000]


def test_more_facts_are_kept_if_the_setting_says_so_and_then_as_many_rows() -> None:
    listener = StreamingJobProgressListener(1000, 1200)
    for number in range(1300):
        run_through(listener, info_of(number * 1000))
    kept = listener.kept()
    assert len(kept.retained) == len(kept.rows) == 1200
    none = StreamingJobProgressListener(1000, 0)
    run_through(none, info_of(1000))
    assert len(none.kept().retained) == 0 and len(none.kept().rows) == 1


def test_the_facts_of_the_last_failed_batches_stay_until_they_succeed() -> None:
    listener = StreamingJobProgressListener(1000, 100)
    for number in range(2 * MOST_FAILED):
        run_through(listener, info_of(number * 1000, error="ValueError: refused"))
    for number in range(100, 1000):
        run_through(listener, info_of(number * 1000))
    failed = [number * 1000 for number in range(MOST_FAILED, 2 * MOST_FAILED)]
    assert list(listener.kept().retained) == [*failed, *(number * 1000 for number in range(900, 1000))]
    again = info_of(failed[0], tries=2)
    listener.onOutputOperationStarted(StreamingListenerOutputOperationStarted(replace(again.outputs[0], end_ms=None)))
    assert listener.kept().active[failed[0]].tries == 2, "a retry goes on from the facts of the failure"
    listener.onBatchCompleted(StreamingListenerBatchCompleted(again))
    assert list(listener.kept().retained) == [*failed[1:], *(number * 1000 for number in range(901, 1000)), failed[0]]
    for number in range(1000, 1100):
        run_through(listener, info_of(number * 1000))
    assert list(listener.kept().retained)[:MOST_FAILED] == [*failed[1:], 1_000_000]


def test_the_facts_that_recent_progress_keeps_are_kept_once() -> None:
    listener, history = StreamingJobProgressListener(1000, KEPT), JobHistory(ManualClock(0))
    for number in range(KEPT + 50):
        ended = StreamingListenerBatchCompleted(info_of(number * 1000))
        listener.onBatchCompleted(ended)
        history.onBatchCompleted(ended)
    shared = {id(info) for info in history.snapshot().recent}
    assert {id(info) for info in listener.kept().retained.values()} == shared and len(shared) == KEPT


def test_what_a_batch_costs_does_not_depend_on_the_number_of_partitions() -> None:
    offsets = {"orders": Untouched()}
    metrics = {"totalOffsetsBehindLatest": 2500}
    progress = {"description": "Kafka", "startOffset": offsets, "endOffset": offsets, "latestOffset": offsets, "metrics": metrics}
    listener = StreamingJobProgressListener(1000, 10)
    run_through(listener, info_of(1000, StreamInputInfo(0, 10, {"progress": progress, "offsets": Untouched()})))
    assert listener.kept().rows[1000].lag == 2500


def test_the_lag_of_a_batch_is_the_sum_over_its_partitions() -> None:
    assert row_of(info_of(1000, source_of(7, behind=3))).lag == 21
    assert row_of(info_of(1000, StreamInputInfo(0, 5, {}))).lag is None


def test_a_batch_that_fails_and_succeeds_later_has_one_row_and_counts_once_in_the_timeline() -> None:
    listener = StreamingJobProgressListener(1000, 10)
    run_through(listener, info_of(1000, source_of(1), "ValueError: refused"))
    kept = listener.kept()
    assert kept.rows[1000].has_failed and kept.processed == 0
    run_through(listener, info_of(1000, source_of(1), tries=2))
    kept = listener.kept()
    assert len(kept.rows) == len(kept.retained) == 1 and not kept.rows[1000].has_failed and kept.processed == 10
    (bucket,) = listener.timeline()["buckets"]
    assert (bucket["numBatches"], bucket["numFailed"], bucket["numRecords"], bucket["totalDelay"]) == (1, 0, 10, 405)


def test_a_batch_that_succeeds_after_its_row_has_gone_counts_once_in_the_timeline() -> None:
    listener = StreamingJobProgressListener(1000, 10)
    run_through(listener, info_of(1000, source_of(1), "ValueError: refused"))
    for number in range(2, MOST_ROWS + 200):
        run_through(listener, info_of(number * 1000, source_of(1)))
    assert 1000 not in listener.kept().rows and listener.kept().failed_rows[1000].has_failed
    run_through(listener, info_of(1000, source_of(1), tries=2))
    first = listener.timeline()["buckets"][0]
    assert (first["timeMs"], first["numBatches"], first["numFailed"], first["numRecords"]) == (0, 5, 0, 50)
    assert not listener.kept().failed_rows and not listener.kept().rows[1000].has_failed


def test_a_stream_that_always_fails_leaves_few_rows() -> None:
    listener = StreamingJobProgressListener(1000, 10)
    for number in range(MOST_ROWS + 2 * MOST_FAILED_ROWS):
        run_through(listener, info_of(number * 1000, error="ValueError: refused"))
    kept = listener.kept()
    assert len(kept.failed_rows) == MOST_FAILED_ROWS and len(kept.rows) == MOST_ROWS
    assert max(kept.failed_rows) < min(kept.rows)


def test_a_queue_of_batches_is_kept_until_they_end() -> None:
    listener = StreamingJobProgressListener(1000, 10)
    for number in range(3000):
        listener.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted_of(info_of(number * 1000))))
    assert len(listener.kept().active) == 3000
    for number in range(3000):
        listener.onBatchCompleted(StreamingListenerBatchCompleted(info_of(number * 1000)))
    assert len(listener.kept().active) == 0


def test_a_batch_older_than_an_hour_is_in_no_bucket() -> None:
    listener = StreamingJobProgressListener(1000, 10)
    run_through(listener, info_of(2 * HOUR_MS))
    run_through(listener, info_of(1000))
    assert [bucket["timeMs"] for bucket in listener.timeline()["buckets"]] == [2 * HOUR_MS]


def test_a_row_has_the_reason_of_each_input_that_is_limited() -> None:
    limited = [
        source_of(1, reason="maxRatePerPartition"),
        source_of(1),
        source_of(1, reason="backpressure"),
        source_of(1, reason="backpressure"),
    ]
    info = replace(info_of(1000), inputs=dict(enumerate(limited)))
    assert row_of(info).limited_by == "maxRatePerPartition; backpressure"
    assert row_of(info_of(1000, source_of(1))).limited_by is None
