"""The direct stream against a fake cluster: where it starts, what it plans, what survives."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, OffsetRange, TopicAndPartition, restore_input, utf8_decoder, value_only
from kstream_kafka.errors import (
    KafkaConfigError,
    LogShrankError,
)

from kstream.batch import BatchInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.dstream.ports import InputServices
from kstream.errors import ConfigurationError, NotRecoverableError
from kstream.offsets.offset_range import Partition
from tests.kstream_kafka.stream import BROKERS, FakeHost, Logs, Stream

FIRST = "spark.streaming.kstream.kafka.firstBatchRecords"


def test_KD1_a_batch_holds_a_range_of_every_partition_from_where_the_last_one_ended():
    s = Stream({("t", 0): (0, 16), ("t", 1): (2, 16)}, auto_offset_reset="smallest").start()
    assert s.batch() == [["t", 0, 0, 16], ["t", 1, 2, 16]]
    s.client.logs["t", 1] = (2, 20)
    assert s.batch() == [["t", 0, 16, 16], ["t", 1, 16, 20]]


def test_KD2_a_pattern_takes_the_topics_it_matches_whole_and_no_other():
    logs: Logs = {("pat1", 0): (0, 16), ("pat2", 0): (3, 16), ("pat3", 0): (4, 16), ("xpat1", 0): (0, 16), ("pat10", 0): (0, 16)}
    s = Stream(logs, re.compile(r"pat\d"), auto_offset_reset="earliest").start()
    ranges = s.batch()
    assert ranges == [["pat1", 0, 0, 16], ["pat2", 0, 3, 16], ["pat3", 0, 4, 16]]
    assert sum(until - start for _, _, start, until in ranges) == 41
    named = Stream(logs, (r"^pat\d$",), auto_offset_reset="earliest").start()
    assert len(named.batch()) == 3


def test_the_log_of_a_start_has_the_next_offset_of_each_partition():
    s = Stream({("t", 0): (3, 10), ("t", 1): (0, 7)}, auto_offset_reset="earliest").start()
    assert s.stream.position_text() == "t-0 at 3, t-1 at 0"
    s.batch()
    assert s.stream.position_text() == "t-0 at 10, t-1 at 7"


def test_KD3_latest_is_the_default_and_older_data_is_never_seen():
    s = Stream({("t", 0): (0, 10)}).start()
    assert s.stream.starting_point().encode()["ranges"] == [["t", 0, 10, 10]]
    s.client.logs["t", 0] = (0, 12)
    assert s.batch() == [["t", 0, 10, 12]]


def test_KD3_an_explicit_offset_is_where_it_starts_even_past_the_end():
    s = Stream({("t", 0): (0, 10)}, given={("t", 0): 11}).start()
    assert s.batch() == [["t", 0, 11, 11]]
    s.client.logs["t", 0] = (0, 14)
    assert s.batch() == [["t", 0, 11, 14]]
    s.client.logs["t", 0] = (0, 3)
    with pytest.raises(LogShrankError):
        s.plan()


def test_KD4_the_number_of_records_and_the_ranges_are_known_when_planned():
    stream = Stream({("t", 0): (0, 16), ("t", 1): (0, 0)}, auto_offset_reset="earliest").start().stream
    plan = stream.plan(Time(1))
    assert plan.num_records == 16
    assert stream.metadata(Time(1), plan)["offsets"] == [OffsetRange("t", 0, 0, 16), OffsetRange("t", 1, 0, 0)]
    assert stream.metadata(Time(1), plan)["Description"] == "topic: t\tpartition: 0\toffsets: 0 to 16"


def test_with_given_offsets_just_those_partitions_are_read():
    s = Stream({("t", 0): (0, 10), ("t", 1): (0, 10)}, given={("t", 1): 4}, metadata_max_age_ms=0).start()
    assert s.batch() == [["t", 1, 4, 10]]


@pytest.mark.parametrize("given", [{("other", 0): 1}, {("t", 0): -2}])
def test_given_offsets_must_be_of_the_topics_named_and_not_negative(given: dict[Partition, int]):
    with pytest.raises(ConfigurationError, match="fromOffsets"):
        Stream({("t", 0): (0, 10)}, given=given)


def test_KD7_the_maximum_rate_holds_over_batches():
    conf = {"spark.streaming.kafka.maxRatePerPartition": "100", FIRST: "0"}
    s = Stream({("t", 0): (0, 25)}, conf=conf, batch_ms=100, auto_offset_reset="earliest").start()
    assert [s.batch()[0][2:] for _ in range(4)] == [[0, 10], [10, 20], [20, 25], [25, 25]]


def test_partitions_share_the_rate_of_back_pressure_by_their_lags():
    conf = {"spark.streaming.backpressure.enabled": "true", "spark.streaming.backpressure.initialRate": "4", FIRST: "0"}
    s = Stream({("t", 0): (0, 60), ("t", 1): (0, 20)}, conf=conf, auto_offset_reset="earliest").start()
    assert s.stream.adapts_rate
    assert [r[2:] for r in s.batch()] == [[0, 3], [0, 1]], "the initial rate"
    s.stream.update_rate(8)
    assert [r[3] - r[2] for r in s.batch()] == [6, 2]


def test_the_first_batch_of_a_start_takes_a_limited_number_of_each_partition():
    s = Stream({("t", 0): (0, 250_000), ("t", 1): (0, 7)}, auto_offset_reset="earliest").start()
    assert [r[2:] for r in s.batch()] == [[0, 100_000], [0, 7]]
    limits = s.stream.planner.admission.limits_of(Time(1000))
    assert limits["readLimit"] == {"reason": "firstBatchRecords", "records": 100_007}


def test_the_first_batch_of_a_restart_takes_some_seconds_worth_by_the_batches_in_the_checkpoint():
    s = Stream({("t", 0): (0, 250_000)}, auto_offset_reset="earliest")
    before = BatchInfo(Time(0), {s.stream.id: StreamInputInfo(s.stream.id, 400)}, 0, 0, 850, {})
    s.stream.start(InputServices(last_batches=lambda _: [before]))
    assert [r[2:] for r in s.batch()] == [[0, 7658]]
    assert s.stream.planner.admission.limits_of(Time(1000))["readLimit"]["reason"] == "firstBatchTime"


@pytest.mark.parametrize(
    ("conf", "taken", "reason"),
    [
        ({"maxBytesPerBatch": "20m"}, 20, "maxBytesPerBatch"),
        ({"maxBytesPerBatch": "20m", "firstBatchRecords": "7"}, 7, "firstBatchRecords"),
        ({"firstBatchRecords": "0"}, 250, None),
    ],
)
def test_the_settings_of_the_user_limit_a_batch(conf: dict[str, str], taken: int, reason: str | None):
    settings = {f"spark.streaming.kstream.kafka.{key}": value for key, value in conf.items()}
    s = Stream({("t", 0): (0, 250)}, conf=settings, auto_offset_reset="earliest").start()
    assert [r[2:] for r in s.batch()] == [[0, taken]]
    assert s.stream.planner.admission.limits_of(Time(1000)).get("readLimit", {}).get("reason") == reason


def test_a_small_batch_waits_by_the_settings_of_the_user():
    settings = {"minRecordsPerBatch": "10", "maxWait": "3s"}
    conf = {f"spark.streaming.kstream.kafka.{key}": value for key, value in settings.items()}
    s = Stream({("t", 0): (0, 10)}, conf=conf, auto_offset_reset="earliest").start()
    s.batch()
    s.client.logs["t", 0] = (0, 11)
    assert [s.batch()[0][2:] for _ in range(3)] == [[10, 10], [10, 10], [10, 11]]


def test_a_bounded_run_takes_all_records_at_once():
    s = Stream({("t", 0): (0, 250_000)}, auto_offset_reset="earliest", until="latest").start()
    assert [r[2:] for r in s.batch()] == [[0, 250_000]]


def test_stopping_closes_the_client():
    s = Stream({("t", 0): (0, 1)}).start()
    s.stream.stop()
    s.stream.stop()
    assert s.client.closed


def host() -> Any:
    return FakeHost()


def upper(raw: bytes | None) -> str:
    return (raw or b"").decode().upper()


def test_a_stream_made_again_from_its_recipe_has_the_same_recipe():
    given = {TopicAndPartition("t", 0): 5}
    stream = KafkaUtils.createDirectStream(host(), ["t"], {**BROKERS, "group.id": "g"}, given, None, upper, value_only)
    recipe = stream.recipe()  # pyright: ignore[reportAttributeAccessIssue]
    assert recipe.kind == "kafka-direct" and json.loads(json.dumps(recipe.args)) == recipe.args
    assert recipe.functions == {"value_decoder": upper, "message_handler": value_only}
    again = restore_input(host(), recipe)
    assert again.recipe() == recipe  # pyright: ignore[reportAttributeAccessIssue]


def test_a_pattern_survives_its_recipe_with_its_flags():
    recipe = KafkaUtils.createDirectStream(host(), re.compile("T.", re.IGNORECASE), BROKERS).recipe()  # pyright: ignore
    stream: Any = restore_input(host(), recipe)
    assert stream.spec.topics.wants("tx") and stream.spec.decoding.key_decoder is utf8_decoder


def test_a_stream_with_a_secret_has_no_recipe_and_says_why():
    ssc = host()
    KafkaUtils.createDirectStream(ssc, ["t"], {**BROKERS, "sasl.password": "x"})
    assert "secret" in ssc.graph.recorder.why_not


@pytest.mark.parametrize(("topics", "params"), [("t", BROKERS), (["t"], "h:1")])
def test_wrong_types_are_type_errors_as_in_spark(topics: Any, params: Any):
    with pytest.raises(TypeError, match="should be"):
        KafkaUtils.createDirectStream(host(), topics, params)


@pytest.mark.parametrize("topics", [[], ["^a", "b"], ["^("]])
def test_topics_that_cannot_work_are_refused(topics: list[str]):
    with pytest.raises(KafkaConfigError, match="topics"):
        KafkaUtils.createDirectStream(host(), topics, BROKERS)


def test_a_plan_is_kept_no_longer_than_the_metadata_of_its_batch():
    s = Stream({("t", 0): (0, 10)}, auto_offset_reset="earliest", group_id="g").start()
    for number in range(1, 21):
        plan = s.stream.plan(Time(1000 * number))
        s.stream.remember_plan(Time(1000 * number), plan)
        s.stream.planned(Time(1000 * number), plan)
        s.stream.outcome(Time(1000 * number), plan)
        s.stream.clear_metadata(Time(1000 * number))
    assert not s.stream.has_batch(Time(1000)) and s.stream.has_batch(Time(20_000))


def test_the_least_rate_of_a_partition_counts_records_of_a_batch_and_not_of_a_second():
    """As in Spark's maxMessagesPerPartition: seconds times the rate, or the minimum as it is, whichever is more."""
    conf = {"spark.streaming.kafka.maxRatePerPartition": "1", "spark.streaming.kafka.minRatePerPartition": "30"}
    s = Stream({("t", 0): (0, 10_000)}, conf=conf, batch_ms=10_000, auto_offset_reset="earliest").start()
    assert s.batch() == [["t", 0, 0, 30]]
    s = Stream(
        {("t", 0): (0, 10_000)},
        conf={**conf, "spark.streaming.kafka.maxRatePerPartition": "5"},
        batch_ms=10_000,
        auto_offset_reset="earliest",
    ).start()
    assert s.batch() == [["t", 0, 0, 50]]


