"""KafkaRangeConsumer: a worker's client, which reads planned ranges.

FreshTopicIds: topic ids that are at most about a second old, for a worker that reads many small ranges.

A worker must know that the records it has fetched are of the topic that was planned, before it gives them out. To ask for each range
would be a request per partition; so what was learnt a moment ago still counts. A topic that is deleted, made anew and filled past the
offsets of the old one within that moment would be read unseen.
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
from kstream_kafka.client.librdkafka import AWAY, MOVING, NOT_OURS, UNKNOWN, ask_topic_ids, made, refused
from kstream_kafka.client.params import CONSUMER
from kstream_kafka.client.ports import Settings, Trouble
from kstream_kafka.client.redaction import hidden
from kstream_kafka.errors import KafkaError

logger = logging.getLogger("kstream.kafka")

LEADERS_S = 2.0
"""How long a worker waits to learn the leaders of a topic before it starts to fetch, which asks again by itself."""

ID_TIMEOUT_S = 15.0
"""How long a worker waits to be told the ids of topics."""


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
        self._consumer = made(Consumer, {**settings, "error_cb": self._on_error})
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
            raise refused(error, self._bootstrap, "READ", ", ".join(self._reading), "")
        if code == ClientError._PARTITION_EOF:
            return Trouble.END_OF_PARTITION
        if code in (ClientError._AUTO_OFFSET_RESET, ClientError._LOG_TRUNCATION, ClientError.OFFSET_OUT_OF_RANGE):
            return Trouble.OUT_OF_RANGE
        if code in AWAY | MOVING | UNKNOWN | NOT_OURS or (error.retriable() and not error.fatal()):
            return Trouble.PASSING
        return Trouble.FATAL

    def topic_ids(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """The ids of these topics, as `DriverClient.topic_ids`; of the last second or so unless `fresh`. Blocks up to ID_TIMEOUT_S."""
        return self._topic_ids.get(topics, fresh)

    def _ask_topic_ids(self, topics: Collection[str]) -> dict[str, str]:
        if self._admin is None:
            self._admin = made(AdminClient, {k: v for k, v in self._settings.items() if k not in CONSUMER})
        try:
            return ask_topic_ids(self._admin, topics, ID_TIMEOUT_S)
        except KafkaException as e:
            reason = hidden(e.args[0].str())
            raise KafkaError(f"the ids of the topics {sorted(topics)} could not be asked for: {reason}", reason=reason) from e

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
            raise refused(known.error, self._bootstrap, "DESCRIBE", topic, "")

    def _on_error(self, error: ClientError) -> None:
        if error.code() not in NOT_OURS:
            self._watch.heard(error.name(), error.str())


MAX_AGE_S = 1.0
SHARE = 20
"""An answer about topics of a thousand partitions takes 100 ms: it counts for SHARE times as long as it took, if that is more."""

Ask = Callable[[Collection[str]], Mapping[str, str]]


class FreshTopicIds:
    """`ask` blocks on the broker and leaves out topics that are not there. One thread."""

    def __init__(self, ask: Ask, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._ask = ask
        self._monotonic = monotonic
        self._known: dict[str, tuple[float, str | None]] = {}

    def get(self, topics: Collection[str], fresh: bool = False) -> dict[str, str]:
        """The ids of these topics, all of one question; `fresh`: of just now."""
        now = self._monotonic()
        if fresh or any(topic not in self._known or self._known[topic][0] <= now for topic in topics):
            found = self._ask(topics)
            answered = self._monotonic()
            until = answered + max(MAX_AGE_S, (answered - now) * SHARE)
            self._known.update({topic: (until, found.get(topic)) for topic in topics})
        return {topic: number for topic in topics if (number := self._known[topic][1]) is not None}
