"""Kafka as the connector sees it: the only module that imports confluent_kafka, and the only one that maps its exceptions.

`KafkaDriverClient` asks the brokers for partitions and for the ends of their logs; `KafkaRangeConsumer` reads one partition at a
time in a worker. librdkafka's log goes to the logger `kstream.kafka.librdkafka`, which is silent unless the application gives it a
handler of its own: an unreachable broker is one error of ours, not a screen of lines.
"""

from __future__ import annotations

import json
import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec

from kstream_kafka.connection_watch import ConnectionWatch
from kstream_kafka.errors import (
    AuthenticationFailedError,
    KafkaConfigError,
    KafkaError,
    LeaderNotAvailableError,
    NotAuthorizedError,
    UnknownTopicError,
)
from kstream_kafka.hiding import hidden, remember
from kstream_kafka.librdkafka_log import client_log
from kstream_kafka.oauth import TokenCallback
from kstream_kafka.params import KafkaParams
from kstream_kafka.ports import LogEnd, Partition, Settings, Subscription, Trouble
from kstream_kafka.properties import CONSUMER
from kstream_kafka.questions import Questions
from kstream_kafka.topic_ids import FreshTopicIds

logger = logging.getLogger("kstream.kafka")

UNKNOWN_TOPIC_WAIT_MS = 3_000
"""How long a topic that is not there is looked for: one just created takes a moment to be known to every broker."""

DESCRIBE_S = 3.0
"""How long the brokers are asked why a topic is not to be seen."""

LEADERS_S = 2.0
"""How long a worker waits to learn the leaders of a topic before it starts to fetch, which asks again by itself."""

