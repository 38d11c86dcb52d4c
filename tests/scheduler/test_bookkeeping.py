"""The small books of the scheduler: input infos, jobs of a set (Spark behaviour II1)."""

from __future__ import annotations

import pytest

from kstream.batch import Job, JobSet, StreamInputInfo
from kstream.batch_time import Time
from kstream.errors import IllegalStateError
from kstream.scheduler.batch_submitter import InputInfoTracker


def test_input_infos_are_kept_by_time_and_stream() -> None:
    """Spark behaviour II1."""
    tracker = InputInfoTracker()
    first, second, later = StreamInputInfo(0, 100), StreamInputInfo(1, 300), StreamInputInfo(0, 7)
    tracker.reportInfo(Time(0), first)
    tracker.reportInfo(Time(0), second)
    tracker.reportInfo(Time(1), later)
    assert tracker.getInfo(Time(0)) == {0: first, 1: second}
    assert tracker.getInfo(Time(1)) == {0: later}
    assert tracker.getInfo(Time(2)) == {}


def test_a_stream_reports_once_a_batch() -> None:
    """Spark behaviour II1."""
    tracker = InputInfoTracker()
    tracker.reportInfo(Time(0), StreamInputInfo(0, 1))
    with pytest.raises(IllegalStateError, match="already reported"):
        tracker.reportInfo(Time(0), StreamInputInfo(0, 1))


def test_clean_up_removes_what_is_strictly_older() -> None:
    """Spark behaviour II1."""
    tracker = InputInfoTracker()
    for n in (0, 1):
        tracker.reportInfo(Time(n), StreamInputInfo(0, n))
    tracker.cleanup(Time(0))
    assert tracker.getInfo(Time(0)) and tracker.getInfo(Time(1))
    tracker.cleanup(Time(1))
    assert not tracker.getInfo(Time(0)) and tracker.getInfo(Time(1))


def test_clean_up_keeps_the_infos_of_a_batch_that_is_tried_again() -> None:
    tracker = InputInfoTracker()
    for n in (0, 1):
        tracker.reportInfo(Time(n), StreamInputInfo(0, n))
    tracker.cleanup(Time(2), {Time(0)})
    assert tracker.getInfo(Time(0)) and not tracker.getInfo(Time(1))


def test_a_set_is_complete_with_its_last_job_and_remembers_who_failed() -> None:
    jobs = [Job(Time(1000), n, lambda: None) for n in (0, 1)]
    jobs_of_batch = JobSet(Time(1000), jobs, {}, 5)
    assert jobs_of_batch.handle_start(10) is True and jobs_of_batch.handle_start(11) is False
    jobs[1].error = ValueError("boom")
    assert jobs_of_batch.handle_completion(jobs[1], 20) is False and jobs_of_batch.processing_end_ms is None
    assert jobs_of_batch.handle_completion(jobs[0], 30) is True and jobs_of_batch.processing_end_ms == 30
    info = jobs_of_batch.to_batch_info()
    assert (info.schedulingDelay(), info.processingDelay(), info.totalDelay()) == (5, 20, 25)
    assert [str(e) for e in jobs_of_batch.errors] == ["boom"]


def test_an_error_without_a_message_is_a_reason_of_failure_all_the_same() -> None:
    """Spark behaviour SL6."""
    job = Job(Time(1000), 0, lambda: None)
    assert job.to_info().failureReason() is None
    job.error = KeyError()
    assert job.to_info().failureReason() == "KeyError"


def test_the_metadata_of_an_input_has_a_description_if_it_gave_one() -> None:
    assert StreamInputInfo(0, 1, {"Description": "topic a"}).metadataDescription() == "topic a"
    assert StreamInputInfo(0, 1).metadataDescription() is None
