"""The driver's questions about times and groups, with an AdminClient that answers as a test wants it."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from itertools import repeat
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions, KafkaError, KafkaException, TopicPartition
from kstream_kafka.client.admin_requests import SETTLE_MS
from kstream_kafka.client.driver_client import TIMES_IN_FLIGHT, KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import (
    BrokerUnreachableError,
    GroupNotEmptyError,
    LeaderNotAvailableError,
    NotAuthorizedError,
    TopicNotAvailableError,
    UnknownTopicError,
)
from kstream_kafka.errors import KafkaError as OurError
from kstream_kafka.planning.subscription import subscription

P, Q = ("t", 0), ("t", 1)


def done(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    if isinstance(value, Exception):
        future.set_exception(value)
    else:
        future.set_result(value)
    return future


class Admin:
    """Answers offsets-for-times with `offset_at(partition, ms)`, and groups with the answers given, one after the other."""

    def __init__(self, offset_at: Callable[[int, int], int] = lambda p, ms: ms, groups: list[Any] | None = None) -> None:
        self.offset_at = offset_at
        self.groups = groups or []
        self.descriptions: list[Any] = []
        self.group_requests: list[str] = []
        self.visible = KafkaError.UNKNOWN_TOPIC_OR_PART
        self.in_flight = self.most_in_flight = self.asked = 0

    def poll(self, _timeout: float) -> None:
        pass

    def list_topics(self, timeout: float) -> Any:
        return SimpleNamespace(topics={}, brokers={}, cluster_id="fake")

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_options: Any) -> dict[TopicPartition, Any]:
        self.asked += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)

        def result(at: TopicPartition, spec: Any) -> Any:
            self.in_flight = 0
            return SimpleNamespace(offset=self.offset_at(at.partition, getattr(spec, "_value", 0)), leader_epoch=None)

        return {at: SimpleNamespace(result=lambda timeout, at=at, spec=spec: result(at, spec)) for at, spec in wanted.items()}

    def describe_topics(self, topics: Any, **_options: Any) -> dict[str, Any]:
        return {topic: done(KafkaException(KafkaError(self.visible))) for topic in topics.topic_names}

    def describe_consumer_groups(self, groups: list[str], **_options: Any) -> dict[str, Any]:
        self.group_requests.append("describe")
        return {groups[0]: done(self.descriptions.pop(0) if self.descriptions else None)}

    def list_consumer_group_offsets(self, wanted: list[ConsumerGroupTopicPartitions], **_options: Any) -> dict[str, Any]:
        self.group_requests.append("offsets")
        return {wanted[0].group_id: done(self.groups.pop(0))}

    alter_consumer_group_offsets = list_consumer_group_offsets


class QuickClock:
    """Time passes only where somebody waits, and then at once."""

    def __init__(self) -> None:
        self.now_ms = 0

    def time_ms(self) -> int:
        return self.now_ms

    monotonic_ms = time_ms

    def wait(self, milliseconds: int, stop: Any) -> bool:
        self.now_ms += milliseconds
        return False


def client(admin: Admin, clock: QuickClock | None = None, **params: Any) -> KafkaDriverClient:
    given = {"bootstrap.servers": "127.0.0.1:1", "refresh.leader.backoff.ms": 1, **{k.replace("_", "."): v for k, v in params.items()}}
    made = KafkaDriverClient(KafkaParams.parse(given), max_retries=1, clock=clock or QuickClock())
    made._admin = admin  # pyright: ignore
    return made


def answer(*offsets: tuple[int, int, int | None]) -> Any:
    """(partition, offset, error code or None)"""
    rows = [
        SimpleNamespace(topic="t", partition=p, offset=at, metadata=None, error=None if e is None else KafkaError(e))
        for p, at, e in offsets
    ]
    return SimpleNamespace(topic_partitions=rows)


def test_every_time_is_one_call_and_few_of_them_are_in_flight() -> None:
    admin = Admin()
    found = client(admin).at_times(range(100, 130), [P, Q])
    assert found == [{P: ms, Q: ms} for ms in range(100, 130)]
    assert admin.asked == 30 and admin.most_in_flight <= TIMES_IN_FLIGHT


def test_a_time_later_than_every_record_is_none_and_not_an_error() -> None:
    assert client(Admin(lambda p, ms: -1 if p else 7)).at_times([5], [P, Q]) == [{P: 7, Q: None}]


def test_a_time_whose_answer_was_cut_off_is_asked_again() -> None:
    answers = iter([-1001, 3])
    assert client(Admin(lambda p, ms: next(answers))).at_times([5], [P]) == [{P: 3}]


def failing(code: int, times: int, then: int = 0) -> Callable[[int, int], int]:
    """An answer that fails so often."""
    failures = repeat(None, times)

    def offset_at(_partition: int, _ms: int) -> int:
        for _ in failures:
            raise KafkaException(KafkaError(code))
        return then

    return offset_at


@pytest.mark.parametrize("code", [KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError._TRANSPORT])
def test_an_election_is_waited_for_whatever_the_number_of_retries(code: int) -> None:
    """The stream survives the death of a leader: its batch is planned late instead of not at all."""
    assert client(Admin(failing(code, 20, then=7))).latest([P])[P].offset == 7


def test_an_election_that_lasts_is_an_error_after_the_time_for_one_question() -> None:
    with pytest.raises(LeaderNotAvailableError, match=r"t-0 returned no offsets after \d+ retries") as caught:
        client(Admin(failing(KafkaError.LEADER_NOT_AVAILABLE, 10**9)), default_api_timeout_ms=60).latest([P])
    assert caught.value.facts["retries"] == 60


def test_what_is_no_election_is_tried_again_just_as_often_as_is_set() -> None:
    admin = Admin(failing(KafkaError.UNKNOWN_TOPIC_OR_PART, 10**9))
    with pytest.raises(UnknownTopicError):
        client(admin).latest([P])
    assert admin.asked == 2


def test_deleted_topics_are_unknown_topics_also_when_no_partition_is_left_to_ask() -> None:
    def gone(_partition: int, _ms: int) -> int:
        raise KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found"))

    with pytest.raises(UnknownTopicError, match="'t'"):
        client(Admin(gone)).latest([P])


def test_a_topic_without_leaders_that_may_not_be_described_is_an_error_about_permission() -> None:
    def gone(_partition: int, _ms: int) -> int:
        raise KafkaException(KafkaError(KafkaError._NOENT, "Failed to query partition leaders: No leaders found"))

    admin = Admin(gone)
    admin.visible = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(NotAuthorizedError, match="DESCRIBE the topic 't'"):
        client(admin).latest([P])


def test_committed_leaves_out_what_was_never_committed() -> None:
    admin = Admin(groups=[answer((0, 4, None), (1, -1001, None))])
    assert client(admin).committed("g", [P, Q]) == {P: 4}


@pytest.mark.parametrize("code", [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.NOT_COORDINATOR])
def test_a_coordinator_that_is_not_ready_is_asked_again_and_never_read_as_nothing_committed(code: int) -> None:
    admin = Admin(groups=[answer((0, -1001, code)), KafkaException(KafkaError(code)), answer((0, 4, None))])
    assert client(admin).committed("g", [P]) == {P: 4}


def test_no_request_for_offsets_goes_to_a_broker_that_is_not_the_coordinator() -> None:
    """librdkafka ends the process when an admin client's request for offsets is answered by NOT_COORDINATOR (its issue 5040)."""
    admin = Admin(groups=[answer((0, 4, None))])
    admin.descriptions = [KafkaException(KafkaError(KafkaError.NOT_COORDINATOR)), KafkaException(KafkaError(KafkaError.NOT_COORDINATOR))]
    assert client(admin).committed("g", [P]) == {P: 4}
    assert admin.group_requests == ["describe"] * 3 + ["offsets"]


