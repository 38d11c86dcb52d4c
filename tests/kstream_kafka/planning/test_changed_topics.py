"""Topics that are deleted, created again or cut while a stream reads them: what the planner finds, and where it continues."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from kstream_kafka.errors import LogShrankError, PartitionRevokedError, TopicNotAvailableError, TopicRecreatedError, UnknownTopicError
from kstream_kafka.planning.missing_partitions import SECOND_LOOK_MS
from kstream_kafka.planning.subscription import Partitions

from kstream.batch_time import Time
from kstream.clock import StopFlag
from kstream.testing import ManualClock
from tests.kstream_kafka.planner import Planner

ONE = {("t", 0): (0, 10), ("t", 1): (0, 10)}


def started(policy: str = "fail", logs: Any = None, topics: Any = ("t",), **options: Any) -> Planner:
    """A planner whose first plan is durable; its topics' ids are told."""
    p = Planner(logs or ONE, topics, auto_offset_reset="earliest", tolerate_loss=policy != "fail", **options)
    p.client.ids = {topic: f"{topic}-1" for topic, _ in p.client.logs}
    p.start().batch()
    return p


def restarted(p: Planner, data: dict[str, Any], policy: str = "fail", topics: Any = ("t",)) -> Planner:
    """A new driver over the same cluster that was told the newest plan."""
    again = Planner(p.client.logs, topics, tolerate_loss=policy != "fail")
    again.client.ids = p.client.ids
    return again.restore(data).start()


def test_the_plan_holds_the_ids_of_its_topics_and_the_epoch_that_each_range_begins_under():
    p = started()
    p.client.epoch = 9
    data = p.plan()
    assert data["topic_ids"] == {"t": "t-1"}
    assert (data["from_epochs"], data["leader_epochs"]) == ([7, 7], [9, 9])


def test_an_empty_range_reaches_nothing_so_the_epoch_of_its_offset_stays():
    """A log cut below the cursor and grown to just that offset: the next records must still be refused under the old epoch."""
    p = started()
    p.client.epoch = 9
    assert [p.store()["from_epochs"] for _ in range(2)] == [[7, 7], [7, 7]]
    p.client.logs = {("t", 0): (0, 12), ("t", 1): (0, 10)}
    assert p.store()["from_epochs"] == [7, 7]
    assert p.plan()["from_epochs"] == [9, 7]


def test_a_recheck_of_ids_that_is_asked_for_during_a_check_is_done_at_the_next_plan(monkeypatch: pytest.MonkeyPatch):
    """The end of an older batch asks for it in another thread. Before, the check under way dropped the request."""
    p = started()
    planner = p.planner
    ask = p.client.topic_ids
    monkeypatch.setattr(p.client, "topic_ids", lambda topics: (planner.recheck_topic_ids(), ask(topics))[1])
    planner.recheck_topic_ids()
    p.batch()
    monkeypatch.setattr(p.client, "topic_ids", ask)
    before = p.client.asked.count("ids")
    p.batch()
    p.batch()
    assert p.client.asked.count("ids") == before + 1


def test_a_check_of_ids_that_failed_is_done_again(monkeypatch: pytest.MonkeyPatch):
    p = started()
    ask = p.client.topic_ids
    monkeypatch.setattr(p.client, "topic_ids", lambda topics: {}[topics])
    p.planner.recheck_topic_ids()
    with pytest.raises(TypeError):
        p.plan()
    monkeypatch.setattr(p.client, "topic_ids", ask)
    before = p.client.asked.count("ids")
    p.batch()
    assert p.client.asked.count("ids") == before + 1


def test_ids_are_asked_for_at_the_start_and_then_not_for_every_batch():
    p = started()
    for _ in range(5):
        p.batch()
    assert p.client.asked.count("ids") == 1


def test_brokers_that_tell_no_ids_are_read_all_the_same():
    p = Planner(ONE, auto_offset_reset="earliest").start()
    assert p.plan()["topic_ids"] is None and len(p.batch()) == 2


