"""Topics that are deleted, created again or cut while a stream reads them: what the planner finds, and where it continues."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from kstream_kafka import ConsumerStrategies
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import LogShrankError, PartitionRevokedError, TopicNotAvailableError, TopicRecreatedError, UnknownTopicError
from kstream_kafka.planning.missing_partitions import SECOND_LOOK_MS
from kstream_kafka.planning.subscription import Partitions
from kstream_kafka.source.stream_spec import StreamSpec

from kstream.batch_time import Time
from kstream.clock import StopFlag
from kstream.testing import ManualClock
from tests.kstream_kafka.stream import BROKERS, Stream

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
    s = by_pattern()
    del s.client.logs["pb", 0]
    s.clock.advance(400_000)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]], "one answer is not believed"
    s.clock.advance(SECOND_LOOK_MS)
    data = plan_and_store(s)
    assert data["ranges"] == [["pa", 0, 3, 3]] and data["topic_ids"] == {"pa": "pa-1"}
    assert [(e["topic"], e["from"], e["until"], e["cause"]) for e in data["lost"]] == [("pb", 3, None, "deletion")]
    s.client.logs["pb", 0], s.client.ids["pb"] = (0, 2), "pb-2"
    s.clock.advance(400_000)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 0, 2]]


# -- topics of a pattern that are away for a while


def by_pattern(policy: str = "fail", **options: Any) -> Stream:
    """A stream over two topics, both read up to offset 3."""
    return started(policy, logs={("pa", 0): (0, 3), ("pb", 0): (0, 3)}, topics=re.compile("p.*"), **options)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_that_one_answer_lacks_goes_on_at_its_offset(policy: str, caplog: pytest.LogCaptureFixture):
    s = by_pattern(policy)
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(400_000)
    with caplog.at_level(logging.INFO, "kstream"):
        data = plan_and_store(s)
        assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]] and "lost" not in data and data["topic_ids"]["pb"] == "pb-1"
        s.client.logs["pb", 0] = (0, away[1] + 2)
        s.clock.advance(SECOND_LOOK_MS)
        data = plan_and_store(s)
    assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 5]] and "lost" not in data
    assert "the brokers' answer lacks pb-0 at 3" in caplog.text and "the brokers show pb-0 again" in caplog.text


def test_the_other_topics_are_read_while_one_is_missing():
    s = by_pattern()
    del s.client.logs["pb", 0]
    s.clock.advance(400_000)
    s.batch()
    s.client.logs["pa", 0] = (0, 9)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 9], ["pb", 0, 3, 3]]


def test_a_topic_about_which_the_brokers_are_silent_is_not_deleted():
    s = by_pattern()
    away = s.client.logs.pop(("pb", 0))
    s.client.silent_about.add("pb")
    for advance in (400_000, *[SECOND_LOOK_MS] * 20):
        s.clock.advance(advance)
        data = plan_and_store(s)
        assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]] and "lost" not in data
    assert s.client.asked.count("describe") == 20
    s.batch()
    assert s.client.asked.count("describe") == 20, "not for every batch"
    s.client.silent_about.clear()
    s.client.logs["pb", 0] = away
    s.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(s)["ranges"][1] == ["pb", 0, 3, 3]


def test_all_missing_topics_are_asked_for_by_one_request_and_only_some_seconds_later():
    logs = {(f"p{t}", n): (0, 3) for t in range(50) for n in range(4)}
    s = started(logs=logs, topics=re.compile("p.*"))
    s.client.logs = {p: ends for p, ends in s.client.logs.items() if p[0] == "p0"}
    s.clock.advance(400_000)
    for advance in (0, SECOND_LOOK_MS - 1):
        s.clock.advance(advance)
        s.batch()
        assert "describe" not in s.client.asked
    s.clock.advance(1)
    assert [r[:2] for r in s.batch()] == [["p0", n] for n in range(4)]
    assert s.client.asked.count("describe") == 1


def test_each_topic_has_its_seconds_also_while_another_one_is_missing():
    logs = {(f"p{t}", 0): (0, 3) for t in range(3)}
    s = started(logs=logs, topics=re.compile("p.*"), metadata_max_age_ms=100)
    s.client.silent_about.add("p0")
    del s.client.logs["p0", 0]
    s.clock.advance(100)
    s.batch()
    s.clock.advance(SECOND_LOOK_MS - 100)
    away = s.client.logs.pop(("p1", 0))
    s.batch()
    s.clock.advance(100)
    assert [r[0] for r in s.batch()] == ["p0", "p1", "p2"]
    s.client.logs["p1", 0] = away
    s.clock.advance(100)
    assert s.batch()[1] == ["p1", 0, 3, 3]


def test_a_topic_that_the_next_look_at_all_topics_has_again_goes_on_at_once():
    s = by_pattern(metadata_max_age_ms=100)
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(100)
    s.batch()
    s.client.logs["pb", 0] = (0, away[1] + 2)
    s.clock.advance(100)
    assert s.batch()[1] == ["pb", 0, 3, 5]


def test_offsets_of_a_topic_that_left_are_not_those_of_a_new_topic_that_gains_partitions_later():
    s = started(logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    s.client.logs.clear()
    for advance in (400_000, SECOND_LOOK_MS):
        s.clock.advance(advance)
        s.batch()
    s.client.logs["pa", 0], s.client.ids["pa"] = (0, 2), "pa-2"
    s.clock.advance(400_000)
    assert s.batch() == [["pa", 0, 0, 2]]
    s.client.logs["pa", 1] = (0, 9)
    s.clock.advance(400_000)
    assert s.batch() == [["pa", 0, 2, 2], ["pa", 1, 0, 9]]


def test_a_missing_partition_of_a_topic_made_anew_without_it_is_missing_no_more():
    s = started("skip", logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    del s.client.logs["pa", 1]
    s.clock.advance(400_000)
    assert s.batch() == [["pa", 0, 3, 3], ["pa", 1, 3, 3]]
    s.client.logs["pa", 0], s.client.ids["pa"] = (0, 2), "pa-2"
    s.clock.advance(SECOND_LOOK_MS)
    s.stream._offsets.recheck_topic_ids()
    assert s.batch() == [["pa", 0, 0, 2]]
    assert s.batch() == [["pa", 0, 2, 2]]


def test_a_topic_that_left_and_is_there_again_under_the_same_id_goes_on_at_its_offset():
    """The brokers did not know its name twice, and were wrong. The epoch of the offset is kept, too."""
    s = by_pattern()
    away = s.client.logs.pop(("pb", 0))
    for advance in (400_000, SECOND_LOOK_MS):
        s.clock.advance(advance)
        data = plan_and_store(s)
    assert [e["topic"] for e in data["lost"]] == ["pb"]
    s.client.logs["pb", 0] = (0, away[1] + 2)
    s.client.epoch = 9
    s.clock.advance(400_000)
    data = plan_and_store(s)
    assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 5]] and data["from_epochs"] == [7, 7] and "lost" not in data
    assert data["topic_ids"] == {"pa": "pa-1", "pb": "pb-1"}


def test_a_topic_that_is_there_again_before_its_loss_is_durable_has_lost_nothing():
    s = by_pattern()
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(400_000)
    s.batch()
    s.clock.advance(SECOND_LOOK_MS)
    assert s.plan()["lost"], "this plan cannot be stored"
    s.client.logs["pb", 0] = away
    s.clock.advance(400_000)
    data = plan_and_store(s)
    assert data["ranges"][1] == ["pb", 0, 3, 3] and "lost" not in data


def test_a_topic_whose_name_is_unknown_to_the_question_for_log_ends_is_looked_at_twice_too(monkeypatch: pytest.MonkeyPatch):
    s = by_pattern()
    latest = s.client.latest

    def unknown(partitions: Any) -> Any:
        if ("pb", 0) in partitions:
            raise UnknownTopicError(["pb"], 1)
        return latest(partitions)

    monkeypatch.setattr(s.client, "latest", unknown)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]]
    monkeypatch.setattr(s.client, "latest", latest)
    s.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(s)["ranges"][1] == ["pb", 0, 3, 3]


def test_a_partition_that_an_answer_about_its_topic_lacks_is_not_deleted():
    """The broker that answers is behind the one that showed the partition. Kafka never takes partitions from a topic."""
    s = started(logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    away = s.client.logs.pop(("pa", 1))
    for advance in (400_000, SECOND_LOOK_MS, 400_000):
        s.clock.advance(advance)
        data = plan_and_store(s)
        assert data["ranges"] == [["pa", 0, 3, 3], ["pa", 1, 3, 3]] and "lost" not in data
    s.client.logs["pa", 1] = (0, away[1] + 2)
    s.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(s)["ranges"] == [["pa", 0, 3, 3], ["pa", 1, 3, 5]]


def test_a_topic_made_anew_while_it_was_missing_is_a_topic_made_anew():
    s = by_pattern()
    del s.client.logs["pb", 0]
    s.clock.advance(400_000)
    s.batch()
    s.client.logs["pb", 0], s.client.ids["pb"] = (0, 20), "pb-2"
    s.clock.advance(SECOND_LOOK_MS)
    with pytest.raises(TopicRecreatedError, match="its id was pb-1 and is pb-2 now"):
        s.plan()


def test_a_restart_goes_on_at_the_offset_of_a_topic_that_was_missing():
    s = by_pattern()
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(400_000)
    data = plan_and_store(s)
    again = restarted(s, data, topics=re.compile("p.*"))
    assert plan_and_store(again)["ranges"][1] == ["pb", 0, 3, 3]
    again.client.logs["pb", 0] = (0, away[1] + 2)
    again.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(again)["ranges"][1] == ["pb", 0, 3, 5]


def test_a_given_start_past_the_end_of_a_missing_topic_still_waits():
    strategy = ConsumerStrategies.SubscribePattern("p.*", BROKERS, {("pa", 0): 0, ("pb", 0): 5})
    s = Stream({("pa", 0): (0, 3), ("pb", 0): (0, 3)}, spec=StreamSpec(strategy.topics, strategy.params, strategy.starting_offsets))
    s.client.ids = {"pa": "pa-1", "pb": "pb-1"}
    s.start().batch()
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(400_000)
    assert plan_and_store(s)["ahead"] == [["pb", 0]]
    s.client.logs["pb", 0] = away
    s.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(s)["ranges"][1] == ["pb", 0, 5, 5]


def test_stopping_offsets_wait_for_a_missing_topic_as_in_an_outage():
    """The end of the run is a moment. Without the topic's answer the run would leave its records out, or go past the moment."""
    s = by_pattern(until="1970-01-01T00:05:00Z")
    away = s.client.logs.pop(("pb", 0))
    s.clock.advance(400_000)
    with pytest.raises(TopicNotAvailableError, match="does not show 'pb' at the moment") as caught:
        s.plan()
    assert caught.value.outage, "so that the driver waits for the answer"
    s.client.logs["pb", 0] = away
    s.clock.advance(SECOND_LOOK_MS)
    assert plan_and_store(s)["until"] == [["pa", 0, 3], ["pb", 0, 3]]


class PassingClock(ManualClock):
    """A clock on which a wait takes no time."""

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self.advance(milliseconds, wait=False)
        return False


MISSED = [Time(300_000), Time(301_000)]


def by_timestamp_and_without_a_topic() -> Stream:
    """A stream that is to plan missed batches, and whose second topic is missing."""
    s = by_pattern("skip", downtime="by-timestamp")
    s.stream._clock = clock = PassingClock(s.clock.time_ms() + 400_000)
    s.stream._offsets._missing._monotonic_ms = s.stream._offsets._monotonic_ms = clock.monotonic_ms
    del s.client.logs["pb", 0]
    return s


def test_a_start_with_missed_batches_by_timestamp_looks_a_second_time_for_a_missing_topic():
    """A start asks once. A topic that was deleted failed each start."""
    s = by_timestamp_and_without_a_topic()
    assert s.stream.missed(MISSED) == []
    assert plan_and_store(s)["lost"][0]["topic"] == "pb"


def test_a_start_fails_while_the_brokers_do_not_say_whether_a_topic_is_gone():
    s = by_timestamp_and_without_a_topic()
    s.client.silent_about.add("pb")
    with pytest.raises(TopicNotAvailableError):
        s.stream.missed(MISSED)


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
