"""EarlierLetters: the dead letters that earlier drivers have stored of batches that run again.

Only the dead-letter topic knows them: the driver that has read the reports of their tasks is gone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator

from kstream.batch_time import Time
from kstream.offsets.offset_range import OffsetRange
from kstream.offsets.read_report import ReadReport
from kstream.worker.record_errors import StoredLetters
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.ports import DriverClient, RangeConsumer
from kstream_kafka.errors import KafkaError
from kstream_kafka.planning.dead_letter import DeadLetter, dead_letter_of
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.reader.headers import headers_of
from kstream_kafka.reader.range_reader import read_splits

logger = logging.getLogger("kstream.kafka")
CLOCKS_MS = 600_000
"""A letter has the time of its worker. It may be by so much earlier than the batch time, which is the driver's."""
WAIT_MS = 15_000
"""How long to wait for the next letter, in ms."""


class EarlierLetters:
    """Looks once for the dead letters of earlier drivers. Any thread."""

    def __init__(self, make_client: Callable[[], DriverClient], make_consumer: Callable[[], RangeConsumer]) -> None:
        """Note how the clients are made, which `find` closes. Sends no request."""
        self._make_client = make_client
        self._make_consumer = make_consumer
        self._lock = threading.Lock()
        self._has_looked = False

    def find(self, topic: str, application: str, since: Time, until: Time) -> dict[int, StoredLetters]:
        """Read the letters that the topic has of a span of batches. Calls after the one that has read them return nothing.

        Blocks on the brokers. If they cannot be read, the log has a warning: letters may be written again then. If that may pass, the next
        call tries it again.

        Args:
            topic: the dead-letter topic.
            application: the name of the Spark application. Letters of others are left out.
            since: the oldest batch that runs again.
            until: the newest batch of earlier drivers.

        Returns:
            Batch time in ms → its letters.
        """
        with self._lock:
            if self._has_looked:
                return {}
            found: dict[int, StoredLetters] = {}
            try:
                for dead in self._letters_since(topic, since.milliseconds - CLOCKS_MS):
                    time_ms, offset = dead.batch_ms, dead.offset
                    if dead.application != application or time_ms is None or offset is None:
                        continue
                    if since.milliseconds <= time_ms <= until.milliseconds:
                        origin = dead.topic, dead.partition, dead.operator
                        found.setdefault(time_ms, {}).setdefault(origin, set()).add(offset)
                self._has_looked = True
            except KafkaError as e:
                self._has_looked = not e.retriable
                logger.warning("the dead letters in %s since batch %s cannot be read, so some may be written again: %s", topic, since, e)
            return found

    def _letters_since(self, topic: str, since_ms: int) -> Iterator[DeadLetter]:
        """Yield the dead letters that a topic has now, from a time on. Lost ones are passed over. Blocks on the brokers."""
        client = self._make_client()
        try:
            partitions = client.partitions(Topics((topic,)))
            (begins,) = client.at_times([since_ms], partitions)
            ends = client.latest(partitions)
        finally:
            client.close()
        ranges = [OffsetRange(*p, begin, ends[p].offset) for p, begin in sorted(begins.items()) if begin is not None]
        if not any(r.count() for r in ranges):
            return
        consumer = self._make_consumer()
        try:
            for found in ranges:
                for _, messages in read_splits(consumer, (RangeSplit(found),), WAIT_MS, report=ReadReport(tolerate_loss=True)):
                    yield from (dead for message in messages if (dead := _dead_letter(message)) is not None)
        finally:
            consumer.close()


def _dead_letter(message: object) -> DeadLetter | None:
    """Return the dead letter that a message is; None if it is none, or if the client cannot read its headers."""
    try:
        return dead_letter_of(headers_of([message])[0])
    except ValueError:
        return None


def range_consumer(params: KafkaParams) -> RangeConsumer:
    """Create a consumer for the letters. Blocks for secrets and the first token."""
    from kstream_kafka.reader.range_consumer import KafkaRangeConsumer  # imported late: to build a graph needs no librdkafka

    return KafkaRangeConsumer(small(params.executor()))
