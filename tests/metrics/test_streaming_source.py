"""What a scrape shows of inputs, their lags and receivers; labels are bounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kstream.batch import BatchInfo, InputFigures, OutputOperationInfo, ReceiverInfo, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import DriverStatus, Outage
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchSubmitted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
)
from kstream.metrics.families import FAMILIES
from kstream.metrics.measured_store import StoreFigures
from kstream.metrics.streaming_source import StreamingSource
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.scheduler.executor_allocation_policy import AllocationDecision, Scaling
from kstream.scheduler.input_lags import InputLags
from kstream.testing import ManualClock
from tests.metrics.scraped import values_of

AT = Time(60_000)


class Shown:
    """A source fed by hand. `now_ms` is the moment of its scrapes."""

    def __init__(self, most: int = 1000) -> None:
        self.history = JobHistory(ManualClock(0))
        self.unfinished: set[Time] = set()
        self.lags = InputLags(lambda: self.unfinished, None)
        self.engine = EngineSnapshot()
        self.more: dict[str, Any] = {}
        self.now_ms = AT.milliseconds
        self.registry = CollectorRegistry()
        self.registry.register(StreamingSource(self._job, StoreFigures(), most))

    def _job(self) -> JobSnapshot:
        status = DriverStatus("job", 1, "host", 1, 0, self.now_ms, Duration(1000), outage=self.engine.outage)
        return JobSnapshot(status, self.history.snapshot(), replace(self.engine, lags=self.lags.lags()), **self.more)

    def batch(self, *sources: StreamInputInfo, reason: str | None = None) -> None:
        output = OutputOperationInfo(AT, 0, "foreachRDD", "", 0, 0, reason)
        info = BatchInfo(AT, {source.stream_id: source for source in sources}, AT.milliseconds, None, None, {0: output})
        self.lags.planned(AT, sources, AT.milliseconds)
        self.unfinished = set() if reason is None else {AT}
        self.history.onBatchSubmitted(StreamingListenerBatchSubmitted(info))
        self.history.onBatchCompleted(StreamingListenerBatchCompleted(info))

    def values(self) -> dict[str, float]:
        return values_of(generate_latest(self.registry).decode())

    def series(self, prefix: str) -> dict[str, float]:
        return {name: value for name, value in self.values().items() if name.startswith(prefix)}


def source(number: int, lags: dict[str, int], **facts: Any) -> StreamInputInfo:
    """An input whose partitions, named `topic-number`, are behind by so many records."""
    ends, latest = dict[str, dict[str, int]](), dict[str, dict[str, int]]()
    for place, lag in lags.items():
        topic, _, partition = place.rpartition("-")
        ends.setdefault(topic, {})[partition] = 100
        latest.setdefault(topic, {})[partition] = 100 + lag
    progress = {"description": f"Kafka[{number}]", "startOffset": ends, "endOffset": ends, "latestOffset": latest, **facts}
    return StreamInputInfo(number, 10, {"progress": progress})


LAGS = source(0, {"orders-0": 5, "orders-1": 7, "clicks-0": 0}), source(1, {"orders-0": 1})


def test_the_lag_is_there_by_partition_topic_and_input() -> None:
    shown = Shown()
    shown.batch(*LAGS)
    shown.now_ms += 2000
    assert shown.series("kstream_partition_lag_records") == {
        'kstream_partition_lag_records{input="0",partition="0",topic="clicks"}': 0,
        'kstream_partition_lag_records{input="0",partition="0",topic="orders"}': 5,
        'kstream_partition_lag_records{input="0",partition="1",topic="orders"}': 7,
        'kstream_partition_lag_records{input="1",partition="0",topic="orders"}': 1,
    }
    assert set(shown.series("kstream_partition_lag_seconds").values()) == {0.0, 2.0}
    assert shown.series("kstream_topic_lag_records") == {
        'kstream_topic_lag_records{input="0",topic="clicks"}': 0,
        'kstream_topic_lag_records{input="0",topic="orders"}': 12,
        'kstream_topic_lag_records{input="1",topic="orders"}': 1,
    }
    assert shown.values()['kstream_topic_lag_seconds{input="0",topic="orders"}'] == 2.0
    assert shown.series("kstream_input_lag_records") == {
        'kstream_input_lag_records{input="0"}': 12,
        'kstream_input_lag_records{input="1"}': 1,
    }


def test_in_an_outage_no_records_are_said_to_be_counted_and_those_that_wait_grow_older() -> None:
    """A lag of 0 was shown while brokers were away, with records in their logs."""
    shown = Shown()
    shown.batch(*LAGS)
    assert shown.values()["kstream_planning_outage_seconds"] == 0
    shown.engine, shown.now_ms = EngineSnapshot(outage=Outage(AT.milliseconds + 500, 900_000, "away")), shown.now_ms + 2000
    assert shown.values()["kstream_planning_outage_seconds"] == 1.5
    for what in "input", "topic", "partition":
        assert shown.series(f"kstream_{what}_lag_records") == {}
    assert shown.series("kstream_input_unplanned_records") == {}
    assert shown.series("kstream_topic_lag_seconds") == {
        'kstream_topic_lag_seconds{input="0",topic="orders"}': 2,
        'kstream_topic_lag_seconds{input="1",topic="orders"}': 2,
    }
    assert set(shown.series("kstream_partition_lag_seconds").values()) == set(shown.series("kstream_input_lag_seconds").values()) == {2}


def test_a_batch_that_has_failed_counts_for_the_lag_and_not_as_unplanned() -> None:
    shown = Shown()
    failed = source(0, {"orders-0": 5}, startOffset={"orders": {"0": 90}})
    shown.batch(failed, reason="ValueError: no")
    values = shown.values()
    assert (values['kstream_input_lag_records{input="0"}'], values['kstream_input_unplanned_records{input="0"}']) == (15, 5)
    shown.batch(failed)
    values = shown.values()
    assert (values['kstream_input_lag_records{input="0"}'], values['kstream_input_unplanned_records{input="0"}']) == (5, 5)


def test_above_the_limit_partitions_are_counted_by_topic_and_topics_by_input() -> None:
    for most, partitions, topics in (4, 4, 3), (3, 0, 3), (2, 0, 0), (0, 0, 0):
        shown = Shown(most)
        shown.batch(*LAGS)
        assert len(shown.series("kstream_partition_lag_records")) == len(shown.series("kstream_partition_lag_seconds")) == partitions
        assert len(shown.series("kstream_topic_lag_records")) == len(shown.series("kstream_topic_lag_seconds")) == topics
        assert shown.values()['kstream_input_lag_records{input="0"}'] == 12


def test_a_scrape_computes_the_lag_of_no_partition_that_it_does_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand of them took a scrape a tenth of a second."""
    shown = Shown(most=3)
    shown.batch(*LAGS)
    monkeypatch.setattr("kstream.batch.log_lag.PartitionLag", None)
    assert shown.values()['kstream_topic_lag_records{input="0",topic="orders"}'] == 12