TIMES_IN_FLIGHT = 8
ID_TIMEOUT_S = 15.0
_MOCK = "mockCluster"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero id, of brokers before 2.8."""
NO_SUCH_TIME = -1
"""The answer to a time later than all records."""

_LATEST = cast(OffsetSpec, OffsetSpec.latest())
_EARLIEST = cast(OffsetSpec, OffsetSpec.earliest())
_AWAY = frozenset({ClientError._TRANSPORT, ClientError._TIMED_OUT, ClientError._ALL_BROKERS_DOWN, ClientError._RESOLVE})
_UNKNOWN = frozenset({ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_TOPIC, ClientError._UNKNOWN_PARTITION, ClientError._NOENT})
_MOVING = frozenset(
    {
        ClientError.NOT_LEADER_FOR_PARTITION, ClientError.LEADER_NOT_AVAILABLE, ClientError.REPLICA_NOT_AVAILABLE,
        ClientError.OFFSET_NOT_AVAILABLE, ClientError.FENCED_LEADER_EPOCH, ClientError.UNKNOWN_LEADER_EPOCH,
        ClientError.KAFKA_STORAGE_ERROR, ClientError.REQUEST_TIMED_OUT, ClientError.NETWORK_EXCEPTION,
        ClientError._WAIT_CACHE, ClientError.UNKNOWN_TOPIC_ID,
    }
)  # fmt: skip
_COORDINATOR_BUSY = frozenset(
    {ClientError.COORDINATOR_LOAD_IN_PROGRESS, ClientError.COORDINATOR_NOT_AVAILABLE, ClientError.NOT_COORDINATOR}
)
_NOT_OURS = frozenset({ClientError.GROUP_AUTHORIZATION_FAILED, ClientError._MAX_POLL_EXCEEDED, ClientError.COORDINATOR_NOT_AVAILABLE})
"""About consumer groups, which are not used: librdkafka looks for a coordinator all the same."""


class KafkaDriverClient:
    """The driver's questions to the brokers. Used by one thread at a time; every question may block up to `api_timeout_ms`.

    `statistics_ms` > 0 makes librdkafka count requests on the wire, for tests and benchmarks: see `requests_sent`.
    """

    def __init__(self, params: KafkaParams, max_retries: int = 1, statistics_ms: int = 0) -> None:
        self._params = params
        self._max_retries = max_retries
        self._watch = ConnectionWatch(params.settings)
        self._questions = Questions(self._watch, lambda: self._admin.poll(0))
        self._sent: dict[str, dict[str, int]] = {}
        self._leader_hosts: dict[Partition, str] = {}
        settings = {**params.driver(), "error_cb": self._on_error}
        if statistics_ms:
            settings.update({"statistics.interval.ms": statistics_ms, "stats_cb": self._on_statistics})
        self._admin = _made(AdminClient, settings)

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """All partitions of the wanted topics, from one full metadata request: one that names a topic could create it.

        UnknownTopicError when a named topic stays missing for UNKNOWN_TOPIC_WAIT_MS.
        """
        deadline = time.monotonic() + UNKNOWN_TOPIC_WAIT_MS / 1000
        while True:
            topics = self._all_topics()
            missing = [name for name in subscription.names if not topics.get(name)]
            if not missing:
                return {(t, p) for t, numbers in topics.items() if subscription.wants(t) for p in numbers}
            if time.monotonic() >= deadline:
                self._check_visible(missing)
                raise UnknownTopicError(missing, len(topics), UNKNOWN_TOPIC_WAIT_MS)
            time.sleep(self._params.leader_backoff_ms / 1000)

    def topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """The ids of these topics: one request. Left out: topics that are not there, all of them with brokers that have no ids."""
        timeout = self._params.api_timeout_ms
        self._admin.poll(0)
        try:
            return _topic_ids(self._admin, topics, timeout / 1000)
        except KafkaException as e:
            raise self._mapped(e, timeout) from e

    def latest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Where each log ends: the high watermark, or the last stable offset under read_committed."""
        return self._ends(partitions, _LATEST)

    def earliest(self, partitions: Collection[Partition]) -> dict[Partition, LogEnd]:
        """Where each log begins."""
        return self._ends(partitions, _EARLIEST)

    def at_times(self, times_ms: Sequence[int], partitions: Collection[Partition]) -> list[dict[Partition, int | None]]:
        """For each time and partition the first offset of that timestamp (ms) or a later one; None when the log has none.

        One request a broker and time, TIMES_IN_FLIGHT of them at once.
        """
        found: list[dict[Partition, int | None]] = []
        for first in range(0, len(times_ms), TIMES_IN_FLIGHT):
            specs = [cast(OffsetSpec, OffsetSpec.for_timestamp(ms)) for ms in times_ms[first : first + TIMES_IN_FLIGHT]]
            asked = [(self._ask(partitions, spec), spec) for spec in specs]
            answers = [self._settled(futures, spec) for futures, spec in asked]
            found += [{p: None if end.offset == NO_SUCH_TIME else end.offset for p, end in answer.items()} for answer in answers]
        return found

    def committed(self, group: str, partitions: Collection[Partition]) -> dict[Partition, int]:
        """The offsets the group has committed; partitions without one are left out.

        A coordinator that is only just loading the group is asked again, up to `api_timeout_ms`.
        """
        wanted = ConsumerGroupTopicPartitions(group, [TopicPartition(*p) for p in partitions])
        timeout = self._params.api_timeout_ms
        deadline = time.monotonic() + timeout / 1000
        while True:
            self._questions.begin()
            try:
                future = self._admin.list_consumer_group_offsets([wanted], request_timeout=timeout / 1000)[group]
                answers = self._questions.awaited(future).topic_partitions
                error = next((at.error for at in answers if at.error is not None), None)
            except KafkaException as e:
                answers, error = [], e.args[0]
            if error is None:
                return {(at.topic, at.partition): at.offset for at in answers if at.offset >= 0}
            if error.code() not in _COORDINATOR_BUSY or time.monotonic() >= deadline:
                raise self._mapped(KafkaException(error), timeout, group=group)
            time.sleep(self._params.leader_backoff_ms / 1000)

    def commit(self, group: str, offsets: Mapping[Partition, int], on_done: Callable[[KafkaError | None], None]) -> None:
        """Commits for the group, which must have no members; does not wait. `on_done(error)` is called by a thread of the client."""
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
        """The hosts of all leaders, by the last metadata seen: as old as the last look for partitions."""
        return self._leader_hosts

    def requests_sent(self, name: str) -> dict[str, int]:
        """Requests of this kind (`ListOffsets`, `Metadata` …) sent so far to each broker, as librdkafka last counted them.

        Waits for the next statistics event, so that it holds all that was sent before the call. Blocks up to 5 s.
        """
        for _ in range(2):  # an event waiting since before the call may be old; the second is not
            self._sent = {}
            deadline = time.monotonic() + 5
            while not self._sent and time.monotonic() < deadline:
                self._admin.poll(0.05)
        return {broker: counts[name] for broker, counts in self._sent.items() if counts.get(name)}

    def close(self) -> None:
        """Drops callbacks that are waiting; the connections go with the object."""
        self._admin.poll(0)

    def _all_topics(self) -> dict[str, list[int]]:
        """Partition numbers of every topic that can be read at the moment."""
        timeout = self._params.api_timeout_ms
        try:
            metadata = self._questions.blocking(lambda: self._admin.list_topics(timeout=timeout / 1000))
        except KafkaException as e:
            raise self._mapped(e, timeout) from e
        hosts = {number: broker.host for number, broker in metadata.brokers.items()}
        topics = {name: t.partitions for name, t in metadata.topics.items() if t.error is None}
        self._leader_hosts = {(name, n): hosts[p.leader] for name, parts in topics.items() for n, p in parts.items() if p.leader in hosts}
        return {name: sorted(partitions) for name, partitions in topics.items()}

    def _ends(self, partitions: Collection[Partition], spec: OffsetSpec) -> dict[Partition, LogEnd]:
        """Asks for all partitions at once, then again for those that failed for a passing reason."""
        return self._settled(self._ask(partitions, spec), spec)

    def _settled(self, asked: dict[TopicPartition, Any], spec: OffsetSpec) -> dict[Partition, LogEnd]:
        """All answers to a question already asked, with the retries it needs: `max_retries`, or more while leaders are being elected.

        An election takes seconds, and then each partition has a leader again: `api_timeout_ms` is how long that is waited for.
        """
        found, failures = self._collect(asked)
        retries, deadline = 0, time.monotonic() + self._params.api_timeout_ms / 1000
        while failures and (retries < self._max_retries or (self._electing(failures) and time.monotonic() < deadline)):
            retries += 1
            time.sleep(self._params.leader_backoff_ms / 1000)
            self._all_topics()  # the client asks the leaders it remembers: let it learn the new ones
            answers, failures = self._collect(self._ask(failures, spec))
            found.update(answers)
        if failures:
            raise self._no_answer(failures, retries)
        return found

    def _electing(self, failures: Mapping[Partition, ClientError]) -> bool:
        return all(error.code() in _MOVING | _AWAY for error in failures.values())

    def _ask(self, partitions: Iterable[Partition], spec: OffsetSpec) -> dict[TopicPartition, Any]:
        """One call, one request a broker: a future for each partition. Does not wait."""
        isolation = IsolationLevel.READ_COMMITTED if self._params.read_committed else IsolationLevel.READ_UNCOMMITTED
        wanted = {TopicPartition(topic, partition): spec for topic, partition in partitions}
        if not wanted:
            return {}
        self._questions.begin()
        return self._admin.list_offsets(wanted, isolation_level=isolation, request_timeout=self._params.api_timeout_ms / 1000)

    def _collect(self, futures: dict[TopicPartition, Any]) -> tuple[dict[Partition, LogEnd], dict[Partition, ClientError]]:
        """Waits: the answers, and the passing failures. Any other failure is raised."""
        answers: dict[Partition, LogEnd] = {}
        failures: dict[Partition, ClientError] = {}
        for at, future in futures.items():
            try:
                result = self._questions.awaited(future)
            except KafkaException as e:
                error: ClientError = e.args[0]
                if error.code() not in _AWAY | _MOVING | _UNKNOWN:
                    raise self._mapped(e, self._params.api_timeout_ms, topic=at.topic) from e
                failures[at.topic, at.partition] = error
            else:
                if result.offset < NO_SUCH_TIME:  # neither an offset nor an error: the request was cut off in the middle
                    failures[at.topic, at.partition] = ClientError(ClientError.LEADER_NOT_AVAILABLE, "no offset came with the answer")
                    continue
                epoch = result.leader_epoch
                answers[at.topic, at.partition] = LogEnd(result.offset, epoch if epoch is not None and epoch >= 0 else None)
        return answers, failures

    def _no_answer(self, failures: dict[Partition, ClientError], retries: int) -> KafkaError:
        codes = {error.code() for error in failures.values()}
        if codes <= _AWAY:
            return self._unreachable(self._params.api_timeout_ms)
        if codes <= _UNKNOWN:
            topics = sorted({topic for topic, _ in failures})
            self._check_visible(topics)
            return UnknownTopicError(topics, len(self._all_topics()))
        return LeaderNotAvailableError({p: error.str() for p, error in failures.items()}, retries)

    def _check_visible(self, topics: Sequence[str]) -> None:
        """NotAuthorizedError for a topic that the brokers do not show to this client. Asked by name, they do not make it."""
        for topic, future in self._admin.describe_topics(TopicCollection(list(topics)), request_timeout=DESCRIBE_S).items():
            try:
                future.result()
            except KafkaException as e:
                if e.args[0].code() == ClientError.TOPIC_AUTHORIZATION_FAILED:
                    raise self._mapped(e, 0, topic=topic) from e

    def _mapped(self, exception: KafkaException, waited_ms: int, topic: str = "", group: str = "") -> KafkaError:
        error: ClientError = exception.args[0]
        if error.code() in _AWAY:
            return self._unreachable(waited_ms)
        return _refused(error, self._params.bootstrap, "DESCRIBE", topic, group)

    def _unreachable(self, waited_ms: int) -> KafkaError:
        self._admin.poll(0)  # delivers what error_cb has to say
        return self._watch.unanswered(waited_ms)

    def _on_error(self, error: ClientError) -> None:
        self._watch.heard(error.name(), error.str())

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"]
        self._sent = {name: broker["req"] for name, broker in brokers.items()}


