"""KafkaDriverClient: the driver's requests to the brokers: partitions, log ends, topic ids, commits."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, cast

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec

from kstream.clock import Clock, SystemClock
from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.client.librdkafka import LEADER_CHANGING, UNKNOWN_TOPIC, UNREACHABLE, map_error, new_client, request_topic_ids
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import LogEnd, Partition, Subscription
from kstream_kafka.errors import KafkaError, LeaderNotAvailableError, UnknownTopicError

logger = logging.getLogger("kstream.kafka")

UNKNOWN_TOPIC_WAIT_MS = 3_000
"""How long a missing topic is searched for. A new topic takes a moment until every broker knows it."""

DESCRIBE_S = 3.0
"""Timeout of the request for the reason why a topic is not visible."""

TIMES_IN_FLIGHT = 8
"""Offsets-for-times requests sent to a broker before the first answer."""
NO_SUCH_TIME = -1
"""The offset in the answer for a time later than all records."""
POLL_S = 0.05
"""How often the client is polled while a request waits for its response."""

_LATEST = cast(OffsetSpec, OffsetSpec.latest())
_EARLIEST = cast(OffsetSpec, OffsetSpec.earliest())
_COORDINATOR_BUSY = frozenset(
    {ClientError.COORDINATOR_LOAD_IN_PROGRESS, ClientError.COORDINATOR_NOT_AVAILABLE, ClientError.NOT_COORDINATOR}
)


class AdminRequests:
    """Waits for the responses to the driver's requests, and no longer than a response can come. One thread at a time.

    confluent_kafka delivers errors, statistics, log lines and token requests only to a thread that polls.
    """

    def __init__(self, watch: ConnectionWatch, poll: Callable[[], object]) -> None:
        """Wait on behalf of one client.

        Args:
            watch: the client's connection errors.
            poll: delivers the client's events. Does not block.
        """
        self._watch = watch
        self._poll = poll

    def on_request(self) -> None:
        """Note that a request is sent next."""
        self._watch.on_request()
        self._poll()

    def run_blocking(self, request: Callable[[], Any]) -> Any:
        """Run a blocking request in a daemon thread, poll meanwhile, and return its result. Errors as `await_result`."""
        self.on_request()
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(request())
            except BaseException as e:
                future.set_exception(e)

        threading.Thread(target=run, name="KafkaMetadata", daemon=True).start()
        return self.await_result(future)

    def await_result(self, future: Any) -> Any:
        """Wait for the future and return its result, or raise its error. Polls the client meanwhile.

        Raises:
            KafkaError: the brokers refuse this client, so no response can come. Raised as soon as that is known.
        """
        while True:
            try:
                result = future.result(timeout=POLL_S)
            except FutureTimeoutError:
                if future.done():  # the TimeoutError is the result, or the result came just now
                    result = future.result()
                    break
                self._poll()
                fatal = self._watch.fatal_error()
                if fatal is not None:
                    raise fatal from None
            else:
                break
        self._watch.on_response()
        return result


class KafkaDriverClient:
    """The driver's client. One thread at a time. Every request may block up to `default.api.timeout.ms`."""

    def __init__(self, params: KafkaParams, max_retries: int = 1, statistics_ms: int = 0, clock: Clock | None = None) -> None:
        """Create the client. Sends no request.

        Args:
            params: the user's Kafka parameters.
            max_retries: how often a request for offsets is retried outside of a leader election.
            statistics_ms: above 0, librdkafka counts requests at this interval, for tests and benchmarks: see `requests_sent`.
            clock: for pauses and deadlines.

        Raises:
            KafkaConfigError: librdkafka refuses a parameter.
            AuthenticationFailedError: `oauth_cb` returned no token.
        """
        self._params = params
        self._clock = clock or SystemClock()
        self._max_retries = max_retries
        self._watch = ConnectionWatch(params.settings)
        self._requests = AdminRequests(self._watch, lambda: self._admin.poll(0))
        self._sent: dict[str, dict[str, int]] = {}
        self._leader_hosts: dict[Partition, str] = {}
        settings = {**params.driver(), "error_cb": self._on_error}
        if statistics_ms:
            settings.update({"statistics.interval.ms": statistics_ms, "stats_cb": self._on_statistics})
        self._admin = new_client(AdminClient, settings)

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """Return all partitions of the topics of a subscription.

        Sends a full metadata request, because a request that names a topic could create it.

        Raises:
            UnknownTopicError: a named topic is missing for UNKNOWN_TOPIC_WAIT_MS.
            NotAuthorizedError: the brokers do not show a named topic to this client.
            BrokerUnreachableError: no broker answered.
        """
        deadline = self._clock.monotonic_ms() + UNKNOWN_TOPIC_WAIT_MS
        while True:
            topics = self._all_topics()
            missing = [name for name in subscription.names if not topics.get(name)]
            if not missing:
                return {(t, p) for t, numbers in topics.items() if subscription.wants(t) for p in numbers}
            if self._clock.monotonic_ms() >= deadline:
                self._check_visible(missing)
                raise UnknownTopicError(missing, len(topics), UNKNOWN_TOPIC_WAIT_MS)
            self._pause()

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Return the ids of these topics, by one request. Missing topics are left out; brokers before 2.8 have no ids."""
        timeout = self._params.api_timeout_ms
        self._admin.poll(0)
        try:
            return request_topic_ids(self._admin, topics, timeout / 1000)
        except KafkaException as e:
            raise self._mapped(e, timeout) from e

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the end of each log: the high watermark, or the last stable offset under read_committed."""
        return self._ends(partitions, _LATEST)

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Return the begin of each log."""
        return self._ends(partitions, _EARLIEST)

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """Return, for each time (ms), the first offset with that timestamp or a later one; None if the log has none.

        Sends one request a broker and time, TIMES_IN_FLIGHT of them at once.
        """
        found: list[dict[Partition, int | None]] = []
        for first in range(0, len(times_ms), TIMES_IN_FLIGHT):
            specs = [cast(OffsetSpec, OffsetSpec.for_timestamp(ms)) for ms in times_ms[first : first + TIMES_IN_FLIGHT]]
            sent = [(self._list_offsets(partitions, spec), spec) for spec in specs]
            answers = [self._all_answers(futures, spec) for futures, spec in sent]
            found += [{p: None if end.offset == NO_SUCH_TIME else end.offset for p, end in answer.items()} for answer in answers]
        return found

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the offsets that the group has committed. Partitions without a commit are left out.

        While the coordinator loads the group, the request is retried up to `default.api.timeout.ms`.
        """
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*p) for p in partitions])
        timeout = self._params.api_timeout_ms
        deadline = self._clock.monotonic_ms() + timeout
        while True:
            self._requests.on_request()
            try:
                future = self._admin.list_consumer_group_offsets([wanted], request_timeout=timeout / 1000)[group]
                answers = self._requests.await_result(future).topic_partitions
                error = next((at.error for at in answers if at.error is not None), None)
            except KafkaException as e:
                answers, error = [], e.args[0]
            if error is None:
                return {(at.topic, at.partition): at.offset for at in answers if at.offset >= 0}
            if error.code() not in _COORDINATOR_BUSY or self._clock.monotonic_ms() >= deadline:
                raise self._mapped(KafkaException(error), timeout, group=group)
            self._pause()

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[KafkaError | None], None]) -> None:
        """Commit offsets for a group without members. Returns at once; a thread of the client calls `on_done(error or None)`."""
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*p, at) for p, at in offsets.items()])
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
        """Return the hosts of all leaders, from the last metadata: as old as the last request for partitions."""
        return self._leader_hosts

    def requests_sent(self, name: str) -> dict[str, int]:
        """Return how many requests of a kind (`ListOffsets`, `Metadata` …) were sent to each broker, as librdkafka counts them.

        Waits for the next statistics event, which has all requests sent before the call. Blocks up to 5 s.
        """
        for _ in range(2):  # an event from before the call may wait; the second event is new
            self._sent = {}
            deadline = time.monotonic() + 5
            while not self._sent and time.monotonic() < deadline:
                self._admin.poll(0.05)
        return {broker: counts[name] for broker, counts in self._sent.items() if counts.get(name)}

    def close(self) -> None:
        """Drop waiting callbacks. The connections end with the object."""
        self._admin.poll(0)

    def _all_topics(self) -> dict[str, list[int]]:
        """Return the partition numbers of every topic that is readable now, and note the leaders' hosts."""
        timeout = self._params.api_timeout_ms
        try:
            metadata = self._requests.run_blocking(lambda: self._admin.list_topics(timeout=timeout / 1000))
        except KafkaException as e:
            raise self._mapped(e, timeout) from e
        hosts = {number: broker.host for number, broker in metadata.brokers.items()}
        topics = {name: t.partitions for name, t in metadata.topics.items() if t.error is None}
        self._leader_hosts = {(name, n): hosts[p.leader] for name, parts in topics.items() for n, p in parts.items() if p.leader in hosts}
        return {name: sorted(partitions) for name, partitions in topics.items()}

    def _ends(self, partitions: Collection[Partition], spec: OffsetSpec) -> dict[Partition, LogEnd]:
        return self._all_answers(self._list_offsets(partitions, spec), spec)

    def _all_answers(self, sent: dict[TopicPartition, Any], spec: OffsetSpec) -> dict[Partition, LogEnd]:
        """Return the answers of all partitions. Retries `max_retries` times, and up to `default.api.timeout.ms` during leader election."""
        found, failures = self._collect(sent)
        retries, deadline = 0, self._clock.monotonic_ms() + self._params.api_timeout_ms
        while failures and (retries < self._max_retries or (self._electing(failures) and self._clock.monotonic_ms() < deadline)):
            retries += 1
            self._pause()
            self._all_topics()  # the client asks the leaders it knows: let it learn the new ones
            answers, failures = self._collect(self._list_offsets(failures, spec))
            found.update(answers)
        if failures:
            raise self._no_answer(failures, retries)
        return found

    def _pause(self) -> None:
        self._clock.wait(self._params.leader_backoff_ms, threading.Event())

    def _electing(self, failures: Mapping[Partition, ClientError]) -> bool:
        return all(error.code() in LEADER_CHANGING | UNREACHABLE for error in failures.values())

    def _list_offsets(self, partitions: Iterable[Partition], spec: OffsetSpec) -> dict[TopicPartition, Any]:
        """Send one request a broker, and return a future for each partition. Does not wait."""
        isolation = IsolationLevel.READ_COMMITTED if self._params.read_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not wanted:
            return {}
        self._requests.on_request()
        return self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=self._params.api_timeout_ms / 1000)

    def _collect(self, futures: dict[TopicPartition, Any]) -> tuple[dict[Partition, LogEnd], dict[Partition, ClientError]]:
        """Wait, and return the answers and the retriable failures. Raises any other failure."""
        answers: dict[Partition, LogEnd] = {}
        failures: dict[Partition, ClientError] = {}
        for at, future in futures.items():
            try:
                result = self._requests.await_result(future)
            except KafkaException as e:
                error: ClientError = e.args[0]
                if error.code() not in UNREACHABLE | LEADER_CHANGING | UNKNOWN_TOPIC:
                    raise self._mapped(e, self._params.api_timeout_ms, topic=at.topic) from e
                failures[at.topic, at.partition] = error
            else:
                if result.offset < NO_SUCH_TIME:  # neither an offset nor an error: the response was incomplete
                    failures[at.topic, at.partition] = ClientError(ClientError.LEADER_NOT_AVAILABLE, "no offset came with the answer")
                    continue
                epoch = result.leader_epoch
                answers[at.topic, at.partition] = LogEnd(result.offset, epoch if epoch is not None and epoch >= 0 else None)
        return answers, failures

    def _no_answer(self, failures: dict[Partition, ClientError], retries: int) -> KafkaError:
        codes = {error.code() for error in failures.values()}
        if codes <= UNREACHABLE:
            return self._unreachable(self._params.api_timeout_ms)
        if codes <= UNKNOWN_TOPIC:
            topics = sorted({topic for topic, _ in failures})
            self._check_visible(topics)
            return UnknownTopicError(topics, len(self._all_topics()))
        return LeaderNotAvailableError({p: error.str() for p, error in failures.items()}, retries)

    def _check_visible(self, topics: Sequence[str]) -> None:
        """Raise NotAuthorizedError for a topic that the brokers do not show to this client. DescribeTopics does not create the topic."""
        for topic, future in self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=DESCRIBE_S).items():
            try:
                future.result()
            except KafkaException as e:
                if e.args[0].code() == ClientError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._mapped(e, 0, topic=topic) from e

    def _mapped(self, exception: KafkaException, waited_ms: int, topic: str = "", group: str = "") -> KafkaError:
        error: ClientError = exception.args[0]
        if error.code() in UNREACHABLE:
            return self._unreachable(waited_ms)
        return map_error(error, self._params.bootstrap, "DESCRIBE", topic, group)

    def _unreachable(self, waited_ms: int) -> KafkaError:
        self._admin.poll(0)  # delivers pending errors to error_cb
        return self._watch.timeout_error(waited_ms)

    def _on_error(self, error: ClientError) -> None:
        self._watch.on_error(error.name(), error.str())

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"]
        self._sent = {name: broker["req"] for name, broker in brokers.items()}