class Unread(dict[str, Any]):
    """Offsets of many partitions that nobody may go through."""

    def __iter__(self) -> Any:
        raise AssertionError("the partitions were gone through")

    items = values = keys = __getitem__ = __iter__  # type: ignore[assignment]


def test_a_batch_goes_through_no_partition_and_a_scrape_does_it_once() -> None:
    shown = Shown()
    offsets = {"startOffset": Unread(), "endOffset": Unread(), "latestOffset": Unread()}
    shown.batch(StreamInputInfo(0, 10, {"progress": {"description": "", **offsets}}))
    assert shown.history.snapshot().inputs[0].num_records == 10
    with pytest.raises(AssertionError, match="gone through"):
        shown.values()


def test_the_lag_after_a_downtime_counts_the_downtime() -> None:
    shown = Shown()
    shown.lags = InputLags(set, AT - Duration(40_000))
    shown.batch(source(0, {"orders-0": 5}))
    assert shown.values()['kstream_input_lag_seconds{input="0"}'] == 40


def test_an_input_without_log_ends_has_no_lag() -> None:
    shown = Shown()
    shown.batch(StreamInputInfo(0, 3))
    assert [name for name in shown.values() if "lag" in name] == []
    assert shown.values()['kstream_input_records_total{input="0"}'] == 3


