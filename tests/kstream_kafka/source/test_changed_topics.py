"""Topics that are deleted, created again or cut while a stream reads them: what the planner finds, and where it continues."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import LogShrankError, PartitionRevokedError, TopicRecreatedError
from kstream_kafka.source.stream_spec import StreamSpec
from kstream_kafka.source.subscription import Partitions

from kstream.batch_time import Time
from tests.kstream_kafka.stream import Stream

ONE = {("t", 0): (0, 10), ("t", 1): (0, 10)}


def started(policy: str = "fail", logs: Any = None, topics: Any = ("t",), **options: Any) -> Stream:
    """A stream that has planned and stored one batch; its topics' ids are told."""
    conf = {"spark.streaming.kstream.kafka.onDataLoss": policy}
    s = Stream(logs or ONE, topics, conf=conf, auto_offset_reset="earliest", **options)
    s.client.ids = {topic: f"{topic}-1" for topic, _ in s.client.logs}
    s.start().batch()
    return s


def restarted(s: Stream, data: dict[str, Any], policy: str = "fail", topics: Any = ("t",)) -> Stream:
    """A new driver over the same cluster that was told the newest plan."""
    again = Stream(s.client.logs, topics, conf={"spark.streaming.kstream.kafka.onDataLoss": policy})
    again.client.ids = s.client.ids
    again.stream.restored(Time(1000), again.stream.decode(data))
    return again.start()


def plan_and_store(s: Stream) -> dict[str, Any]:
    data = s.plan()
    s.stream.planned(s.time, s.stream.decode(data))
    return data


def test_the_plan_holds_the_ids_of_its_topics_and_the_epoch_that_each_range_begins_under():
    s = started()
    s.client.epoch = 9
    data = s.plan()
    assert data["topic_ids"] == {"t": "t-1"}
    assert (data["from_epochs"], data["leader_epochs"]) == ([7, 7], [9, 9])


def test_an_empty_range_reaches_nothing_so_the_epoch_of_its_offset_stays():
    """A log cut below the cursor and grown to just that offset: the next records must still be refused under the old epoch."""
    s = started()
    s.client.epoch = 9
    assert [plan_and_store(s)["from_epochs"] for _ in range(2)] == [[7, 7], [7, 7]]
    s.client.logs = {("t", 0): (0, 12), ("t", 1): (0, 10)}
    assert plan_and_store(s)["from_epochs"] == [7, 7]
    assert s.plan()["from_epochs"] == [9, 7]


def test_a_recheck_of_ids_that_is_asked_for_during_a_check_is_done_at_the_next_plan(monkeypatch: pytest.MonkeyPatch):
    """The end of an older batch asks for it in another thread. Before, the check under way dropped the request."""
    s = started()
    offsets = s.stream._offsets
    ask = s.client.topic_ids
    monkeypatch.setattr(s.client, "topic_ids", lambda topics: (offsets.recheck_topic_ids(), ask(topics))[1])
    offsets.recheck_topic_ids()
    s.batch()
    monkeypatch.setattr(s.client, "topic_ids", ask)
    before = s.client.asked.count("ids")
    s.batch()
    s.batch()
    assert s.client.asked.count("ids") == before + 1


def test_a_check_of_ids_that_failed_is_done_again(monkeypatch: pytest.MonkeyPatch):
    s = started()
    ask = s.client.topic_ids
    monkeypatch.setattr(s.client, "topic_ids", lambda topics: {}[topics])
    s.stream._offsets.recheck_topic_ids()
    with pytest.raises(TypeError):
        s.plan()
    monkeypatch.setattr(s.client, "topic_ids", ask)
    before = s.client.asked.count("ids")
    s.batch()
    assert s.client.asked.count("ids") == before + 1


def test_ids_are_asked_for_at_the_start_and_then_not_for_every_batch():
    s = started()
    for _ in range(5):
        s.batch()
    assert s.client.asked.count("ids") == 1


def test_brokers_that_tell_no_ids_are_read_all_the_same():
    s = Stream(ONE, auto_offset_reset="earliest").start()
    assert s.plan()["topic_ids"] is None and len(s.batch()) == 2


def test_a_topic_made_anew_while_no_driver_ran_is_an_error_that_says_how_to_go_on():
    s = started()
    data = s.plan()
    s.client.ids = {"t": "t-2"}
    s.client.logs = {("t", 0): (0, 50), ("t", 1): (0, 50)}
    again = restarted(s, data)
    for _ in range(2):  # each time: nothing has been decided yet
        with pytest.raises(TopicRecreatedError, match=r"its id was t-1 and is t-2 now.*kstream offsets reset") as caught:
            again.plan()
    assert caught.value.facts["ranges"] == [(0, 10, 10), (1, 10, 10)]


def test_a_topic_of_assigned_partitions_made_anew_while_no_driver_ran_is_found_by_the_first_plan():
    """Nobody looks for new partitions there, which would ask for the topic's id, too."""
    params = KafkaParams.parse({"bootstrap.servers": "h:1", "auto.offset.reset": "earliest"})
    spec = StreamSpec(Partitions(frozenset(ONE)), params)
    s = started(spec=spec)
    data = s.plan()
    again = Stream(dict.fromkeys(ONE, (0, 50)), spec=spec)  # longer than before
    again.client.ids = {"t": "t-2"}
    again.stream.restored(Time(1000), again.stream.decode(data))
    with pytest.raises(TopicRecreatedError):
        again.start().plan()


