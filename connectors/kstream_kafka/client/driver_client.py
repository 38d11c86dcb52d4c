"""KafkaDriverClient: the driver's questions to the brokers – partitions, ends of logs, topic ids, commits.

Questions: waits for the brokers' answers on behalf of the driver's client, and no longer than that makes sense.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from typing import Any, cast

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, KafkaException, TopicCollection, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient, OffsetSpec

from kstream.clock import Clock, SystemClock
from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.client.librdkafka import AWAY, MOVING, UNKNOWN, ask_topic_ids, made, refused
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import LogEnd, Partition, Subscription
from kstream_kafka.errors import (
    KafkaError,
    LeaderNotAvailableError,
    UnknownTopicError,
)

logger = logging.getLogger("kstream.kafka")

UNKNOWN_TOPIC_WAIT_MS = 3_000
"""How long a topic that is not there is looked for: one just created takes a moment to be known to every broker."""

DESCRIBE_S = 3.0
"""How long the brokers are asked why a topic is not to be seen."""

TIMES_IN_FLIGHT = 8
NO_SUCH_TIME = -1
"""The answer to a time later than all records."""

_LATEST = cast(OffsetSpec, OffsetSpec.latest())
_EARLIEST = cast(OffsetSpec, OffsetSpec.earliest())
_COORDINATOR_BUSY = frozenset(
    {ClientError.COORDINATOR_LOAD_IN_PROGRESS, ClientError.COORDINATOR_NOT_AVAILABLE, ClientError.NOT_COORDINATOR}
)


class KafkaDriverClient:
    """The driver's questions to the brokers. Used by one thread at a time; every question may block up to `api_timeout_ms`.

    `statistics_ms` > 0 makes librdkafka count requests on the wire, for tests and benchmarks: see `requests_sent`.
    """

    def __init__(self, params: KafkaParams, max_retries: int = 1, statistics_ms: int = 0, clock: Clock | None = None) -> None:
        self._params = params
        self._clock = clock or SystemClock()
        self._max_retries = max_retries
        self._watch = ConnectionWatch(params.settings)
        self._questions = Questions(self._watch, lambda: self._admin.poll(0))
        self._sent: dict[str, dict[str, int]] = {}
        self._leader_hosts: dict[Partition, str] = {}
        settings = {**params.driver(), "error_cb": self._on_error}
        if statistics_ms:
            settings.update({"statistics.interval.ms": statistics_ms, "stats_cb": self._on_statistics})
        self._admin = made(AdminClient, settings)

    def partitions(self, subscription: Subscription) -> set[Partition]:
        """All partitions of the wanted topics, from one full metadata request: one that names a topic could create it.

        UnknownTopicError when a named topic stays missing for UNKNOWN_TOPIC_WAIT_MS.
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
        """The ids of these topics: one request. Left out: topics that are not there, all of them with brokers that have no ids."""
        timeout = self._params.api_timeout_ms
        self._admin.poll(0)
        try:
            return ask_topic_ids(self._admin, topics, timeout / 1000)
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
        deadline = self._clock.monotonic_ms() + timeout
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
            if error.code() not in _COORDINATOR_BUSY or self._clock.monotonic_ms() >= deadline:
                raise self._mapped(KafkaException(error), timeout, group=group)
            self._pause()

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
        retries, deadline = 0, self._clock.monotonic_ms() + self._params.api_timeout_ms
        while failures and (retries < self._max_retries or (self._electing(failures) and self._clock.monotonic_ms() < deadline)):
            retries += 1
            self._pause()
            self._all_topics()  # the client asks the leaders it remembers: let it learn the new ones
            answers, failures = self._collect(self._ask(failures, spec))
            found.update(answers)
        if failures:
            raise self._no_answer(failures, retries)
        return found

    def _pause(self) -> None:
        self._clock.wait(self._params.leader_backoff_ms, threading.Event())

    def _electing(self, failures: Mapping[Partition, ClientError]) -> bool:
        return all(error.code() in MOVING | AWAY for error in failures.values())

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
                if error.code() not in AWAY | MOVING | UNKNOWN:
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
        if codes <= AWAY:
            return self._unreachable(self._params.api_timeout_ms)
        if codes <= UNKNOWN:
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
        if error.code() in AWAY:
            return self._unreachable(waited_ms)
        return refused(error, self._params.bootstrap, "DESCRIBE", topic, group)

    def _unreachable(self, waited_ms: int) -> KafkaError:
        self._admin.poll(0)  # delivers what error_cb has to say
        return self._watch.unanswered(waited_ms)

    def _on_error(self, error: ClientError) -> None:
        self._watch.heard(error.name(), error.str())

    def _on_statistics(self, text: str) -> None:
        brokers = json.loads(text)["brokers"]
        self._sent = {name: broker["req"] for name, broker in brokers.items()}


LISTEN_S = 0.05
"""How often, while an answer is waited for, the client is asked what it has to say."""


class Questions:
    """`poll` delivers what waits in the client: errors, statistics, log lines, requests for a token."""

    def __init__(self, watch: ConnectionWatch, poll: Callable[[], object]) -> None:
        self._watch = watch
        self._poll = poll

    def begin(self) -> None:
        """Before anything is asked."""
        self._watch.asked()
        self._poll()

    def blocking(self, ask: Callable[[], Any]) -> Any:
        """The answer to a question that blocks, asked by a thread of its own: the client says what is wrong only to who polls.

        The thread is a daemon, and ends when the question does.
        """
        self.begin()
        future: Future[Any] = Future()

        def run() -> None:
            try:
                future.set_result(ask())
            except BaseException as e:
                future.set_exception(e)

        threading.Thread(target=run, name="KafkaMetadata", daemon=True).start()
        return self.awaited(future)

    def awaited(self, future: Any) -> Any:
        """Wait for the future and return its result, or raise its error. While it waits, the client says what it has heard.

        Raises:
            KafkaError: the brokers refuse this client, so that no answer can come. Raised as soon as that is known.
        """
        while True:
            try:
                result = future.result(timeout=LISTEN_S)
            except NotYet:
                if future.done():  # the TimeoutError is the answer, or the answer came just now
                    result = future.result()
                    break
                self._poll()
                verdict = self._watch.verdict()
                if verdict is not None:
                    raise verdict from None
            else:
                break
        self._watch.answered()
        return result