def test_a_topic_made_anew_while_no_driver_ran_is_an_error_that_says_how_to_go_on():
    p = started()
    data = p.plan()
    p.client.ids = {"t": "t-2"}
    p.client.logs = {("t", 0): (0, 50), ("t", 1): (0, 50)}
    again = restarted(p, data)
    for _ in range(2):  # each time: nothing has been decided yet
        with pytest.raises(TopicRecreatedError, match=r"its id was t-1 and is t-2 now.*kstream offsets reset") as caught:
            again.plan()
    assert caught.value.facts["ranges"] == [(0, 10, 10), (1, 10, 10)]


def test_a_topic_of_assigned_partitions_made_anew_while_no_driver_ran_is_found_by_the_first_plan():
    """Nobody looks for new partitions there, which would ask for the topic's id, too."""
    assigned = Partitions(frozenset(ONE))
    p = started(topics=assigned)
    data = p.plan()
    again = Planner(dict.fromkeys(ONE, (0, 50)), assigned)  # longer than before
    again.client.ids = {"t": "t-2"}
    with pytest.raises(TopicRecreatedError):
        again.restore(data).start().plan()


def test_tolerated_the_log_line_says_how_the_stream_goes_on_and_advises_nothing(caplog: pytest.LogCaptureFixture):
    p = started("skip")
    p.client.ids = {"t": "t-2"}
    p.client.logs = {("t", 0): (0, 5), ("t", 1): (0, 5)}
    with caplog.at_level(logging.WARNING, "kstream"):
        p.store()
    line = next(record.getMessage() for record in caplog.records if "created again" in record.getMessage())
    assert "its id was t-1 and is t-2 now. The stream continues with the new topic" in line and "onDataLoss" not in line


def test_tolerated_a_topic_made_anew_is_read_from_its_beginning_and_the_plan_says_what_was_lost():
    p = started()
    data = p.plan()
    p.client.ids = {"t": "t-2"}
    p.client.logs = {("t", 0): (0, 50), ("t", 2): (3, 5)}  # other partitions, too
    again = restarted(p, data, "skip")
    first = again.store()
    assert first["ranges"] == [["t", 0, 0, 50], ["t", 2, 3, 5]]
    assert first["topic_ids"] == {"t": "t-2"} and first["from_epochs"] == [None, None]
    assert [(e["partition"], e["from"], e["until"], e["cause"]) for e in first["lost"]] == [
        (0, 10, None, "recreation"),
        (1, 10, None, "recreation"),
    ]
    second = again.plan()
    assert "lost" not in second and second["ranges"] == [["t", 0, 50, 50], ["t", 2, 5, 5]]


def test_a_plan_that_could_not_be_stored_says_it_again():
    p = started("skip")
    p.client.ids, p.client.logs = {"t": "t-2"}, {("t", 0): (0, 5), ("t", 1): (0, 5)}
    assert p.plan() == p.plan()
    assert p.store()["lost"]


def test_a_topic_made_anew_shorter_is_told_from_one_that_was_cut():
    p = started()
    p.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 10)}
    with pytest.raises(LogShrankError, match="the topic is still the same"):
        p.plan()
    p.client.ids = {"t": "t-2"}
    with pytest.raises(TopicRecreatedError):
        p.plan()


def test_tolerated_a_log_that_was_cut_goes_on_at_its_end():
    p = started("report")
    p.client.logs = {("t", 0): (0, 4), ("t", 1): (0, 12)}
    data = p.store()
    assert data["ranges"] == [["t", 0, 4, 4], ["t", 1, 10, 12]]
    assert [(e["from"], e["until"], e["cause"]) for e in data["lost"]] == [(4, 10, "truncation")]
    assert data["from_epochs"] == [None, 7]
    p.client.logs["t", 0] = (0, 6)
    assert p.plan()["ranges"][0] == ["t", 0, 4, 6]


def test_a_named_topic_that_was_deleted_is_an_error_until_it_is_back():
    p = started()
    logs, p.client.logs = p.client.logs, {}
    p.clock.advance(400_000)
    with pytest.raises(PartitionRevokedError):
        p.plan()
    p.client.logs = logs
    assert len(p.batch()) == 2