def test_tolerated_the_log_line_says_how_the_stream_goes_on_and_advises_nothing(caplog: pytest.LogCaptureFixture):
    s = started("skip")
    s.client.ids = {"t": "t-2"}
    s.client.logs = {("t", 0): (0, 5), ("t", 1): (0, 5)}
    with caplog.at_level(logging.WARNING, "kstream"):
        plan_and_store(s)
    line = next(record.getMessage() for record in caplog.records if "created again" in record.getMessage())
    assert "its id was t-1 and is t-2 now. The stream continues with the new topic" in line and "onDataLoss" not in line


def test_tolerated_a_topic_made_anew_is_read_from_its_beginning_and_the_plan_says_what_was_lost():
    s = started()
    data = s.plan()
    s.client.ids = {"t": "t-2"}
    s.client.logs = {("t", 0): (0, 50), ("t", 2): (3, 5)}  # other partitions, too
    again = restarted(s, data, "skip")
    first = plan_and_store(again)
    assert first["ranges"] == [["t", 0, 0, 50], ["t", 2, 3, 5]]
    assert first["topic_ids"] == {"t": "t-2"} and first["from_epochs"] == [None, None]
    assert [(e["partition"], e["from"], e["until"], e["cause"]) for e in first["lost"]] == [
        (0, 10, None, "recreation"),
        (1, 10, None, "recreation"),
    ]
    second = again.plan()
    assert "lost" not in second and second["ranges"] == [["t", 0, 50, 50], ["t", 2, 5, 5]]


def test_a_plan_that_could_not_be_stored_says_it_again():
    s = started("skip")
    s.client.ids, s.client.logs = {"t": "t-2"}, {("t", 0): (0, 5), ("t", 1): (0, 5)}
    assert s.plan() == s.plan()
    assert plan_and_store(s)["lost"]


def test_a_topic_made_anew_shorter_is_told_from_one_that_was_cut():
    s = started()
    s.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 10)}
    with pytest.raises(LogShrankError, match="the topic is still the same"):
        s.plan()
    s.client.ids = {"t": "t-2"}
    with pytest.raises(TopicRecreatedError):
        s.plan()


def test_tolerated_a_log_that_was_cut_goes_on_at_its_end():
    s = started("report")
    s.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 12)}
    data = plan_and_store(s)
    assert data["ranges"] == [["t", 0, 4, 4], ["t", 1, 10, 12]]
    assert [(e["from"], e["until"], e["cause"]) for e in data["lost"]] == [(4, 10, "truncation")]
    assert data["from_epochs"] == [None, 7]
    s.client.logs["t", 0] = (0, 6)
    assert s.plan()["ranges"][0] == ["t", 0, 4, 6]


def test_what_a_worker_found_makes_the_next_plan_ask():
    s = started("skip")
    s.client.ids, s.client.logs = {"t": "t-2"}, {("t", 0): (0, 50), ("t", 1): (0, 50)}
    assert plan_and_store(s)["ranges"][0] == ["t", 0, 10, 50]  # nothing to be suspicious about: the workers will see
    lost = [{"topic": "t", "partition": 0, "from": 10, "until": 50, "cause": "recreation", "detail": ""}]
    s.stream.outcome(s.time, s.stream.decode({"ranges": [], "lost": lost}))
    assert s.plan()["ranges"] == [["t", 0, 0, 50], ["t", 1, 0, 50]]


def test_a_named_topic_that_was_deleted_is_an_error_until_it_is_back():
    s = started()
    logs, s.client.logs = s.client.logs, {}
    s.clock.advance(400_000)
    with pytest.raises(PartitionRevokedError):
        s.plan()
    s.client.logs = logs
    assert len(s.batch()) == 2


def test_a_partition_that_is_gone_from_a_named_topic_is_revoked():
    s = started()
    del s.client.logs["t", 1]
    s.clock.advance(400_000)
    with pytest.raises(PartitionRevokedError, match="t-1"):
        s.plan()


def test_a_pattern_lets_go_of_a_deleted_topic_and_the_plan_says_so():
    s = started(logs={("pa", 0): (0, 3), ("pb", 0): (0, 3)}, topics=re.compile("p.*"))
    del s.client.logs["pb", 0]
    s.clock.advance(400_000)
    data = plan_and_store(s)
    assert data["ranges"] == [["pa", 0, 3, 3]] and data["topic_ids"] == {"pa": "pa-1"}
    assert [(e["topic"], e["from"], e["until"], e["cause"]) for e in data["lost"]] == [("pb", 3, None, "deletion")]
    s.client.logs["pb", 0], s.client.ids["pb"] = (0, 2), "pb-2"
    s.clock.advance(400_000)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 0, 2]]


def test_outcomes_carry_the_losses_of_the_plan_and_ask_for_a_report_only_under_report():
    for policy, reported in (("skip", False), ("report", True)):
        s = started(policy)
        s.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 10)}
        data = plan_and_store(s)
        outcome = s.stream.outcome(s.time, s.stream.decode(data))
        assert outcome.lost == data["lost"] and outcome.report is reported and outcome.counts == [0, 0]


def test_an_unknown_policy_is_refused():
    with pytest.raises(Exception, match=r"One of: fail, skip, report"):
        started("ignore")