def test_a_group_that_does_not_exist_has_no_offsets_and_is_no_error() -> None:
    admin = Admin(groups=[answer((0, -1001, None))])
    admin.descriptions = [KafkaException(KafkaError(KafkaError.GROUP_ID_NOT_FOUND))]
    assert client(admin).committed("g", [P]) == {}


def test_a_group_that_may_not_be_read_is_an_error_with_the_brokers_words() -> None:
    admin = Admin(groups=[answer((0, -1001, KafkaError.GROUP_AUTHORIZATION_FAILED))])
    with pytest.raises(OurError, match="authorization failed"):
        client(admin).committed("g", [P])


def test_a_commit_tells_how_it_went_partition_errors_included() -> None:
    told: list[Any] = []
    answers = [
        answer((0, 4, None)),
        answer((0, 4, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)),
        KafkaException(KafkaError(KafkaError.UNKNOWN)),
    ]
    admin = Admin(groups=answers)
    for _ in range(3):
        client(admin).commit("g", {P: 4}, told.append)
    assert told[0] is None and all(isinstance(error, OurError) for error in told[1:]) and len(told) == 3


def test_a_commit_for_a_group_with_live_members_says_what_that_means_and_what_to_do() -> None:
    told: list[Any] = []
    client(Admin(groups=[answer((0, 4, KafkaError.UNKNOWN_MEMBER_ID))])).commit("orders-job", {P: 4}, told.append)
    (error,) = told
    assert isinstance(error, GroupNotEmptyError) and error.facts["group"] == "orders-job"
    assert "only the live members of the consumer group 'orders-job'" in str(error) and "a group of its own" in str(error)