@pytest.mark.parametrize(
    "foreign",
    [{"files": []}, {"blocks": []}, {"rdds": 1}, {}, {"kind": "log", "ranges": []}],
    ids=["file", "receiver", "queue", "empty", "log"],
)
def test_stored_data_of_another_kind_of_input_is_refused(foreign: dict[str, Any]):
    s = Stream({("t", 0): (0, 10)}, auto_offset_reset="earliest").start()
    stream = s.stream
    with pytest.raises(NotRecoverableError, match="order in which the inputs are made"):
        stream.decode(foreign)


def test_a_policy_that_is_not_there_is_refused_when_made_or_when_started() -> None:
    host: Any = FakeHost()
    with pytest.raises(KafkaConfigError, match="catch-up, by-timestamp"):
        KafkaUtils.createDirectStream(host, ["t"], BROKERS, downtime="never")
    with pytest.raises(KafkaConfigError, match="by-timestamp"):
        Stream({("t", 0): (0, 1)}, conf={"spark.streaming.kstream.downtime": "never"}).start()


def test_catch_up_is_the_default_and_by_timestamp_is_a_word_of_the_call_or_of_the_settings() -> None:
    conf = {"spark.streaming.kstream.downtime": "by-timestamp"}
    for options, busy in (
        ({}, None),
        ({"downtime": "by-timestamp"}, []),
        ({"conf": conf}, []),
        ({"conf": conf, "downtime": "catch-up"}, None),
    ):
        s = Stream({("t", 0): (0, 0)}, **options).start()
        assert s.stream.missed([Time(1000)]) == busy


