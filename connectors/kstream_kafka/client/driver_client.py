"""KafkaDriverClient: the driver's requests to the brokers: partitions, log ends, topic ids, commits; new topics."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, TypeVar, cast

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, OffsetSpec

from kstream.clock import Clock, SystemClock
from kstream.nearest_name import nearest_names
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.admin_requests import SETTLE_MS, AdminRequests
from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.client.librdkafka import (
    LEADER_CHANGING,
    UNKNOWN_TOPIC,
    UNREACHABLE,
    is_mock_cluster,
    is_mock_id,
    map_error,
    new_client,
    request_topic_ids,
    text_of,
)
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import LogEnd, Subscription
from kstream_kafka.errors import KafkaError, LeaderNotAvailableError, TopicNotAvailableError, UnknownTopicError

logger = logging.getLogger("kstream.kafka")
T = TypeVar("T")

UNKNOWN_TOPIC_WAIT_MS = 3_000
"""Milliseconds for which the client searches for a missing topic. A new topic takes a moment until every broker knows it."""

DESCRIBE_S = 3.0
"""Timeout in seconds of the requests for the reason why a topic is not visible, and for its settings."""

TIMES_IN_FLIGHT = 8
"""Offsets-for-times requests sent to a broker before the first answer."""
NO_SUCH_TIME = -1
"""The offset in the broker's answer for a time later than all records."""

_OVER_MS = 1000
"""Milliseconds by which a wait may exceed its time-out on a busy machine."""
_LATEST = cast(OffsetSpec, OffsetSpec.latest())
_EARLIEST = cast(OffsetSpec, OffsetSpec.earliest())
_COORDINATOR_BUSY = frozenset(
    {ClientError.COORDINATOR_LOAD_IN_PROGRESS, ClientError.COORDINATOR_NOT_AVAILABLE, ClientError.NOT_COORDINATOR}
)