def test_what_a_batch_has_left_out_or_lost_is_counted_when_it_has_succeeded() -> None:
    shown = Shown()
    shown.more = {"error_policies": {0: "dead-letter"}}
    told = replace(LAGS[1], stream_id=0, figures=InputFigures(2, 1, 3, 2048))
    shown.batch(told)
    shown.batch(told, reason="ValueError: no")
    shown.batch(replace(told, figures=InputFigures(2, 1, 3)))
    values = shown.values()
    assert values['kstream_input_records_total{input="0"}'] == 20
    assert values['kstream_input_bytes_total{input="0"}'] == 2048
    assert values['kstream_record_errors_total{input="0",policy="dead-letter"}'] == 4
    assert values['kstream_skipped_records_total{input="0"}'] == 2 and values['kstream_data_losses_total{input="0"}'] == 6


def test_bytes_that_are_not_known_are_no_zero() -> None:
    shown = Shown()
    shown.batch(*LAGS)
    assert shown.series("kstream_input_bytes_total") == {}


def test_the_limits_of_batches_and_the_rates_of_inputs_are_shown() -> None:
    shown = Shown()
    shown.engine = EngineSnapshot(rates={0: 250}, allocations=[(1000, AllocationDecision(Scaling.UP, 1.5, 3, 5))])
    shown.more = {"executors": 3}
    for _ in range(2):
        shown.batch(source(0, {"orders-0": 5}, readLimit={"reason": "backpressure", "records": 10}))
    values = shown.values()
    assert values['kstream_limited_batches_total{input="0",reason="backpressure"}'] == 2
    assert values['kstream_input_rate_limit_records_per_second{input="0"}'] == 250
    assert values["kstream_executors"] == 3 and values["kstream_executors_wanted"] == 5


def test_a_receiver_is_shown_through_its_runs() -> None:
    shown = Shown()
    info = ReceiverInfo(2, "Clicks-2", True, "host", "1")
    shown.history.onReceiverStarted(StreamingListenerReceiverStarted(info))
    shown.history.onReceiverError(StreamingListenerReceiverError(info))
    assert shown.values()['kstream_receiver_active{input="2",receiver="Clicks-2"}'] == 1
    shown.history.onReceiverStopped(StreamingListenerReceiverStopped(info))
    shown.engine = EngineSnapshot(waiting_blocks=7)
    values = shown.values()
    assert values['kstream_receiver_active{input="2",receiver="Clicks-2"}'] == 0
    assert values['kstream_receiver_starts_total{input="2",receiver="Clicks-2"}'] == 1
    assert values['kstream_receiver_errors_total{input="2",receiver="Clicks-2"}'] == 1
    assert values["kstream_waiting_blocks"] == 7


def test_a_receiver_that_has_never_started_is_shown_as_one_that_does_not_run() -> None:
    """Else no alert fires for a receiver without a core."""
    shown = Shown()
    shown.more = {"receivers": {2: "Clicks-2", 3: "Orders-3"}}
    shown.history.onReceiverStarted(StreamingListenerReceiverStarted(ReceiverInfo(2, "Clicks-2", True, "host", "1")))
    assert shown.series("kstream_receiver_active") == {
        'kstream_receiver_active{input="2",receiver="Clicks-2"}': 1,
        'kstream_receiver_active{input="3",receiver="Orders-3"}': 0,
    }
    assert shown.values()['kstream_receiver_starts_total{input="3",receiver="Orders-3"}'] == 0


def test_no_executor_is_a_zero_and_no_look_for_executors_is_none() -> None:
    shown = Shown()
    assert shown.series("kstream_executors") == {}
    shown.more = {"executors": 0}
    assert shown.series("kstream_executors") == {"kstream_executors": 0}


def test_every_metric_of_the_table_is_exported_and_no_other() -> None:
    exported = [metric.name for metric in Shown().registry.collect()]
    assert sorted(exported) == sorted(family.name.removesuffix("_total") for family in FAMILIES)


def test_names_that_are_no_utf8_are_told_apart_and_keep_no_scrape_from_its_answer() -> None:
    shown = Shown()
    shown.batch(source(0, {"orders-0": 5}, description="Log[files \udcff]"), source(1, {"é-0": 1}, description="Log[files \udcfe]"))
    assert shown.series("kstream_input_info") == {
        'kstream_input_info{description="Log[files \\udcff]",input="0"}': 1,
        'kstream_input_info{description="Log[files \\udcfe]",input="1"}': 1,
    }
    assert shown.series("kstream_topic_lag_records")['kstream_topic_lag_records{input="1",topic="é"}'] == 1