def metadata(**topics: int | KafkaError) -> Any:
    """What `list_topics` returns: topics with their numbers of partitions, or with an error."""
    rows = {
        name: SimpleNamespace(partitions={}, error=found)
        if isinstance(found, KafkaError)
        else SimpleNamespace(partitions={n: SimpleNamespace(leader=-1) for n in range(found)}, error=None)
        for name, found in topics.items()
    }
    return SimpleNamespace(topics=rows, brokers={}, cluster_id="fake")


def test_a_topic_in_an_election_is_waited_for_and_never_unknown() -> None:
    """The driver waits then: an unknown topic that is read would end it."""
    admin = Admin()
    answers = iter([metadata(t=KafkaError(KafkaError.LEADER_NOT_AVAILABLE)), metadata(t=2)])
    admin.list_topics = lambda timeout: next(answers)  # pyright: ignore[reportAttributeAccessIssue]
    assert client(admin).partitions(subscription(["t"])) == {P, Q}
    admin.list_topics = lambda timeout: metadata(t=KafkaError(KafkaError.LEADER_NOT_AVAILABLE))  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(TopicNotAvailableError, match="does not show 't' at the moment") as caught:
        client(admin).partitions(subscription(["t"]))
    assert caught.value.outage


# -- an outage


class Silent(Admin):
    """Brokers of which none answers, or only that of one partition. Each wait is as long as its time-out."""

    def __init__(self, clock: QuickClock, *answering: int) -> None:
        super().__init__()
        self.clock, self.answering = clock, answering

    def _time_out(self, seconds: float) -> Exception:
        self.clock.now_ms += round(seconds * 1000)
        return KafkaException(KafkaError(KafkaError._TIMED_OUT))

    def list_topics(self, timeout: float) -> Any:
        raise self._time_out(timeout)

    def list_offsets(self, wanted: dict[TopicPartition, Any], **options: Any) -> dict[TopicPartition, Any]:
        self.asked += 1
        silent = done(self._time_out(options["request_timeout"]))
        answered = done(SimpleNamespace(offset=7, leader_epoch=None))
        return {at: answered if at.partition in self.answering else silent for at in wanted}

    def describe_consumer_groups(self, groups: list[str], **options: Any) -> dict[str, Any]:
        return {groups[0]: done(self._time_out(options["request_timeout"]))}


def test_brokers_of_which_none_answers_are_waited_for_once_and_as_long_as_the_error_says() -> None:
    """The error said 15000 ms after 36 seconds: a retry had waited for as long again."""
    clock = QuickClock()
    admin = Silent(clock)
    for ask in (lambda asked: asked.latest([P, Q]), lambda asked: asked.at_times([5], [P]), lambda asked: asked.committed("g", [P])):
        before = clock.now_ms
        with pytest.raises(BrokerUnreachableError, match="answered within 15000 ms") as caught:
            ask(client(admin, clock, default_api_timeout_ms=15_000))
        assert caught.value.facts["waited_ms"] == clock.now_ms - before == 15_000
    assert admin.asked == 2


def test_a_leader_of_which_the_successor_is_not_found_either_is_an_error_with_the_whole_wait() -> None:
    clock = QuickClock()
    with pytest.raises(BrokerUnreachableError) as caught:
        client(Silent(clock, 1), clock, default_api_timeout_ms=15_000).latest([P, Q])
    assert caught.value.facts["waited_ms"] == clock.now_ms > 30_000


# -- the end of an outage


def test_the_search_for_a_topic_begins_with_the_first_answer() -> None:
    """The request hung in the outage, and the first answer is of a broker that still elects."""
    admin, clock, answers = Admin(), QuickClock(), iter([metadata(), metadata(t=2)])

    def list_topics(timeout: float) -> Any:
        answer = next(answers)
        clock.now_ms += 0 if answer.topics else 14_000
        return answer

    admin.list_topics = list_topics
    assert client(admin, clock).partitions(subscription(["t"])) == {P, Q}


class Outage(Admin):
    """Brokers that answer nothing, or late, before `until_ms`. After that they do not know the topic."""

    def __init__(self, clock: QuickClock, until_ms: int, late: bool) -> None:
        super().__init__()
        self.clock, self.until_ms, self.late = clock, until_ms, late

    def list_topics(self, timeout: float) -> Any:
        if self.clock.now_ms < self.until_ms:
            self.clock.now_ms = self.until_ms
            if not self.late:
                raise KafkaException(KafkaError(KafkaError._TRANSPORT))
        return metadata()

    def list_offsets(self, wanted: dict[TopicPartition, Any], **_options: Any) -> dict[TopicPartition, Any]:
        return {at: done(KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))) for at in wanted}


