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
from kstream.monitoring.batch_history import MOST_FAILED, MOST_FAILED_ROWS, MOST_ROWS, BatchHistory, KeptBatches
from kstream.monitoring.batch_row import row_of, status_of
from kstream.monitoring.job_history import KEPT, JobHistory
from kstream.monitoring.timeline import HOUR_MS, MOST_BUCKETS, bucket_ms
from kstream.testing import ManualClock
from kstream.ui.batch_forms import timeline_form
from kstream.ui.forms import TimelineForm
from tests.ui.infos import info_of, run_through, source_of, submitted_of
from tests.untouched import Untouched


def listening(retained: int) -> JobHistory:
    """A history that keeps the facts of so many batches for a page."""
    made = JobHistory(ManualClock(0))
    made.keep_batches(BatchHistory(1000, retained))
    return made


def counted(history: JobHistory) -> tuple[int, int, int]:
    """The records of batches that have started, those of batches that have succeeded, and how often a batch has ended."""
    kept = history.snapshot()
    return kept.batches.received, sum(each.num_records for each in kept.inputs.values()), sum(kept.ended.values())


def timeline(history: JobHistory) -> TimelineForm:
    return timeline_form(history.snapshot().batches.timeline, 1000)


def test_a_batch_is_followed_from_waiting_to_running_to_retained_and_its_records_are_counted_at_both_ends() -> None:
    """Spark behaviour PL1."""
    listener, whole = listening(100), info_of(1000, source_of(2))
    submitted, output = submitted_of(whole), whole.outputs[0]
    listener.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted))
    kept = listener.snapshot().batches
    assert list(kept.active) == [1000] and not kept.rows and counted(listener) == (0, 0, 0)
    listener.onBatchStarted(StreamingListenerBatchStarted(replace(submitted, processing_start_ms=1005)))
    kept = listener.snapshot().batches
    assert kept.active[1000].info.scheduling_delay_ms == 5 and counted(listener) == (20, 0, 0)
    listener.onOutputOperationStarted(StreamingListenerOutputOperationStarted(replace(output, end_ms=None)))
    assert status_of(listener.snapshot().batches.active[1000].operations[0]) == "PROCESSING"
    listener.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(output))
    assert status_of(listener.snapshot().batches.active[1000].operations[0]) == "COMPLETED"
    listener.onBatchCompleted(StreamingListenerBatchCompleted(whole))
    kept = listener.snapshot().batches
    assert not kept.active and list(kept.rows) == list(kept.retained) == [1000]
    assert counted(listener) == (20, 20, 1)


def test_of_a_day_of_batches_few_are_kept_whole_a_row_of_more_and_an_hour_in_buckets() -> None:
    """Spark behaviour PL2: 1000 batches, and a total that keeps rising."""
    listener = listening(100)
    source = source_of(2)
    for number in range(20_000):
        run_through(listener, info_of(number * 1000, source))
    kept, hour = listener.snapshot().batches, timeline(listener)
    assert (len(kept.active), len(kept.retained), len(kept.rows)) == (0, 100, MOST_ROWS)
    assert list(kept.retained) == [n * 1000 for n in range(19_900, 20_000)]
    buckets = hour["buckets"]
    assert len(buckets) == MOST_BUCKETS and buckets[-1]["timeMs"] - buckets[0]["timeMs"] == HOUR_MS - hour["bucketMs"]
    assert counted(listener) == (400_000, 400_000, 20_000)


def test_the_width_of_a_bucket_is_whole_intervals_and_at_least_six_seconds() -> None:
    assert [bucket_ms(interval) for interval in (100, 1000, 4000, 6000, 7000, 60_000)] == [6000, 6000, 8000, 6000, 7000, 60_000]


def test_more_facts_are_kept_if_the_setting_says_so_and_then_as_many_rows() -> None:
    listener = listening(1200)
    for number in range(1300):
        run_through(listener, info_of(number * 1000))
    kept = listener.snapshot().batches
    assert len(kept.retained) == len(kept.rows) == 1200
    none = listening(0)
    run_through(none, info_of(1000))
    assert len(none.snapshot().batches.retained) == 0 and len(none.snapshot().batches.rows) == 1


def test_the_facts_of_the_last_failed_batches_stay_until_they_succeed() -> None:
    listener = listening(100)
    for number in range(2 * MOST_FAILED):
        run_through(listener, info_of(number * 1000, error="ValueError: refused"))
    for number in range(100, 1000):
        run_through(listener, info_of(number * 1000))
    failed = [number * 1000 for number in range(MOST_FAILED, 2 * MOST_FAILED)]
    assert list(listener.snapshot().batches.retained) == [*failed, *(number * 1000 for number in range(900, 1000))]
    again = info_of(failed[0], tries=2)
    listener.onOutputOperationStarted(StreamingListenerOutputOperationStarted(replace(again.outputs[0], end_ms=None)))
    assert listener.snapshot().batches.active[failed[0]].tries == 2, "a retry goes on from the facts of the failure"
    listener.onBatchCompleted(StreamingListenerBatchCompleted(again))
    assert list(listener.snapshot().batches.retained) == [*failed[1:], *(number * 1000 for number in range(901, 1000)), failed[0]]
    for number in range(1000, 1100):
        run_through(listener, info_of(number * 1000))
    assert list(listener.snapshot().batches.retained)[:MOST_FAILED] == [*failed[1:], 1_000_000]