def after_a_batch(policy: str) -> Stream:
    """A stream with this policy for lost records that has planned ten records of two partitions."""
    conf = {"spark.streaming.kstream.kafka.onDataLoss": policy}
    s = Stream({("t", 0): (0, 10), ("t", 1): (0, 10)}, conf=conf, auto_offset_reset="earliest")
    s.client.ids = {"t": "t-1"}
    s.start().batch()
    return s


def test_what_a_worker_found_makes_the_next_plan_ask():
    s = after_a_batch("skip")
    s.client.ids, s.client.logs = {"t": "t-2"}, {("t", 0): (0, 50), ("t", 1): (0, 50)}
    assert s.batch()[0] == ["t", 0, 10, 50]  # nothing to be suspicious about: the workers will see
    lost = [{"topic": "t", "partition": 0, "from": 10, "until": 50, "cause": "recreation", "detail": ""}]
    s.stream.outcome(s.time, s.stream.decode({"ranges": [], "lost": lost}))
    assert s.plan()["ranges"] == [["t", 0, 0, 50], ["t", 1, 0, 50]]


def test_outcomes_carry_the_losses_of_the_plan_and_ask_for_a_report_only_under_report():
    for policy, reported in (("skip", False), ("report", True)):
        s = after_a_batch(policy)
        s.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 10)}
        data = s.plan()
        outcome = s.stream.outcome(s.time, s.stream.decode(data))
        assert outcome.lost == data["lost"] and outcome.report is reported and outcome.counts == [0, 0]


def test_under_fail_a_log_that_was_cut_is_an_error_of_the_plan():
    s = after_a_batch("fail")
    s.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 10)}
    with pytest.raises(LogShrankError):
        s.plan()


def test_an_unknown_policy_for_lost_records_is_refused():
    with pytest.raises(KafkaConfigError, match=r"One of: fail, skip, report"):
        after_a_batch("ignore")
