"""InputProgress: what an input reports of its share in a batch."""

from __future__ import annotations

import pytest

from kstream.batch import InputProgress, StreamInputInfo
from tests.untouched import Untouched

OFFSETS = {"endOffset": {"orders": {"0": 5, "1": 7}}, "latestOffset": {"orders": {"0": 15, "1": 7, "2": 100}}}


def test_an_input_may_report_nothing() -> None:
    progress = StreamInputInfo(0, 3).progress
    assert progress.description == "" and progress.values == {} and progress.other_facts == {}
    assert progress.start_offsets == progress.end_offsets == {}
    assert progress.latest_offsets is progress.lag is progress.read_limit is progress.limited_by is progress.backpressure_rate is None


def test_the_lag_is_what_the_logs_had_beyond_the_plan_over_the_partitions_of_which_both_are_known() -> None:
    assert InputProgress(OFFSETS).lag == 10
    assert InputProgress({**OFFSETS, "endOffset": {"orders": {"0": 5, "3": 7}, "clicks": {"0": 1}}}).lag == 10


def test_a_partition_whose_log_is_shorter_than_the_plan_takes_nothing_off_the_lag_of_the_others() -> None:
    assert InputProgress({**OFFSETS, "endOffset": {"orders": {"0": 5, "1": 9}}}).lag == 10


def test_without_the_ends_of_the_logs_the_lag_is_not_known() -> None:
    assert InputProgress({**OFFSETS, "latestOffset": None, "metrics": None}).lag is None


def test_an_input_that_reports_its_whole_lag_has_no_partition_looked_at() -> None:
    untouched = {"endOffset": Untouched(), "latestOffset": Untouched()}
    assert InputProgress({**untouched, "metrics": {"totalOffsetsBehindLatest": 2500}}).lag == 2500
    with pytest.raises(AssertionError):
        _ = InputProgress(untouched).lag


def test_the_read_limit_has_a_reason_and_what_the_input_says_of_it() -> None:
    progress = InputProgress({"readLimit": {"reason": "backpressure", "records": 70}, "backpressureRate": 50})
    assert progress.limited_by == "backpressure" and progress.read_limit == {"reason": "backpressure", "records": 70}
    assert progress.backpressure_rate == 50


def test_the_other_facts_are_those_that_have_no_name_here() -> None:
    others = {"metrics": {"files": 2}, "pinned": {"t": {"0": 1}}}
    known = {"description": "x", "startOffset": {}, **OFFSETS, "readLimit": {"reason": "a"}}
    assert InputProgress({**known, **others}).other_facts == others