def test_a_partition_that_is_gone_from_a_named_topic_is_revoked():
    p = started()
    del p.client.logs["t", 1]
    p.clock.advance(400_000)
    with pytest.raises(PartitionRevokedError, match="t-1"):
        p.plan()


def test_a_pattern_lets_go_of_a_deleted_topic_and_the_plan_says_so():
    p = by_pattern()
    del p.client.logs["pb", 0]
    p.clock.advance(400_000)
    assert p.store()["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]], "one answer is not believed"
    p.clock.advance(SECOND_LOOK_MS)
    data = p.store()
    assert data["ranges"] == [["pa", 0, 3, 3]] and data["topic_ids"] == {"pa": "pa-1"}
    assert [(e["topic"], e["from"], e["until"], e["cause"]) for e in data["lost"]] == [("pb", 3, None, "deletion")]
    p.client.logs["pb", 0], p.client.ids["pb"] = (0, 2), "pb-2"
    p.clock.advance(400_000)
    assert p.store()["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 0, 2]]


# -- topics of a pattern that are away for a while


def by_pattern(policy: str = "fail", **options: Any) -> Planner:
    """A planner of two topics, both read up to offset 3."""
    return started(policy, logs={("pa", 0): (0, 3), ("pb", 0): (0, 3)}, topics=re.compile("p.*"), **options)


@pytest.mark.parametrize("policy", ["fail", "skip"])
def test_a_topic_that_one_answer_lacks_goes_on_at_its_offset(policy: str, caplog: pytest.LogCaptureFixture):
    p = by_pattern(policy)
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(400_000)
    with caplog.at_level(logging.INFO, "kstream"):
        data = p.store()
        assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]] and "lost" not in data and data["topic_ids"]["pb"] == "pb-1"
        p.client.logs["pb", 0] = (0, away[1] + 2)
        p.clock.advance(SECOND_LOOK_MS)
        data = p.store()
    assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 5]] and "lost" not in data
    assert "the brokers' answer lacks pb-0 at 3" in caplog.text and "the brokers show pb-0 again" in caplog.text


def test_the_other_topics_are_read_while_one_is_missing():
    p = by_pattern()
    del p.client.logs["pb", 0]
    p.clock.advance(400_000)
    p.batch()
    p.client.logs["pa", 0] = (0, 9)
    assert p.store()["ranges"] == [["pa", 0, 3, 9], ["pb", 0, 3, 3]]


def test_a_topic_about_which_the_brokers_are_silent_is_not_deleted():
    p = by_pattern()
    away = p.client.logs.pop(("pb", 0))
    p.client.silent_about.add("pb")
    for advance in (400_000, *[SECOND_LOOK_MS] * 20):
        p.clock.advance(advance)
        data = p.store()
        assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]] and "lost" not in data
    assert p.client.asked.count("describe") == 20
    p.batch()
    assert p.client.asked.count("describe") == 20, "not for every batch"
    p.client.silent_about.clear()
    p.client.logs["pb", 0] = away
    p.clock.advance(SECOND_LOOK_MS)
    assert p.store()["ranges"][1] == ["pb", 0, 3, 3]


def test_all_missing_topics_are_asked_for_by_one_request_and_only_some_seconds_later():
    logs = {(f"p{t}", n): (0, 3) for t in range(50) for n in range(4)}
    p = started(logs=logs, topics=re.compile("p.*"))
    p.client.logs = {t: ends for t, ends in p.client.logs.items() if t[0] == "p0"}
    p.clock.advance(400_000)
    for advance in (0, SECOND_LOOK_MS - 1):
        p.clock.advance(advance)
        p.batch()
        assert "describe" not in p.client.asked
    p.clock.advance(1)
    assert [r[:2] for r in p.batch()] == [["p0", n] for n in range(4)]
    assert p.client.asked.count("describe") == 1


def test_each_topic_has_its_seconds_also_while_another_one_is_missing():
    logs = {(f"p{t}", 0): (0, 3) for t in range(3)}
    p = started(logs=logs, topics=re.compile("p.*"), metadata_max_age_ms=100)
    p.client.silent_about.add("p0")
    del p.client.logs["p0", 0]
    p.clock.advance(100)
    p.batch()
    p.clock.advance(SECOND_LOOK_MS - 100)
    away = p.client.logs.pop(("p1", 0))
    p.batch()
    p.clock.advance(100)
    assert [r[0] for r in p.batch()] == ["p0", "p1", "p2"]
    p.client.logs["p1", 0] = away
    p.clock.advance(100)
    assert p.batch()[1] == ["p1", 0, 3, 3]