@pytest.mark.parametrize("late", [False, True], ids=["no answer", "a late answer"])
def test_a_topic_that_is_missing_just_after_an_outage_is_an_outage_and_later_it_is_unknown(late: bool) -> None:
    clock = QuickClock()
    asked = client(Outage(clock, 15_000, late), clock)
    if not late:
        with pytest.raises(BrokerUnreachableError):
            asked.partitions(subscription(["t"]))
    for ask in (lambda: asked.partitions(subscription(["t"])), lambda: asked.latest([P])):
        with pytest.raises(TopicNotAvailableError, match=r"does not show 't' at the moment: .* may not know all topics yet") as caught:
            ask()
        assert caught.value.outage, "so that the driver waits, up to its unreachableTimeout"
        assert asked.describe_topics(["t"]) == {}, "nor is it an answer for a pattern"
    clock.now_ms = 15_000 + SETTLE_MS
    for ask in (lambda: asked.partitions(subscription(["t"])), lambda: asked.latest([P])):
        with pytest.raises(UnknownTopicError):
            ask()
    assert asked.describe_topics(["t"]) == {"t": frozenset()}


def test_a_leader_that_does_not_answer_is_an_outage_too() -> None:
    answers = iter([KafkaError._TRANSPORT, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 9])

    def offset_at(_partition: int, _ms: int) -> int:
        raise KafkaException(KafkaError(next(answers)))

    with pytest.raises(TopicNotAvailableError):
        client(Admin(offset_at)).latest([P])


def test_topics_are_described_by_one_request_and_only_the_brokers_word_makes_one_unknown() -> None:
    admin, asked = Admin(), list[list[str]]()
    answers = {
        "here": SimpleNamespace(partitions=[SimpleNamespace(id=0), SimpleNamespace(id=1)]),
        "gone": KafkaException(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)),
        "electing": KafkaException(KafkaError(KafkaError.LEADER_NOT_AVAILABLE)),
        "silent": KafkaException(KafkaError(KafkaError._TIMED_OUT)),
    }

    def describe(topics: Any, **_options: Any) -> dict[str, Any]:
        asked.append(topics.topic_names)
        return {topic: done(answers[topic]) for topic in topics.topic_names}

    admin.describe_topics = describe  # pyright: ignore[reportAttributeAccessIssue]
    assert client(admin).describe_topics(list(answers)) == {"here": {0, 1}, "gone": frozenset()}
    assert asked == [list(answers)]


def test_a_topic_that_may_not_be_described_is_an_error_about_permission() -> None:
    admin = Admin()
    admin.visible = KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(NotAuthorizedError, match="DESCRIBE the topic 't'"):
        client(admin).describe_topics(["t"])


def test_an_unknown_topic_is_named_with_the_topics_of_nearly_this_name() -> None:
    admin = Admin()
    admin.list_topics = lambda timeout: metadata(orders=1, returns=1, __orders=1)  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(UnknownTopicError, match=r"no topic 'ordesr' .* Did you mean 'orders'\? Create the topic") as caught:
        client(admin).partitions(subscription(["ordesr"]))
    assert caught.value.facts["near"] == ["orders"]
    assert "kafka-topics.sh, or `kstream produce ordesr --partitions 1 --bootstrap HOST:PORT < /dev/null`" in str(caught.value)


# -- new topics


class NewTopicAdmin(Admin):
    """A topic that its leaders know one after the other: the first at once, another one with each request for metadata behind that."""

    def __init__(self, first: int, code: int) -> None:
        super().__init__(self._offset_at)
        self.known, self.code, self.created = first, code, list[Any]()

    def list_topics(self, timeout: float) -> Any:
        self.known += bool(self.created)
        return super().list_topics(timeout)

    def create_topics(self, new: list[Any], **_options: Any) -> dict[str, Any]:
        self.created += new
        return {new[0].topic: done(None)}

    def _offset_at(self, partition: int, _ms: int) -> int:
        if partition >= self.known:
            raise KafkaException(KafkaError(self.code if partition % 2 else KafkaError.UNKNOWN_TOPIC_OR_PART))
        return 0


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_new_topic_is_created_when_each_of_its_leaders_answers(code: int) -> None:
    admin = NewTopicAdmin(1, code)
    assert client(admin).create_topic("t", 9)
    assert admin.known >= 9 and len(admin.created) == 1


@pytest.mark.parametrize("code", [KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError.LEADER_NOT_AVAILABLE])
def test_the_wait_for_the_leaders_of_a_new_topic_has_an_end(code: int) -> None:
    clock = QuickClock()
    with pytest.raises((UnknownTopicError, LeaderNotAvailableError)):
        client(NewTopicAdmin(-(10**6), code), clock, default_api_timeout_ms=2000).create_topic("t", 2)
    assert 2000 <= clock.now_ms < 2100