class KafkaRangeConsumer:
    """A worker's consumer, of one partition or several at a time. `settings` are complete consumer properties. Not thread-safe."""

    def __init__(self, settings: Settings) -> None:
        self._watch = ConnectionWatch(settings)
        self._bootstrap = str(settings.get("bootstrap.servers", ""))
        self._asked_for: set[str] = set()
        self._settings = settings
        self._admin: AdminClient | None = None
        self._topic_ids = FreshTopicIds(self._ask_topic_ids)
        self._reading: list[str] = []
        self._consumer = _made(Consumer, {**settings, "error_cb": self._on_error})
        self._consume: Callable[[int, float], list[Any]] = self._consumer.consume

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        """Starts to fetch each (topic, partition, offset, leader epoch); what was fetched for an earlier assignment is dropped.

        Blocks for a topic that this client has not read before: a request or two.
        """
        self._watch.asked()
        self._reading = sorted({topic for topic, _, _, _ in begins})
        for topic in self._reading:
            if topic not in self._asked_for:
                self._ask_for(topic)
        self._consumer.assign([TopicPartition(t, p, at, leader_epoch=-1 if epoch is None else epoch) for t, p, at, epoch in begins])

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        """The client's own; AuthenticationFailedError or TlsFailedError as soon as it is known that nothing will come."""
        messages = self._consume(num_messages, timeout)
        if self._watch.uneasy:
            if any(m.error() is None for m in messages):
                self._watch.answered()
            elif (verdict := self._watch.verdict()) is not None:
                raise verdict
        return messages

    def unassign(self) -> None:
        """Stops fetching."""
        self._consumer.unassign()

    def trouble(self, error: ClientError) -> Trouble:
        """What an error event among the messages means; NotAuthorizedError for a topic that may not be read."""
        code = error.code()
        if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
            raise _refused(error, self._bootstrap, "READ", ", ".join(self._reading), "")
        if code == ClientError._PARTITION_EOF:
            return Trouble.END_OF_PARTITION
        if code in (ClientError._AUTO_OFFSET_RESET, ClientError._LOG_TRUNCATION, ClientError.OFFSET_OUT_OF_RANGE):
            return Trouble.OUT_OF_RANGE
        if code in _AWAY | _MOVING | _UNKNOWN | _NOT_OURS or (error.retriable() and not error.fatal()):
            return Trouble.PASSING
        return Trouble.FATAL

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """The ids of these topics, as `DriverClient.topic_ids`; of the last second or so unless `fresh`. Blocks up to ID_TIMEOUT_S."""
        return self._topic_ids.get(topics, fresh)

    def _ask_topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if self._admin is None:
            self._admin = _made(AdminClient, {k: v for k, v in self._settings.items() if k not in CONSUMER})
        try:
            return _topic_ids(self._admin, topics, ID_TIMEOUT_S)
        except KafkaException as e:
            raise KafkaError(f"the ids of the topics {sorted(topics)} could not be asked for: {e.args[0].str()}", reason=str(e)) from e

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """(earliest, latest) by asking the leader, up to 5 s; (None, None) when it does not answer."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=5)
        except KafkaException as e:
            logger.warning("no log range of %s-%d: %s", topic, partition, e)
            return None, None

    def last_error(self) -> str:
        """The client's last words about its connections."""
        return self._watch.last_words

    def close(self) -> None:
        """Leaves the brokers; the object is of no use afterwards."""
        self._consumer.close()

    def _ask_for(self, topic: str) -> None:
        """Lets the client learn the topic's leaders now, in some 10 ms: left to itself it looks for those of a new topic once a second."""
        self._asked_for.add(topic)
        try:
            known = self._consumer.list_topics(topic, timeout=LEADERS_S).topics.get(topic)
        except KafkaException as e:
            logger.debug("no metadata of %s yet: %s", topic, e)  # the assignment goes on asking, and the poll timeout bounds it
            return
        if known is not None and known.error is not None and known.error.code() == ClientError.TOPIC_AUTHORIZATION_FAILED:
            raise _refused(known.error, self._bootstrap, "DESCRIBE", topic, "")

    def _on_error(self, error: ClientError) -> None:
        if error.code() not in _NOT_OURS:
            self._watch.heard(error.name(), error.str())