def test_a_topic_that_the_next_look_at_all_topics_has_again_goes_on_at_once():
    p = by_pattern(metadata_max_age_ms=100)
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(100)
    p.batch()
    p.client.logs["pb", 0] = (0, away[1] + 2)
    p.clock.advance(100)
    assert p.batch()[1] == ["pb", 0, 3, 5]


def test_offsets_of_a_topic_that_left_are_not_those_of_a_new_topic_that_gains_partitions_later():
    p = started(logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    p.client.logs.clear()
    for advance in (400_000, SECOND_LOOK_MS):
        p.clock.advance(advance)
        p.batch()
    p.client.logs["pa", 0], p.client.ids["pa"] = (0, 2), "pa-2"
    p.clock.advance(400_000)
    assert p.batch() == [["pa", 0, 0, 2]]
    p.client.logs["pa", 1] = (0, 9)
    p.clock.advance(400_000)
    assert p.batch() == [["pa", 0, 2, 2], ["pa", 1, 0, 9]]


def test_a_missing_partition_of_a_topic_made_anew_without_it_is_missing_no_more():
    p = started("skip", logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    del p.client.logs["pa", 1]
    p.clock.advance(400_000)
    assert p.batch() == [["pa", 0, 3, 3], ["pa", 1, 3, 3]]
    p.client.logs["pa", 0], p.client.ids["pa"] = (0, 2), "pa-2"
    p.clock.advance(SECOND_LOOK_MS)
    p.planner.recheck_topic_ids()
    assert p.batch() == [["pa", 0, 0, 2]]
    assert p.batch() == [["pa", 0, 2, 2]]


def test_a_topic_that_left_and_is_there_again_under_the_same_id_goes_on_at_its_offset():
    """The brokers did not know its name twice, and were wrong. The epoch of the offset is kept, too."""
    p = by_pattern()
    away = p.client.logs.pop(("pb", 0))
    for advance in (400_000, SECOND_LOOK_MS):
        p.clock.advance(advance)
        data = p.store()
    assert [e["topic"] for e in data["lost"]] == ["pb"]
    p.client.logs["pb", 0] = (0, away[1] + 2)
    p.client.epoch = 9
    p.clock.advance(400_000)
    data = p.store()
    assert data["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 5]] and data["from_epochs"] == [7, 7] and "lost" not in data
    assert data["topic_ids"] == {"pa": "pa-1", "pb": "pb-1"}


def test_a_topic_that_is_there_again_before_its_loss_is_durable_has_lost_nothing():
    p = by_pattern()
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(400_000)
    p.batch()
    p.clock.advance(SECOND_LOOK_MS)
    assert p.plan()["lost"], "this plan cannot be stored"
    p.client.logs["pb", 0] = away
    p.clock.advance(400_000)
    data = p.store()
    assert data["ranges"][1] == ["pb", 0, 3, 3] and "lost" not in data


def test_a_topic_whose_name_is_unknown_to_the_question_for_log_ends_is_looked_at_twice_too(monkeypatch: pytest.MonkeyPatch):
    p = by_pattern()
    latest = p.client.latest

    def unknown(partitions: Any) -> Any:
        if ("pb", 0) in partitions:
            raise UnknownTopicError(["pb"], 1)
        return latest(partitions)

    monkeypatch.setattr(p.client, "latest", unknown)
    assert p.store()["ranges"] == [["pa", 0, 3, 3], ["pb", 0, 3, 3]]
    monkeypatch.setattr(p.client, "latest", latest)
    p.clock.advance(SECOND_LOOK_MS)
    assert p.store()["ranges"][1] == ["pb", 0, 3, 3]


def test_a_partition_that_an_answer_about_its_topic_lacks_is_not_deleted():
    """The broker that answers is behind the one that showed the partition. Kafka never takes partitions from a topic."""
    p = started(logs={("pa", 0): (0, 3), ("pa", 1): (0, 3)}, topics=re.compile("p.*"))
    away = p.client.logs.pop(("pa", 1))
    for advance in (400_000, SECOND_LOOK_MS, 400_000):
        p.clock.advance(advance)
        data = p.store()
        assert data["ranges"] == [["pa", 0, 3, 3], ["pa", 1, 3, 3]] and "lost" not in data
    p.client.logs["pa", 1] = (0, away[1] + 2)
    p.clock.advance(SECOND_LOOK_MS)
    assert p.store()["ranges"] == [["pa", 0, 3, 3], ["pa", 1, 3, 5]]


def test_a_topic_made_anew_while_it_was_missing_is_a_topic_made_anew():
    p = by_pattern()
    del p.client.logs["pb", 0]
    p.clock.advance(400_000)
    p.batch()
    p.client.logs["pb", 0], p.client.ids["pb"] = (0, 20), "pb-2"
    p.clock.advance(SECOND_LOOK_MS)
    with pytest.raises(TopicRecreatedError, match="its id was pb-1 and is pb-2 now"):
        p.plan()


def test_a_restart_goes_on_at_the_offset_of_a_topic_that_was_missing():
    p = by_pattern()
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(400_000)
    data = p.store()
    again = restarted(p, data, topics=re.compile("p.*"))
    assert again.store()["ranges"][1] == ["pb", 0, 3, 3]
    again.client.logs["pb", 0] = (0, away[1] + 2)
    again.clock.advance(SECOND_LOOK_MS)
    assert again.store()["ranges"][1] == ["pb", 0, 3, 5]


def test_a_given_start_past_the_end_of_a_missing_topic_still_waits():
    p = Planner({("pa", 0): (0, 3), ("pb", 0): (0, 3)}, re.compile("p.*"), given={("pa", 0): 0, ("pb", 0): 5})
    p.client.ids = {"pa": "pa-1", "pb": "pb-1"}
    p.start().batch()
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(400_000)
    assert p.store()["ahead"] == [["pb", 0]]
    p.client.logs["pb", 0] = away
    p.clock.advance(SECOND_LOOK_MS)
    assert p.store()["ranges"][1] == ["pb", 0, 5, 5]


def test_stopping_offsets_wait_for_a_missing_topic_as_in_an_outage():
    """The end of the run is a moment. Without the topic's answer the run would leave its records out, or go past the moment."""
    p = by_pattern(until="1970-01-01T00:05:00Z")
    away = p.client.logs.pop(("pb", 0))
    p.clock.advance(400_000)
    with pytest.raises(TopicNotAvailableError, match="does not show 'pb' at the moment") as caught:
        p.plan()
    assert caught.value.outage, "so that the driver waits for the answer"
    p.client.logs["pb", 0] = away
    p.clock.advance(SECOND_LOOK_MS)
    assert p.store()["until"] == [["pa", 0, 3], ["pb", 0, 3]]


class PassingClock(ManualClock):
    """A clock on which a wait takes no time."""

    def wait(self, milliseconds: int, stop: StopFlag) -> bool:
        self.advance(milliseconds, wait=False)
        return False


MISSED = [Time(300_000), Time(301_000)]


def by_timestamp_and_without_a_topic() -> Planner:
    """A planner that is to plan missed batches, and whose second topic is missing."""
    p = by_pattern("skip", by_timestamp=True, clock=PassingClock())
    p.clock.advance(400_000)
    del p.client.logs["pb", 0]
    return p


def test_a_start_with_missed_batches_by_timestamp_looks_a_second_time_for_a_missing_topic():
    """A start asks once. A topic that was deleted failed each start."""
    p = by_timestamp_and_without_a_topic()
    assert p.planner.missed(MISSED) == []
    assert p.store()["lost"][0]["topic"] == "pb"


def test_a_start_fails_while_the_brokers_do_not_say_whether_a_topic_is_gone():
    p = by_timestamp_and_without_a_topic()
    p.client.silent_about.add("pb")
    with pytest.raises(TopicNotAvailableError):
        p.planner.missed(MISSED)
