"""TopicReader: the committed records of a topic from given offsets up to its end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition
from confluent_kafka import KafkaError as ClientError

from kstream_kafka.client.librdkafka import GROUP_ERRORS, LEADER_CHANGING, UNREACHABLE, LastClientError, map_error, new_client, text_of
from kstream_kafka.client.ports import Settings
from kstream_kafka.client.redaction import Properties
from kstream_kafka.errors import BrokerUnreachableError, KafkaError

LEADERS_S = 2.0
"""Timeout in seconds of the request for the leaders of a topic."""
CHUNK = 1_000
SLICE_S = 0.1


class ReadLog(NamedTuple):
    """What was read: the messages, in the order of each partition; and partition → the offset up to which all messages are there."""

    messages: list[Any]
    ends: dict[int, int]


class TopicReader:
    """Reads partitions of topics up to their ends. Keeps its consumer. Any thread; one read at a time."""

    def __init__(self, settings: Settings) -> None:
        """
        Args:
            settings: complete consumer properties. `isolation.level` is read_committed whatever they say.
        """
        self._bootstrap = str(settings.get("bootstrap.servers", ""))
        self._last_error = LastClientError()
        self._known: set[str] = set()
        self._reading = threading.Lock()
        own = {"isolation.level": "read_committed", "enable.partition.eof": "true", "error_cb": self._last_error.note}
        self._consumer: Any = new_client(Consumer, Properties({**settings, **own}))

    def read(
        self,
        topic: str,
        begins: Mapping[int, int],
        seconds: float,
        wants: Callable[[bytes | None], bool] = lambda _key: True,
        until: Mapping[int, int] | None = None,
        waits: bool = True,
        least: Mapping[int, int] | None = None,
    ) -> ReadLog:
        """Return the committed records from these offsets up to the ends that the logs have after this call. Blocks.

        A transaction that is open in a partition holds up the read until it ends.

        Args:
            topic: the topic.
            begins: partition → offset.
            seconds: how long to wait.
            wants: wants(key) returns whether a record is to be returned.
            until: partition → offset: the read ends there at the latest. Without one it ends at the high watermark of the first answer.
            waits: False ends the read at an open transaction.
            least: partition → an offset that is there. An answer whose high watermark is below it is old, and does not end the read.

        Raises:
            BrokerUnreachableError: the ends were not reached in time.
            KafkaError: the log of a partition begins after the offset, or ends before it; or the brokers refuse this client.
        """
        with self._reading:
            self._learn_leaders(topic)
            self._consumer.assign([TopicPartition(topic, partition, begin) for partition, begin in begins.items()])
            try:
                return self._drained(topic, begins, seconds, wants, dict(until or {}), waits, least or {})
            finally:
                self._consumer.unassign()

    def end(self, topic: str, partition: int, seconds: float) -> int | None:
        """Return the end of a partition's log, as its leader tells it; None if it does not answer. One request; blocks."""
        with self._reading:
            try:
                return self._consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=seconds)[1]
            except KafkaException as e:
                self._last_error.note(e.args[0])
                return None

    def close(self) -> None:
        self._consumer.close()

    def _drained(
        self,
        topic: str,
        begins: Mapping[int, int],
        seconds: float,
        wants: Callable[[bytes | None], bool],
        targets: dict[int, int],
        waits: bool,
        least: Mapping[int, int],
    ) -> ReadLog:
        """Return what is there, up to `targets`. For a partition without one it is the high watermark of the first answer, or `least`.

        The event at the end of a partition has the offset behind the last control record. With an open transaction it comes below the
        high watermark.
        """
        found = ReadLog([], dict(begins))
        left, deadline = set(begins), time.monotonic() + seconds
        while left:
            if time.monotonic() > deadline:
                raise BrokerUnreachableError(self._bootstrap, round(seconds * 1000), self._unread(topic, left))
            for message in self._next():
                partition, at, error = message.partition(), message.offset(), message.error()
                if error is None:
                    if wants(message.key()) and (partition not in targets or at < targets[partition]):
                        found.messages.append(message)
                    at += 1
                elif error.code() != ClientError._PARTITION_EOF:
                    self._on_event(error, topic)
                    continue
                if partition not in targets:
                    watermark = self._consumer.get_watermark_offsets(TopicPartition(topic, partition), cached=True)[1]
                    targets[partition] = max(watermark, least.get(partition, 0))
                found.ends[partition] = max(found.ends[partition], min(at, targets[partition]))
                if at >= targets[partition] or (error is not None and not waits):
                    left.discard(partition)
        return found

    def _next(self) -> list[Any]:
        """Return the messages that are there. If there are none, wait `SLICE_S` for the first one."""
        first = self._consumer.consume(1, SLICE_S)
        return [*first, *self._consumer.consume(CHUNK, 0)] if first else []  # a call with a time-out waits until its chunk is full

    def _unread(self, topic: str, left: set[int]) -> str:
        reason = self._last_error.text or "a transaction may be open there"
        return f"{topic} could not be read to its end, in partitions {sorted(left)}; {reason}"

    def _on_event(self, error: ClientError, topic: str) -> None:
        """Note an error after which the client goes on; raise a KafkaError for another one."""
        if error.code() in UNREACHABLE | LEADER_CHANGING | GROUP_ERRORS or (error.retriable() and not error.fatal()):
            self._last_error.note(error)
            return
        if error.code() in (ClientError._AUTO_OFFSET_RESET, ClientError.OFFSET_OUT_OF_RANGE, ClientError._LOG_TRUNCATION):
            reason = text_of(error)
            raise KafkaError(f"{topic}: an offset that was there is gone: {reason}", reason=reason)
        raise map_error(error, self._bootstrap, "READ", topic, "")

    def _learn_leaders(self, topic: str) -> None:
        """Ask for the leaders of a topic at its first read: by itself the client looks for them only once a second."""
        if topic not in self._known:
            try:
                self._consumer.list_topics(topic, timeout=LEADERS_S)
                self._known.add(topic)
            except KafkaException as e:
                self._last_error.note(e.args[0])