class KafkaDriverClient:
    """The DriverClient that asks by confluent_kafka. Not thread-safe: one thread at a time.

    Every request may block up to `default.api.timeout.ms`. Requests for offsets are retried, so they may block longer.
    """

    def __init__(self, params: KafkaParams, max_retries: int = 1, statistics_ms: int = 0, clock: Clock | None = None) -> None:
        """Create the client. Sends no request.

        Args:
            params: the user's Kafka parameters.
            max_retries: how often a request for offsets is retried outside of a leader election.
            statistics_ms: the interval in ms at which librdkafka reports its counts of requests, for tests and benchmarks; 0 for none. See
                `requests_sent`.
            clock: the clock of pauses and deadlines; None for the system's.

        Raises:
            KafkaConfigError: librdkafka refuses a parameter.
            AuthenticationFailedError: `oauth_cb` returned no token.
        """
        self._params = params
        self._clock = clock or SystemClock()
        self._max_retries = max_retries
        self._watch = ConnectionWatch(params.settings)
        self._requests = AdminRequests(self._watch, lambda: self._admin.poll(0), self._clock.monotonic_ms)
        self._sent: dict[str, dict[str, int]] = {}
        self._leader_hosts: dict[Partition, str] = {}
        settings = {**params.driver(), "error_cb": self._on_error}
        if statistics_ms:
            settings.update({"statistics.interval.ms": statistics_ms, "stats_cb": self._on_statistics})
        self._admin = new_client(AdminClient, settings)
        self._cluster_id: str | None = None

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """See DriverClient. A named topic is missing if it still is UNKNOWN_TOPIC_WAIT_MS after the first answer.

        Sends full metadata requests, because a request that names a topic could create it. Notes the leaders' hosts for `leader_hosts`.
        """
        deadline: int | None = None
        while True:
            topics = self._all_topics()
            if deadline is None:  # at the first answer: the request for it may have hung for longer than the search lasts
                deadline = self._clock.monotonic_ms() + UNKNOWN_TOPIC_WAIT_MS
            missing = [name for name in subscription.names if not topics.get(name)]
            if not missing:
                return {(t, p) for t, numbers in topics.items() if subscription.wants(t) for p in numbers}
            if self._clock.monotonic_ms() >= deadline:
                if not_ready := [name for name in missing if name in topics]:
                    raise TopicNotAvailableError(not_ready, "the brokers' answer about all topics has an error for each of them")
                raise self._unknown(missing, topics, UNKNOWN_TOPIC_WAIT_MS)
            self._pause()

    def cluster_id(self) -> str | None:
        """Return the id of the cluster; None if the brokers tell none. Blocks at the first call. Errors as `partitions`."""
        if self._cluster_id is None:
            self._all_topics()
        return self._cluster_id

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> bool:
        """Create a topic that does not exist, with the brokers' own number of replicas, and wait for its leaders. Blocks.

        A new topic can be written to only when its leaders answer: a broker creates it before each of them knows it. librdkafka's mock
        cluster takes neither a number of partitions nor settings, and its leaders are there at once.

        Args:
            topic: the name of the topic.
            partitions: the number of its partitions.
            settings: settings of the topic; for all others the brokers' own.

        Returns:
            Whether the topic is new; False if it exists.

        Raises:
            NotAuthorizedError: this client may not create the topic.
            BrokerUnreachableError: no broker answered.
            UnknownTopicError, TopicNotAvailableError, LeaderNotAvailableError: not all leaders have answered within
                `default.api.timeout.ms` after the topic was created.
            KafkaError: the brokers refuse the topic or this client.
        """
        if self._all_topics().get(topic):
            return False
        timeout = self._params.api_timeout_ms
        self._requests.on_request()
        if is_mock_id(self._cluster_id):
            self._name_topic(topic)
            return True
        new = NewTopic(topic, partitions, config=dict(settings or {}))
        future = self._admin.create_topics([new], request_timeout=timeout / 1000)[topic]
        try:
            self._requests.await_result(future)
        except KafkaException as e:
            if e.args[0].code() == ClientError.TOPIC_ALREADY_EXISTS:
                return False
            raise self._mapped(e, timeout, topic=topic, operation="CREATE") from e
        self._await_leaders([(topic, partition) for partition in range(partitions)])
        return True

    def _await_leaders(self, partitions: Collection[Partition]) -> None:
        """Block until all leaders of a new topic have answered. After the time it raises the error of the last try."""
        deadline = self._clock.monotonic_ms() + self._params.api_timeout_ms
        while True:
            try:
                self.latest(partitions)
                return
            except (UnknownTopicError, TopicNotAvailableError, LeaderNotAvailableError):
                if self._clock.monotonic_ms() >= deadline:
                    raise
            self._pause()

    def _name_topic(self, topic: str) -> None:
        """Name a topic to librdkafka's mock cluster, which creates it. It does not know requests that create topics. Blocks."""
        timeout = self._params.api_timeout_ms
        naming = new_client(AdminClient, {**self._params.driver(), "allow.auto.create.topics": True, "error_cb": self._on_error})
        try:
            naming.list_topics(topic, timeout=timeout / 1000)
        except KafkaException as e:
            raise self._mapped(e, timeout, topic=topic, operation="CREATE") from e

    def max_message_bytes(self, topic: str) -> int | None:
        """Return the setting `max.message.bytes` of a topic: no batch of a producer may be larger. As `topic_setting`."""
        value = self.topic_setting(topic, "max.message.bytes")
        return None if value is None else int(value)

    def topic_setting(self, topic: str, name: str) -> str | None:
        """Return a setting of a topic. Blocks.

        Returns:
            None if the brokers do not tell it in DESCRIBE_S, mostly for want of the permission DESCRIBE_CONFIGS.
        """
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
        self._requests.on_request()
        try:
            if is_mock_cluster(self._admin, DESCRIBE_S):
                return None
            future = self._admin.describe_configs([resource], request_timeout=DESCRIBE_S)[resource]
            return str(self._requests.await_result(future)[name].value)
        except (KafkaException, KafkaError, KeyError) as e:
            logger.debug("topic %s: its %s is unknown: %s", topic, name, e)
            return None

    def describe_topics(self, topics: Collection[str]) -> dict[str, frozenset[int]]:
        """See DriverClient. Blocks up to DESCRIBE_S."""
        self._requests.on_request()
        found: dict[str, frozenset[int]] = {}
        for topic, future in self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=DESCRIBE_S).items():
            try:
                found[topic] = frozenset(int(p.id) for p in self._requests.await_result(future).partitions)
            except KafkaException as e:
                code = e.args[0].code()
                if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._mapped(e, 0, topic=topic) from e
                if code == ClientError.UNKNOWN_TOPIC_OR_PART and not self._requests.is_after_outage:
                    found[topic] = frozenset()
        return found

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        timeout = self._params.api_timeout_ms
        self._admin.poll(0)
        try:
            return request_topic_ids(self._admin, topics, timeout / 1000)
        except KafkaException as e:
            raise self._mapped(e, timeout) from e

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        return self._ends(partitions, _LATEST)

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        return self._ends(partitions, _EARLIEST)

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """See DriverClient. Sends one request for each broker and time, for TIMES_IN_FLIGHT times at once."""
        found: list[dict[Partition, int | None]] = []
        for first in range(0, len(times_ms), TIMES_IN_FLIGHT):
            specs = [cast(OffsetSpec, OffsetSpec.for_timestamp(ms)) for ms in times_ms[first : first + TIMES_IN_FLIGHT]]
            since_ms = self._clock.monotonic_ms()
            sent = [(self._list_offsets(partitions, spec), spec) for spec in specs]
            answers = [self._all_answers(futures, spec, since_ms) for futures, spec in sent]
            found += [{p: None if end.offset == NO_SUCH_TIME else end.offset for p, end in answer.items()} for answer in answers]
        return found

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """See DriverClient."""
        return {partition: at for partition, (at, _) in self.committed_with_metadata(group, partitions).items()}

    def committed_with_metadata(self, group: str, partitions: Collection[Partition]) -> dict[Partition, tuple[int, str]]:
        """Return the commits of a consumer group: partition → (offset, metadata). Otherwise as `committed`.

        While the coordinator loads the group, the requests are retried up to `default.api.timeout.ms`. A description of the group goes
        first, and finds the coordinator: NOT_COORDINATOR as the answer to a request for offsets ends the process, by librdkafka's issue
        5040.
        """
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*p) for p in partitions])
        since_ms = self._clock.monotonic_ms()
        self._retry_while_busy(lambda: self._describe_group(group), since_ms, group)
        answers = self._retry_while_busy(lambda: self._group_offsets(wanted), since_ms, group)
        return {(at.topic, at.partition): (at.offset, at.metadata or "") for at in answers if at.offset >= 0}

    def _describe_group(self, group: str) -> None:
        """Ask the coordinator of a group for its description. KafkaException if it is not the coordinator, or does not answer. Blocks."""
        try:
            self._requests.await_result(
                self._admin.describe_consumer_groups([group], request_timeout=self._params.api_timeout_ms / 1000)[group]
            )
        except KafkaException as e:
            if e.args[0].code() in _COORDINATOR_BUSY | UNREACHABLE:
                raise  # another error, such as a missing permission, is for the request for offsets to tell

    def _group_offsets(self, wanted: ConsumerGroupTopicPartitions) -> list[TopicPartition]:
        """Ask for the committed offsets of a group. KafkaException of the request or of the first partition with an error. Blocks."""
        timeout = self._params.api_timeout_ms / 1000
        future = self._admin.list_consumer_group_offsets([wanted], request_timeout=timeout)[wanted.group_id]
        answers: list[TopicPartition] = self._requests.await_result(future).topic_partitions
        for at in answers:
            if at.error is not None:
                raise KafkaException(at.error)
        return answers

    def _retry_while_busy(self, request: Callable[[], T], since_ms: int, group: str) -> T:
        """Return the result of a request to the coordinator of a group, which is repeated while the coordinator is not ready. Blocks.

        Args:
            request: sends the request, and waits for its answer.
            since_ms: since when the coordinator has been waited for, by the monotonic clock.
            group: the group.
        """
        deadline = since_ms + self._params.api_timeout_ms
        while True:
            self._requests.on_request()
            try:
                return request()
            except KafkaException as e:
                if e.args[0].code() not in _COORDINATOR_BUSY or self._clock.monotonic_ms() >= deadline:
                    raise self._mapped(e, self._waited_ms(since_ms), group=group) from e
            self._pause()

    def commit(
        self,
        group: str,
        offsets: Mapping[Partition, int],
        on_done: Callable[[KafkaError | None], None],
        metadata: Mapping[Partition, str] | None = None,
    ) -> None:
        """See DriverClient. A thread of the client calls `on_done`, or this thread if the response is already there.

        After a lost connection, that thread first diagnoses the connection, for up to some seconds.

        Args:
            group: the consumer group.
            offsets: the offset of each partition.
            on_done: called once with the error, or with None.
            metadata: the text that is stored with an offset; "" for partitions that it does not have.
        """
        texts = metadata or {}
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*p, at, metadata=texts.get(p, "")) for p, at in offsets.items()])
        timeout = self._params.api_timeout_ms
        self._admin.poll(0)
        future = self._admin.alter_consumer_group_offsets([wanted], request_timeout=timeout / 1000)[group]

        def ended(done: Any) -> None:
            try:
                errors = [at.error for at in done.result().topic_partitions if at.error is not None]
                on_done(self._mapped(KafkaException(errors[0]), timeout, group=group) if errors else None)
            except KafkaException as e:
                on_done(self._mapped(e, timeout, group=group))

        future.add_done_callback(ended)

    def leader_hosts(self) -> dict[Partition, str]:
        return self._leader_hosts

    def requests_sent(self, name: str) -> dict[str, int]:
        """Return how many requests of a kind were sent to each broker, as librdkafka counts them. Blocks up to 10 s.

        Waits for two statistics events. The second one counts all requests that were sent before the call.

        Args:
            name: the kind of request: `ListOffsets`, `Metadata` …

        Returns:
            broker → number of requests. Brokers without such a request are left out.
        """
        for _ in range(2):  # the first event may be from before the call; the second one is new
            self._sent = {}
            deadline = time.monotonic() + 5
            while not self._sent and time.monotonic() < deadline:
                self._admin.poll(0.05)
        return {broker: counts[name] for broker, counts in self._sent.items() if counts.get(name)}

    def close(self) -> None:
        """Deliver the client's waiting events. The connections end when the object is deleted."""
        self._admin.poll(0)

    def _all_topics(self, since_ms: int | None = None) -> dict[str, list[int]]:
        """Return the partition numbers of every topic that the brokers know, and note the leaders' hosts. Blocks.

        A topic whose metadata has an error, as in an election, has no numbers. Only "unknown topic" means that there is no such topic.

        Args:
            since_ms: since when the brokers have been waited for, for the text of an error, by the monotonic clock; None: since now.
        """
        timeout, since_ms = self._params.api_timeout_ms, self._clock.monotonic_ms() if since_ms is None else since_ms
        try:
            metadata = self._requests.run_blocking(lambda: self._admin.list_topics(timeout=timeout / 1000))
        except KafkaException as e:
            raise self._mapped(e, self._waited_ms(since_ms)) from e
        self._cluster_id = metadata.cluster_id
        hosts = {number: broker.host for number, broker in metadata.brokers.items()}
        shown = {name: t for name, t in metadata.topics.items() if t.error is None or t.error.code() not in UNKNOWN_TOPIC}
        topics = {name: t.partitions if t.error is None else {} for name, t in shown.items()}
        self._leader_hosts = {(name, n): hosts[p.leader] for name, parts in topics.items() for n, p in parts.items() if p.leader in hosts}
        return {name: sorted(partitions) for name, partitions in topics.items()}

    def _ends(self, partitions: Collection[Partition], spec: OffsetSpec) -> dict[Partition, LogEnd]:
        """Request one end of each log and wait for all answers."""
        since_ms = self._clock.monotonic_ms()
        return self._all_answers(self._list_offsets(partitions, spec), spec, since_ms)

    def _all_answers(self, sent: dict[TopicPartition, Any], spec: OffsetSpec, since_ms: int) -> dict[Partition, LogEnd]:
        """Wait for the answers of all partitions, and return them.

        Failed partitions are asked again `max_retries` times. If all failures come from a leader election or a lost connection, they are
        asked again up to `default.api.timeout.ms`. If no broker has answered for that time, nobody is asked again. Raises the errors of
        `latest`.

        Args:
            sent: the futures of the partitions.
            spec: what they are asked for.
            since_ms: when that was sent, in milliseconds of the monotonic clock.
        """
        found, failures = self._collect(sent)
        retries, deadline = 0, since_ms + self._params.api_timeout_ms
        while failures and not self._is_silent(found, failures, deadline) and self._may_ask_again(failures, retries, deadline):
            retries += 1
            self._pause()
            self._all_topics(since_ms)  # the client sends requests to the leaders that it knows: new metadata names the new leaders
            answers, failures = self._collect(self._list_offsets(failures, spec))
            found.update(answers)
        if failures:
            raise self._no_answer(failures, retries, since_ms)
        return found

    def _may_ask_again(self, failures: Mapping[Partition, ClientError], retries: int, deadline: int) -> bool:
        """Return whether failed partitions are asked again, after so many retries."""
        return retries < self._max_retries or (self._electing(failures) and self._clock.monotonic_ms() < deadline)

    def _is_silent(self, found: Mapping[Partition, LogEnd], failures: Mapping[Partition, ClientError], deadline: int) -> bool:
        """Return whether no broker has answered until the deadline. A retry would wait for as long again."""
        return not found and all(e.code() in UNREACHABLE for e in failures.values()) and self._clock.monotonic_ms() >= deadline

    def _waited_ms(self, since_ms: int) -> int:
        """Return for how long the brokers have been waited for, since a moment of the monotonic clock; of one time-out just that."""
        waited, timeout = self._clock.monotonic_ms() - since_ms, self._params.api_timeout_ms
        return timeout if timeout <= waited < timeout + _OVER_MS else waited

    def _pause(self) -> None:
        self._clock.wait(self._params.leader_backoff_ms, threading.Event())

    def _electing(self, failures: Mapping[Partition, ClientError]) -> bool:
        """Return whether all failures come from a leader election or a lost connection."""
        return all(error.code() in LEADER_CHANGING | UNREACHABLE for error in failures.values())

    def _list_offsets(self, partitions: Iterable[Partition], spec: OffsetSpec) -> dict[TopicPartition, Any]:
        """Send one request to each broker, and return a future for each partition. Does not wait."""
        isolation = IsolationLevel.READ_COMMITTED if self._params.read_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not wanted:
            return {}
        self._requests.on_request()
        return self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=self._params.api_timeout_ms / 1000)

    def _collect(self, futures: dict[TopicPartition, Any]) -> tuple[dict[Partition, LogEnd], dict[Partition, ClientError]]:
        """Wait for the futures. Return the answers and the failures that a retry may resolve; raise any other failure."""
        answers: dict[Partition, LogEnd] = {}
        failures: dict[Partition, ClientError] = {}
        for at, future in futures.items():
            try:
                result = self._requests.await_result(future)
            except KafkaException as e:
                error: ClientError = e.args[0]
                if error.code() not in UNREACHABLE | LEADER_CHANGING | UNKNOWN_TOPIC:
                    raise self._mapped(e, self._params.api_timeout_ms, topic=at.topic) from e
                if error.code() in UNREACHABLE:
                    self._requests.on_no_response()
                failures[at.topic, at.partition] = error
            else:
                if result.offset < NO_SUCH_TIME:  # neither an offset nor an error: the response was incomplete
                    failures[at.topic, at.partition] = ClientError(ClientError.LEADER_NOT_AVAILABLE, "no offset came with the answer")
                    continue
                epoch = result.leader_epoch
                answers[at.topic, at.partition] = LogEnd(result.offset, epoch if epoch is not None and epoch >= 0 else None)
        return answers, failures

    def _no_answer(self, failures: dict[Partition, ClientError], retries: int, since_ms: int) -> KafkaError:
        """Return the error for partitions that are without an answer after all retries. Blocks; NotAuthorizedError for a hidden topic."""
        codes = {error.code() for error in failures.values()}
        if codes <= UNREACHABLE:
            return self._unreachable(self._waited_ms(since_ms))
        if codes <= UNKNOWN_TOPIC:
            topics = sorted({topic for topic, _ in failures})
            return self._unknown(topics, self._all_topics())
        return LeaderNotAvailableError({p: text_of(error) for p, error in failures.items()}, retries)

    def _unknown(self, missing: Sequence[str], known: Collection[str], searched_ms: int = 0) -> KafkaError:
        """Return the error for topics that the brokers do not show. Blocks; NotAuthorizedError for a topic that they hide.

        Just after an outage it is TopicNotAvailableError: brokers that have just come back elect, and may not know all topics yet.
        """
        is_after_outage = self._requests.is_after_outage
        self.describe_topics(missing)
        if is_after_outage:
            reason = f"brokers did not answer in the last {SETTLE_MS // 1000} s, and those that are back may not know all topics yet"
            return TopicNotAvailableError(missing, reason)
        return UnknownTopicError(missing, len(known), searched_ms, _near(missing, known))

    def _mapped(
        self, exception: KafkaException, waited_ms: int, topic: str = "", group: str = "", operation: str = "DESCRIBE"
    ) -> KafkaError:
        """Return the connector's error for an exception of confluent_kafka. A lost connection may be diagnosed first, which blocks."""
        error: ClientError = exception.args[0]
        if error.code() in UNREACHABLE:
            return self._unreachable(waited_ms)
        return map_error(error, self._params.bootstrap, operation, topic, group)

    def _unreachable(self, waited_ms: int) -> KafkaError:
        """Return the error for brokers that do not answer. May block for seconds in the diagnosis of the connection."""
        self._requests.on_no_response()
        self._admin.poll(0)  # delivers pending errors to error_cb
        return self._watch.timeout_error(waited_ms)

    def _on_error(self, error: ClientError) -> None:
        """Note an error of the connections. confluent_kafka calls it in the thread that polls."""
        self._watch.on_error(error.name(), error.str())

    def _on_statistics(self, text: str) -> None:
        """Note the counts of requests. confluent_kafka calls it in the thread that polls, with librdkafka's statistics as JSON."""
        brokers = json.loads(text)["brokers"]
        self._sent = {name: broker["req"] for name, broker in brokers.items()}


def _near(missing: Sequence[str], topics: Collection[str]) -> list[str]:
    """Return the topics whose names are most like those of the missing ones. Kafka's internal topics are left out."""
    shown = [topic for topic in topics if not topic.startswith("__")]
    return list(dict.fromkeys(near for name in missing for near in nearest_names(name, shown)))
