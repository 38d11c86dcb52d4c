"""KafkaRangeConsumer: a worker's client, which reads planned ranges.

Before a worker yields records, it must know that they are of the planned topic. To save a request for each range, a topic id counts for
about a second (`TopicIdCache`). The worker does not notice a topic that is deleted, created again and filled past the offsets of the old
topic within that time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError
from confluent_kafka.admin import AdminClient

from kstream_kafka.client.connection_watch import ConnectionWatch
from kstream_kafka.client.librdkafka import (
    GROUP_ERRORS,
    LEADER_CHANGING,
    UNKNOWN_TOPIC,
    UNREACHABLE,
    map_error,
    new_client,
    request_topic_ids,
    text_of,
)
from kstream_kafka.client.params import CONSUMER
from kstream_kafka.client.ports import FetchErrorKind, Settings
from kstream_kafka.client.secrets import ClientSecrets
from kstream_kafka.errors import BrokerUnreachableError, KafkaConfigError, KafkaError

logger = logging.getLogger("kstream.kafka")

LEADERS_S = 2.0
"""Timeout in seconds of the request for the leaders of a topic. After a timeout, the client asks again by itself when it fetches."""
TOPIC_IDS_S = 15.0
"""Timeout in seconds of the request for topic ids."""
LOG_RANGE_S = 5.0
"""Timeout in seconds of the request for the ends of a log."""
MAX_AGE_S = 1.0
"""Seconds for which the id of a topic counts, at least."""
AGE_PER_SECOND = 20
"""A slow answer counts for longer: this many times as long as it took. An answer about topics of a thousand partitions takes 100 ms."""


class KafkaRangeConsumer:
    """The RangeConsumer of `client/ports.py` by confluent_kafka, of one partition or of several at a time. Only the task's thread calls it.

    That Protocol says what the methods do; the texts here add what this one does besides.
    """

    def __init__(self, settings: Settings) -> None:
        """Create the consumer. Fetches nothing. With an `oauth_cb` the call blocks for the first token.

        Args:
            settings: complete consumer properties.

        Raises:
            KafkaConfigError: librdkafka refuses a property.
            AuthenticationFailedError: `oauth_cb` returned no token.
        """
        self._secrets = ClientSecrets(settings)
        self._bootstrap = str(settings.get("bootstrap.servers", ""))
        self._known_topics: set[str] = set()
        self._admin: AdminClient | None = None
        self._topic_ids = TopicIdCache(self._request_topic_ids)
        self._begins: Sequence[tuple[str, int, int, int | None]] = ()
        self._connect()

    def _connect(self) -> None:
        """Create the client of confluent_kafka, with the secrets as they were read last. If that fails, the former client stays."""
        watch = ConnectionWatch(self._secrets.values)

        def on_error(error: ClientError) -> None:
            """Note an error of the connections. confluent_kafka calls it in the task's thread, within `consume` and `close`."""
            if error.code() not in GROUP_ERRORS:
                watch.on_error(error.name(), error.str())

        self._consumer = new_client(Consumer, {**self._secrets.values, "error_cb": on_error})
        self._watch = watch
        self._consume: Callable[[int, float], list[Any]] = self._consumer.consume

    def assign(self, begins: Sequence[tuple[str, int, int, int | None]]) -> None:
        """See RangeConsumer. For a topic that this client has not read before, it first asks for the leaders and blocks up to LEADERS_S."""
        self._begins = begins
        self._watch.on_request()
        for topic in self._reading:
            if topic not in self._known_topics:
                self._learn_leaders(topic)
        self._consumer.assign([TopicPartition(t, p, at, leader_epoch=-1 if epoch is None else epoch) for t, p, at, epoch in begins])

    @property
    def _reading(self) -> list[str]:
        """The topics of the assignment, sorted."""
        return sorted({topic for topic, _, _, _ in self._begins})

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        """See RangeConsumer. After connection errors it may block longer, for a diagnosis.

        Raises:
            AuthenticationFailedError: the brokers refuse this client, so no message will come, and there are no newer secrets.
            TlsFailedError: no TLS connection can be made.
        """
        messages = self._consume(num_messages, timeout)
        if self._watch.has_errors or self._secrets.awaits_answer:
            if any(m.error() is None for m in messages):
                self._watch.on_response()
                self._secrets.on_response()
            elif (fatal := self._watch.fatal_error()) is not None:
                self._renew(fatal)
        return messages

    def _renew(self, refusal: KafkaError) -> None:
        """Replace the refused client by one with newer secrets, which goes on where the old one stopped. Raise `refusal` without them."""
        if not self._secrets.renew():
            raise refusal
        stopped = self._consumer.position([TopicPartition(t, p) for t, p, _, _ in self._begins])
        reached = {(at.topic, at.partition): at.offset for at in stopped if at.offset >= 0}
        try:
            self.reconnect()
        except KafkaConfigError:  # a certificate and its key are being replaced, one after the other: the refusal is the better error
            raise refusal from None
        self._secrets.on_replaced()
        logger.warning("a worker's Kafka consumer: it was refused, and is replaced by one with newer secrets: %s", refusal)
        begins: list[tuple[str, int, int, int | None]] = []
        for topic, partition, begin, epoch in self._begins:
            at = max(begin, reached.get((topic, partition), begin))
            begins.append((topic, partition, at, epoch if at == begin else None))  # the epoch belongs to the first offset
        self.assign(begins)

    def reconnect(self) -> None:
        """See RangeConsumer. The new client has the secrets as they were read last.

        Raises:
            KafkaConfigError: librdkafka refuses a property. The former client stays.
            AuthenticationFailedError: `oauth_cb` returned no token. The former client stays.
        """
        former = self._consumer
        self._connect()
        former.close()
        self._admin = None
        self._known_topics.clear()

    def unassign(self) -> None:
        self._consumer.unassign()

    def classify_error(self, error: ClientError) -> FetchErrorKind:
        """See RangeConsumer. A refused authentication is retriable here: `consume` judges the connections, and raises."""
        code = error.code()
        if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
            raise map_error(error, self._bootstrap, "READ", ", ".join(self._reading), "")
        if code == ClientError._PARTITION_EOF:
            return FetchErrorKind.END_OF_PARTITION
        if code in (ClientError._AUTO_OFFSET_RESET, ClientError._LOG_TRUNCATION, ClientError.OFFSET_OUT_OF_RANGE):
            return FetchErrorKind.OUT_OF_RANGE
        if code == ClientError._AUTHENTICATION:  # of a request, after the connection was refused
            return FetchErrorKind.RETRIABLE
        if code in UNREACHABLE | LEADER_CHANGING | UNKNOWN_TOPIC | GROUP_ERRORS or (error.retriable() and not error.fatal()):
            return FetchErrorKind.RETRIABLE
        return FetchErrorKind.FATAL

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """See RangeConsumer. May block up to TOPIC_IDS_S for each of two requests."""
        return self._topic_ids.get(topics, fresh)

    def _request_topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        """Ask the broker for topic ids, with an admin client that the first request creates. KafkaError as `topic_ids`."""
        if self._admin is None:
            self._admin = new_client(AdminClient, {k: v for k, v in self._secrets.values.items() if k not in CONSUMER})
        try:
            return request_topic_ids(self._admin, topics, TOPIC_IDS_S)
        except KafkaException as e:
            reason = text_of(e.args[0])
            if e.args[0].code() in UNREACHABLE:
                raise BrokerUnreachableError(self._bootstrap, round(TOPIC_IDS_S * 1000), reason) from e
            raise KafkaError(f"the ids of the topics {sorted(topics)} could not be read from the brokers: {reason}", reason=reason) from e

    def log_range(self, topic: str, partition: int) -> tuple[int | None, int | None]:
        """See RangeConsumer. Blocks up to LOG_RANGE_S. A leader that does not answer is logged."""
        try:
            return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=LOG_RANGE_S)
        except KafkaException as e:
            logger.warning("%s-%d: the leader did not answer the request for the ends of the log: %s", topic, partition, e)
            return None, None

    def last_error(self) -> str:
        return self._watch.last_error

    def close(self) -> None:
        self._consumer.close()

    def _learn_leaders(self, topic: str) -> None:
        """Request the metadata of a topic, so that the client knows its leaders. It takes about 10 ms and blocks up to LEADERS_S.

        By itself, the client looks for the leaders of a new topic only once a second. No answer is no error: the client asks again when it
        fetches. NotAuthorizedError if it may not see the topic.
        """
        self._known_topics.add(topic)
        try:
            known = self._consumer.list_topics(topic, timeout=LEADERS_S).topics.get(topic)
        except KafkaException as e:
            logger.debug("topic %s: no metadata yet: %s", topic, e)
            return
        if known is not None and known.error is not None and known.error.code() == ClientError.TOPIC_AUTHORIZATION_FAILED:
            raise map_error(known.error, self._bootstrap, "DESCRIBE", topic, "")


class TopicIdCache:
    """Topic ids that are at most about a second old, for a worker that reads many small ranges. Not thread-safe: one thread."""

    def __init__(self, request: Callable[[Collection[str]], Mapping[str, str]], monotonic: Callable[[], float] = time.monotonic) -> None:
        """Create an empty cache.

        Args:
            request: asks the broker for the ids of topics, and blocks. Its answer lacks missing topics.
            monotonic: a clock in seconds.
        """
        self._request = request
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, str | None]] = {}

    def get(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """Return the ids of these topics. If one id is too old, one request asks for all of them, and blocks.

        Args:
            topics: the names of the topics.
            fresh: whether to send a request in any case.

        Returns:
            topic → topic id. Missing topics are left out.
        """
        now = self._monotonic()
        if fresh or any(topic not in self._known or self._known[topic][0] <= now for topic in topics):
            found = self._request(topics)
            answered = self._monotonic()
            until = answered + max(MAX_AGE_S, (answered - now) * AGE_PER_SECOND)
            self._known.update({topic: (until, found.get(topic)) for topic in topics})
        return {topic: topic_id for topic in topics if (topic_id := self._known[topic][1]) is not None}