def test_the_facts_that_recent_progress_keeps_are_kept_once() -> None:
    listener = listening(KEPT)
    for number in range(KEPT + 50):
        listener.onBatchCompleted(StreamingListenerBatchCompleted(info_of(number * 1000)))
    shared = {id(info) for info in listener.snapshot().recent}
    assert {id(info) for info in listener.snapshot().batches.retained.values()} == shared and len(shared) == KEPT


def test_what_a_batch_costs_does_not_depend_on_the_number_of_partitions() -> None:
    offsets = {"orders": Untouched()}
    metrics = {"totalOffsetsBehindLatest": 2500}
    progress = {"description": "Kafka", "startOffset": offsets, "endOffset": offsets, "latestOffset": offsets, "metrics": metrics}
    listener = listening(10)
    run_through(listener, info_of(1000, StreamInputInfo(0, 10, {"progress": progress, "offsets": Untouched()})))
    assert listener.snapshot().batches.rows[1000].lag == 2500


def test_the_lag_of_a_batch_is_the_sum_over_its_partitions() -> None:
    assert row_of(info_of(1000, source_of(7, behind=3))).lag == 21
    assert row_of(info_of(1000, StreamInputInfo(0, 5, {}))).lag is None


def test_a_batch_that_fails_and_succeeds_later_has_one_row_and_counts_once_in_the_timeline() -> None:
    listener = listening(10)
    run_through(listener, info_of(1000, source_of(1), "ValueError: refused"))
    kept = listener.snapshot().batches
    assert kept.rows[1000].has_failed and counted(listener)[1] == 0
    run_through(listener, info_of(1000, source_of(1), tries=2))
    kept = listener.snapshot().batches
    assert len(kept.rows) == len(kept.retained) == 1 and not kept.rows[1000].has_failed and counted(listener)[1] == 10
    (bucket,) = timeline(listener)["buckets"]
    assert (bucket["numBatches"], bucket["numFailed"], bucket["numRecords"], bucket["totalDelay"]) == (1, 0, 10, 405)


def test_a_batch_that_succeeds_after_its_row_has_gone_counts_once_in_the_timeline() -> None:
    listener = listening(10)
    run_through(listener, info_of(1000, source_of(1), "ValueError: refused"))
    for number in range(2, MOST_ROWS + 200):
        run_through(listener, info_of(number * 1000, source_of(1)))
    assert 1000 not in listener.snapshot().batches.rows and listener.snapshot().batches.failed_rows[1000].has_failed
    run_through(listener, info_of(1000, source_of(1), tries=2))
    first = timeline(listener)["buckets"][0]
    assert (first["timeMs"], first["numBatches"], first["numFailed"], first["numRecords"]) == (0, 5, 0, 50)
    assert not listener.snapshot().batches.failed_rows and not listener.snapshot().batches.rows[1000].has_failed


def test_a_stream_that_always_fails_leaves_few_rows() -> None:
    listener = listening(10)
    for number in range(MOST_ROWS + 2 * MOST_FAILED_ROWS):
        run_through(listener, info_of(number * 1000, error="ValueError: refused"))
    kept = listener.snapshot().batches
    assert len(kept.failed_rows) == MOST_FAILED_ROWS and len(kept.rows) == MOST_ROWS
    assert max(kept.failed_rows) < min(kept.rows)


def test_without_a_page_no_batch_is_kept_for_it() -> None:
    history = JobHistory(ManualClock(0))
    run_through(history, info_of(1000, source_of(1)))
    assert history.snapshot().batches == KeptBatches() and history._batches is None


def test_a_queue_of_batches_is_kept_until_they_end() -> None:
    listener = listening(10)
    for number in range(3000):
        listener.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted_of(info_of(number * 1000))))
    assert len(listener.snapshot().batches.active) == 3000
    for number in range(3000):
        listener.onBatchCompleted(StreamingListenerBatchCompleted(info_of(number * 1000)))
    assert len(listener.snapshot().batches.active) == 0


def test_a_batch_older_than_an_hour_is_in_no_bucket() -> None:
    listener = listening(10)
    run_through(listener, info_of(2 * HOUR_MS))
    run_through(listener, info_of(1000))
    assert [bucket["timeMs"] for bucket in timeline(listener)["buckets"]] == [2 * HOUR_MS]


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
