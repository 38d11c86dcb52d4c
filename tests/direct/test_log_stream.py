"""The direct stream of any Log: the contract of inputs, and what it promises beyond."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.direct.connector import restore_input
from kstream.direct.log_plan import LogPlan
from kstream.dstream import InputDStream
from kstream.dstream.ports import InputServices
from kstream.errors import ConfigurationError, DataLossError, NotRecoverableError, TransientError
from kstream.offsets.log import ATTEMPTS, Log
from kstream.offsets.offset_range import OffsetRange
from kstream.testing.input_dstream_contract import ZERO, RestorableInputDStreamContract, batch_time
from tests.direct.memory_log import A, B, MemoryLog, MemoryStream
from tests.fakes import FakeHost


class TestALog(RestorableInputDStreamContract):
    @pytest.fixture(autouse=True)
    def _log(self) -> None:
        self.log = MemoryLog()
        self.number = 0

    def make_input(self) -> InputDStream[Any]:
        return MemoryStream(FakeHost({}), self.log)

    def produce(self, stream: InputDStream[Any], time: Time, count: int) -> list[Any]:
        self.number += count
        return self.log.add(A, *range(self.number - count, self.number), at_ms=time.milliseconds - 1)


def stream(log: MemoryLog, start: Any = "earliest", conf: dict[str, str] | None = None, most: int = 0) -> MemoryStream:
    made = MemoryStream(FakeHost(conf or {}), log, start, most)
    made.initialize(Time(ZERO))
    return made


def started(log: MemoryLog, start: Any = "earliest", conf: dict[str, str] | None = None, most: int = 0) -> MemoryStream:
    made = stream(log, start, conf, most)
    made.start(InputServices())
    return made


NO_FIRST_BATCH = "spark.streaming.kstream.log.firstBatchRecords"


def run(on: MemoryStream, number: int) -> tuple[LogPlan, list[Any]]:
    """Plan a batch and read it, as a driver does."""
    time = batch_time(number)
    plan = on.plan(time)
    on.remember_plan(time, plan)
    on.planned(time, plan)
    rdd: Any = on.compute(time)
    return plan, rdd.collect()


def test_the_stored_form_has_the_name_of_the_log_and_every_range() -> None:
    log = MemoryLog({A: [(0, "a")], B: []})
    on = started(log)
    assert on.plan(batch_time(1)).encode() == {"kind": "log", "log": "memory", "ranges": [["t", 0, 0, 1], ["t", 1, 0, 0]]}
    before = {"log": "memory", "ranges": [["t", 0, 0, 1], ["t", 1, 0, 0]]}
    assert on.decode(before) == on.plan(batch_time(1)), "the form of before, without the kind"


def test_the_log_of_a_start_has_the_next_offset_of_each_partition() -> None:
    assert started(MemoryLog({A: [(0, "a")], B: []}), "latest").position_text() == "t-0 at 1, t-1 at 0"


@pytest.mark.parametrize(
    ("start", "begin"),
    [("earliest", 1), ("latest", 4), ("-2", 2), ("-9", 1), ({A: 3}, 3), ("1970-01-01T00:00:00.020Z", 2), ("1970-01-02T00:00:00Z", 4)],
)
def test_a_start_is_given_in_the_words_of_the_kafka_stream(start: Any, begin: int) -> None:
    log = MemoryLog({A: [(10, "a"), (10, "b"), (20, "c"), (30, "d")]}, first={A: 1})
    assert started(log, start).starting_point().ranges == [OffsetRange("t", 0, begin, begin)]


@pytest.mark.parametrize(
    ("start", "words"),
    [
        ("committed", "consumer groups"),
        ({B: 0}, "no partitions"),
        ({A: 9}, "past the end"),
        (None, "no starting offset"),
        ("-1m", "no times"),
    ],
)
def test_a_start_that_the_log_cannot_have_is_refused_at_the_start(start: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        started(MemoryLog(has_times=False), start)


def test_a_log_without_a_name_is_refused() -> None:
    class Nameless(MemoryLog):
        name = ""

    with pytest.raises(ConfigurationError, match="`name`"):
        stream(Nameless())


def test_a_log_that_cannot_be_reached_fails_the_start_also_after_a_restart() -> None:
    log = MemoryLog()
    again = stream(log)
    again.restored(batch_time(1), LogPlan("memory", [OffsetRange("t", 0, 0, 0)]))
    log.problems = [OSError("no such file")]
    with pytest.raises(OSError, match="no such file"):
        again.start(InputServices())


def test_the_log_is_asked_once_a_batch() -> None:
    log = MemoryLog()
    on = started(log)
    before = log.asked
    for number in (1, 2, 3):
        run(on, number)
    assert log.asked - before == 3


def test_a_partition_that_comes_later_begins_at_its_earliest_offset() -> None:
    log = MemoryLog({A: [(0, "old")]})
    on = started(log, "latest")
    log.add(B, "x", "y")
    log.first[B] = 1
    plan, records = run(on, 1)
    assert plan.ranges == [OffsetRange("t", 0, 1, 1), OffsetRange("t", 1, 1, 2)] and records == ["y"]


def test_the_rate_limits_every_partition() -> None:
    log = MemoryLog({A: [(0, n) for n in range(10)], B: [(0, n) for n in range(2)]})
    on = started(log, conf={"spark.streaming.kstream.log.maxRatePerPartition": "3", NO_FIRST_BATCH: "0"})
    assert [r.untilOffset for r in run(on, 1)[0].ranges] == [3, 2]
    assert [r.untilOffset for r in run(on, 2)[0].ranges] == [6, 2]


def test_partitions_share_the_rate_of_back_pressure_by_their_lags() -> None:
    log = MemoryLog({A: [(0, n) for n in range(60)], B: [(0, n) for n in range(20)]})
    rates = {"spark.streaming.backpressure.enabled": "true", "spark.streaming.backpressure.initialRate": "4"}
    on = started(log, conf={**rates, NO_FIRST_BATCH: "0"})
    assert on.adapts_rate
    assert [r.untilOffset for r in run(on, 1)[0].ranges] == [3, 1], "the initial rate"
    on.update_rate(8)
    assert [r.count() for r in run(on, 2)[0].ranges] == [6, 2]


def test_a_stream_without_an_errors_policy_warns_that_the_setting_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "kstream"):
        started(MemoryLog(), conf={"spark.streaming.kstream.onRecordError": "fail"})
        assert caplog.records == []
        started(MemoryLog(), conf={"spark.streaming.kstream.onRecordError": "skip"})
    (record,) = caplog.records
    assert "has no errors policy" in record.message and "onRecordError" in record.message


def test_a_long_range_is_read_by_several_tasks_in_order_and_counted_as_one() -> None:
    log = MemoryLog({A: [(0, n) for n in range(10)]})
    on = started(log, most=4)
    plan, records = run(on, 1)
    assert records == list(range(10))
    assert on.outcome(batch_time(1), plan).counts == [10]


def test_progress_has_offsets_and_lag_as_the_kafka_stream() -> None:
    log = MemoryLog({A: [(0, n) for n in range(10)]})
    on = started(log, conf={"spark.streaming.kstream.log.maxRatePerPartition": "3"})
    plan, _ = run(on, 1)
    progress = on.metadata(batch_time(1), plan)["progress"]
    assert progress["endOffset"] == {"t": {"0": 3}} and progress["metrics"]["maxOffsetsBehindLatest"] == 7
    assert progress["metrics"]["totalOffsetsBehindLatest"] == 7
    assert progress["description"] == "memory[t]"


# -- errors


def test_a_transient_error_is_tried_again_and_an_enduring_one_is_raised_after_some_attempts() -> None:
    log = MemoryLog()
    on = started(log)
    log.problems = [TransientError("locked")] * 2
    on.plan(batch_time(1))
    assert len(on.paused) == 2 and on.paused[1] > on.paused[0]
    log.problems = [TransientError("locked")] * ATTEMPTS
    with pytest.raises(TransientError, match="locked"):
        on.plan(batch_time(1))
    assert log.problems == []


def test_another_error_is_raised_at_once() -> None:
    log = MemoryLog()
    on = started(log)
    log.problems = [ValueError("bad"), ValueError("bad")]
    with pytest.raises(ValueError, match="bad"):
        on.plan(batch_time(1))
    assert len(log.problems) == 1


def test_a_read_that_breaks_off_goes_on_without_repeating_or_losing_a_record() -> None:
    log = MemoryLog({A: [(0, n) for n in range(5)]})
    on = started(log)
    plan = on.plan(batch_time(1))
    on.remember_plan(batch_time(1), plan)
    log.problems = [TransientError("reset")] * 3  # after the first record of each attempt
    rdd: Any = on.compute(batch_time(1))
    assert rdd.collect() == [0, 1, 2, 3, 4] and len(on.paused) == 3


def test_a_range_with_too_few_records_is_a_data_loss_unless_offsets_have_gaps() -> None:
    log = MemoryLog({A: [(0, n) for n in range(5)]}, first={A: 2})
    on = started(log, {A: 0})
    with pytest.raises(DataLossError, match="2 of the 5 records"):
        run(on, 1)

    class Gappy(MemoryLog):
        offsets_have_gaps = True

    assert run(started(Gappy({A: [(0, n) for n in range(5)]}, first={A: 2}), {A: 0}), 1)[1] == [2, 3, 4]


def test_a_range_with_too_many_records_is_an_error_of_the_connector() -> None:
    class Doubling(MemoryLog):
        def read(self, offsets: OffsetRange) -> Any:
            yield from [1, 2, 3]

    with pytest.raises(ValueError, match="3 records for the 1 offsets"):
        run(started(Doubling({A: [(0, 1)]})), 1)


def test_under_skip_a_loss_goes_to_the_ledger_and_the_batch_has_the_rest() -> None:
    log = MemoryLog({A: [(0, n) for n in range(5)]}, first={A: 2})
    on = started(log, {A: 0}, {"spark.streaming.kstream.log.onDataLoss": "skip"})
    plan, records = run(on, 1)
    assert records == [2, 3, 4]
    outcome = on.outcome(batch_time(1), plan)
    assert [(entry["from"], entry["until"], entry["cause"]) for entry in outcome.lost] == [(0, 5, "removed")] and not outcome.report


def test_a_log_that_was_cut_is_a_data_loss_and_under_report_the_stream_goes_on_at_its_end() -> None:
    def cut(policy: str) -> tuple[MemoryLog, MemoryStream]:
        log = MemoryLog({A: [(0, n) for n in range(5)]})
        on = started(log, conf={"spark.streaming.kstream.log.onDataLoss": policy})
        run(on, 1)
        del log.records[A][2:]
        return log, on

    _, on = cut("fail")
    with pytest.raises(DataLossError, match="ends at 2, before the next offset 5"):
        on.plan(batch_time(2))
    log, on = cut("report")
    plan, _ = run(on, 2)
    assert LogPlan.decode(plan.encode()) == plan and plan.ranges == [OffsetRange("t", 0, 2, 2)]
    assert on.outcome(batch_time(2), plan).report
    log.add(A, "new")
    assert run(on, 3)[1] == ["new"]


def test_a_partition_that_is_gone_is_a_data_loss_with_its_name() -> None:
    log = MemoryLog({A: [(0, 1)], B: []})
    on = started(log)
    del log.records[B]
    with pytest.raises(DataLossError, match="t-1: the partition is gone"):
        on.plan(batch_time(1))


def test_under_skip_a_partition_that_is_gone_is_told_once_and_goes_on_where_it_was_when_it_comes_back() -> None:
    log = MemoryLog({A: [(0, 1)], B: [(0, "x"), (0, "y")]})
    on = started(log, conf={"spark.streaming.kstream.log.onDataLoss": "skip"})
    run(on, 1)
    away = log.records.pop(B)
    lost = [len(run(on, number)[0].lost) for number in (2, 3)]
    assert lost == [1, 0]
    log.records[B] = [*away, (0, "z")]
    assert run(on, 4)[1] == ["z"]
    del log.records[B]
    assert len(run(on, 5)[0].lost) == 1


@pytest.mark.parametrize("answer", [None, {("t", "0"): 1}, {"t": 1}, {("t", 0): None}, {("t", 0): 1.5}])
def test_offsets_in_another_form_are_refused_with_the_log_and_its_method(answer: Any) -> None:
    class Wrong(MemoryLog):
        def latest(self) -> Any:
            return answer

    with pytest.raises(TypeError, match=r"Wrong\.latest must return \{\(topic, number\): offset\}"):
        started(Wrong())


def test_a_time_without_an_entry_for_a_partition_is_refused_and_never_taken_for_the_end() -> None:
    class Silent(MemoryLog):
        def offsets_at(self, time_ms: int) -> Any:
            return {}

    with pytest.raises(ConfigurationError, match=r"Silent\.offsets_at has no entry for partition \('t', 0\)"):
        started(Silent(), "-1m")


def test_an_unknown_policy_fails_the_start() -> None:
    with pytest.raises(ConfigurationError, match="onDataLoss is 'perhaps'"):
        started(MemoryLog(), conf={"spark.streaming.kstream.log.onDataLoss": "perhaps"})


# -- a restart


def test_missed_batches_get_the_records_of_their_times_under_by_timestamp() -> None:
    log = MemoryLog()
    on = started(log, conf={"spark.streaming.kstream.downtime": "by-timestamp"})
    for number in (1, 3):
        log.add(A, number, at_ms=batch_time(number).milliseconds - 1)
    times = [batch_time(number) for number in (1, 2, 3)]
    assert on.missed(times) == [times[0], times[2]]
    assert [run(on, number)[1] for number in (1, 3)] == [[1], [3]]
    log.add(A, "now")
    assert run(on, 4)[1] == ["now"]


def test_a_log_that_is_cut_after_missed_batches_is_a_data_loss_too() -> None:
    log = MemoryLog()
    on = started(log, conf={"spark.streaming.kstream.downtime": "by-timestamp"})
    log.add(A, 1, at_ms=batch_time(1).milliseconds - 1)
    on.missed([batch_time(number) for number in (1, 2, 3)])  # 2 and 3 are idle and never planned
    run(on, 1)
    run(on, 4)
    log.records[A].clear()
    with pytest.raises(DataLossError, match="before the next offset 1"):
        on.plan(batch_time(5))


def test_by_timestamp_over_a_log_without_times_says_that_it_has_no_effect(caplog: pytest.LogCaptureFixture) -> None:
    on = started(MemoryLog(has_times=False), conf={"spark.streaming.kstream.downtime": "by-timestamp"})
    with caplog.at_level(logging.WARNING, "kstream.offsets"):
        assert on.missed([batch_time(1)]) is None
    assert "has no times" in caplog.text


def test_a_hole_between_two_plans_is_named() -> None:
    on = stream(MemoryLog())
    before, after = (LogPlan("memory", [OffsetRange("t", 0, *at)]) for at in ((0, 5), (8, 9)))
    assert on.skipped_between(before, after) == ["t-0 [5, 8)"] and on.skipped_between(after, before) == []


def test_the_plan_of_another_log_is_refused() -> None:
    with pytest.raises(NotRecoverableError, match="reads the log 'memory', and its stored plans are of the log 'other'"):
        stream(MemoryLog()).decode({"log": "other", "ranges": []})
    with pytest.raises(NotRecoverableError, match="another kind of input"):
        stream(MemoryLog()).decode({"files": []})


@dataclass(frozen=True)
class Table(Log):
    name = "table"
    path: str
    shards: int = 1
    password: str = ""

    def latest(self) -> Any:
        return {("t", n): 0 for n in range(self.shards)}

    def read(self, offsets: OffsetRange) -> Any:
        return []


def test_the_parameters_of_a_dataclass_are_stored_unless_one_may_be_secret() -> None:
    @dataclass(frozen=True)
    class Open(Log):
        name = "open"
        path: str

        def latest(self) -> Any:
            return {}

        def read(self, offsets: OffsetRange) -> Any:
            return []

    assert Open("/x").parameters() == {"path": "/x"}
    assert Table("/x", password="p").parameters() is None
    assert MemoryLog().parameters() is None  # no plain values


def test_a_stream_is_made_again_from_its_recipe() -> None:
    log = MemoryLog()
    recipe = stream(log, "-5", most=7).recipe()
    assert recipe.kind == "log-memory"
    again = restore_input(FakeHost({}), recipe)
    assert again.log is log and again.recipe() == recipe
