"""KafkaUnboundedLog: the records of partitions as they come, by one consumer, without an end.

A record is handed out as soon as it is there: a poll waits for the first one only. What the log does not have any more is an error. Nothing
is passed over but the offsets that no reader gets: control records, and records of aborted transactions.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from kstream.continuous.ports import Chunk
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.worker.current_record import between_chunks, note_decoding
from kstream_kafka.client.params import KafkaParams, continuous
from kstream_kafka.client.ports import RangeConsumer
from kstream_kafka.errors import KafkaError, LogTruncatedError, RecordsRemovedError, TopicRecreatedError
from kstream_kafka.reader.decoding import Decoding
from kstream_kafka.reader.position_reader import PositionReader
from kstream_kafka.reader.tolerant_decoding import record_of

SLICE = 500
"""The most records that are taken from the client at once."""
MOST_BYTES = 4_000_000
"""A poll that has so many bytes takes no further slice."""


def open_log(params: KafkaParams, decoding: Decoding, topic_ids: Mapping[str, str]) -> KafkaUnboundedLog:
    """Create a log with a consumer of its own. Sends no request. In a worker. Arguments as those of KafkaUnboundedLog.

    Raises:
        KafkaConfigError: librdkafka refuses a property.
    """
    from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # imported late: only a task needs librdkafka

    return KafkaUnboundedLog(KafkaRangeConsumer(continuous(params.executor())), decoding, topic_ids)


class KafkaUnboundedLog:
    """An UnboundedLog of Kafka. In a worker; one thread. A user's decoder that fails is told its record by `current_record`."""

    def __init__(
        self,
        consumer: RangeConsumer,
        decoding: Decoding,
        topic_ids: Mapping[str, str],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            consumer: a consumer without an assignment, which tells the ends of partitions. `close` closes it.
            decoding: makes the records of a chunk from its messages.
            topic_ids: topic → the id under which its positions were reached; topics without one are not checked.
            monotonic: a clock in seconds.
        """
        self._consumer = consumer
        self._decoding = decoding
        self._topic_ids = topic_ids
        self._reader = PositionReader(consumer, monotonic)

    def assign(self, positions: Mapping[Partition, int]) -> None:
        """Read only these partitions from now on, each from its position. May block on the brokers.

        Raises:
            TopicRecreatedError: a topic was deleted and made anew, so that its positions mean nothing.
            KafkaError: the brokers refuse this client, or do not tell the id of a topic.
        """
        self._check_topics(positions)
        self._reader.assign(positions)

    def poll(self, wait_s: float) -> Sequence[Chunk]:
        """Return a chunk for each partition that has moved; wait for so many seconds at most for the first record.

        Raises:
            DataLossError: a log does not have its position any more, or its topic was made anew.
            KafkaError: a partition cannot be read any more, or the brokers refuse this client.
            Exception: the error of a user's decoder.
        """
        begins, was_troubled = dict(self._reader.positions), bool(self._reader.trouble)
        messages, gone = self._taken(wait_s)
        if gone:
            raise self._lost(gone[0], begins)
        if messages and was_troubled:
            self._check_topics(begins)
        by_partition: dict[Partition, list[Any]] = {where: [] for where, at in self._reader.positions.items() if at > begins[where]}
        for message in messages:
            by_partition[message.topic(), message.partition()].append(message)
        return [self._chunk(where, records) for where, records in by_partition.items()]

    def close(self) -> None:
        self._consumer.close()

    def _taken(self, wait_s: float) -> tuple[list[Any], list[Partition]]:
        """Return the messages that are there, and the partitions whose position lies outside of the log."""
        polled = self._reader.poll(1, wait_s)
        messages, gone, num_bytes = polled.messages, polled.out_of_range, _num_bytes(polled.messages)
        while num_bytes < MOST_BYTES:
            polled = self._reader.poll(SLICE, 0.0)
            gone += polled.out_of_range
            if not polled.messages:
                break
            messages, num_bytes = messages + polled.messages, num_bytes + _num_bytes(polled.messages)
        return messages, gone

    def _chunk(self, where: Partition, messages: list[Any]) -> Chunk:
        return Chunk(where, self._decoded(where, messages), self._reader.positions[where], _num_bytes(messages), _newest_ms(messages))

    def _decoded(self, where: Partition, messages: list[Any]) -> list[Any]:
        if not messages:
            return []
        decode = self._decoding.of_chunk(OffsetRange(*where, messages[0].offset(), self._reader.positions[where]))
        try:
            return decode(messages)
        except Exception:
            pass  # the error of a message must not have this one as its context
        return list(self._one_by_one(decode, messages))

    def _one_by_one(self, decode: Callable[[list[Any]], list[Any]], messages: list[Any]) -> Iterator[Any]:
        """Decode message after message, so that the current record is the one that fails."""
        for position, message in enumerate(messages):
            note_decoding(position, partial(record_of, messages))
            yield from decode([message])
        between_chunks()

    def _check_topics(self, positions: Mapping[Partition, int]) -> None:
        """Compare the ids of the topics with those of the positions. Blocks. A topic without an id is in an election, and passes."""
        topics = {topic for topic, _ in positions} & self._topic_ids.keys()
        if not topics:
            return
        for topic, found in self._consumer.topic_ids(topics, fresh=True).items():
            if found != (known := self._topic_ids[topic]):
                ranges = [(partition, at, at) for (name, partition), at in sorted(positions.items()) if name == topic]
                raise TopicRecreatedError(topic, known, found, ranges)

    def _lost(self, where: Partition, begins: Mapping[Partition, int]) -> KafkaError:
        """Return the error for a position that the log does not have. Blocks for the ends of the log, which say what has happened."""
        self._check_topics(begins)
        at = self._reader.positions[where]
        earliest, latest = self._reader.log_range(where)
        if earliest is not None and at < earliest:
            return RecordsRemovedError((*where, at, earliest), at, earliest, latest)
        if latest is not None and at > latest:
            return LogTruncatedError((*where, latest, at), (latest, at), latest, f"offset {at} is past the log's end {latest}")
        reason = f"the log was cut below offset {at} and written again (it is [{earliest}, {latest}) now)"
        return LogTruncatedError((*where, at, at), (at, at), at, reason)


def _num_bytes(messages: Collection[Any]) -> int:
    """Return the bytes of keys and values of messages."""
    return sum(len(message.key() or b"") + len(message.value() or b"") for message in messages)


def _newest_ms(messages: Collection[Any]) -> int | None:
    return max((at_ms for kind, at_ms in (message.timestamp() for message in messages) if kind), default=None)