def _refused(error: ClientError, bootstrap: str, operation: str, topic: str, group: str) -> KafkaError:
    """What a broker's answer means that is no passing one; `operation` is what the topic was asked for."""
    code, reason = error.code(), hidden(error.str())
    if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ" if group else operation, "topic", topic, reason)
    if code == ClientError.GROUP_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ", "group", group, reason)
    if code == ClientError.CLUSTER_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, operation, "cluster", "", reason)
    return KafkaError(f"Kafka at {bootstrap} refused: {reason}", reason=reason)


def _topic_ids(admin: Any, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """The ids of those topics that are there; KafkaException when nobody answers.

    librdkafka's mock cluster has none, and would let the question time out. DescribeTopics, unlike a metadata request that names a
    topic, never creates it.
    """
    if not topics or str(admin.cluster_id(timeout=timeout_s)).startswith(_MOCK):
        return {}
    ids: dict[str, str] = {}
    for topic, future in admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s).items():
        try:
            found = str(future.result().topic_id)
        except KafkaException as e:
            if e.args[0].code() not in _UNKNOWN | _MOVING:
                raise
        else:
            if found != NO_ID:
                ids[topic] = found
    return ids


def _made(kind: Callable[..., Any], settings: Settings) -> Any:
    """A client object; a property the library refuses becomes a KafkaConfigError without a secret.

    Blocks for a first token where there is an oauth_cb; AuthenticationFailedError if that gives none.
    """
    remember(settings)
    token, at = settings.get("oauth_cb"), str(settings.get("bootstrap.servers", ""))
    if isinstance(token, TokenCallback):
        token.fetch_first(str(settings.get("sasl.oauthbearer.config", "")), at)
    try:
        return kind(dict(settings), logger=client_log)
    except KafkaException as e:
        error: ClientError = e.args[0]
        said = hidden(error.str())
    if error.code() == ClientError.SASL_AUTHENTICATION_FAILED:
        raise AuthenticationFailedError(at, "SASL", "OAUTHBEARER", said, "Check what oauth_cb does.")
    if "No provider for SASL mechanism" in said:
        hint = "The wheels of confluent-kafka have no Kerberos: pip install --no-binary confluent-kafka, against a librdkafka with GSSAPI."
        raise KafkaConfigError("sasl.mechanism", f"cannot be served by this librdkafka ({said})", hint)
    named = [key for key in settings if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", said)]
    raise KafkaConfigError(named[0] if named else "kafkaParams", "was refused by librdkafka", said)
