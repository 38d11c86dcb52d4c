"""AtLeastOnceWriter: writes the partitions of a batch by an idempotent producer. A task that runs again writes its records again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.worker.process import begin_task, drop, once
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.sink.producer_record import Encoded

if TYPE_CHECKING:
    from kstream_kafka.client.record_sending import IdempotentProducer


@dataclass(frozen=True)
class AtLeastOnceWriter:
    """Writes partitions. Pickled into the tasks. The producer of a process is kept for its next tasks.

    Attributes:
        producer: complete producer properties.
    """

    producer: Mapping[str, Any]

    def __call__(self, records: Iterable[Encoded]) -> None:
        """Write a partition of encoded records. Blocks until all of it is stored. KafkaError if a record is not."""
        begin_task()
        key = ("sink", settings_key(self.producer))
        producer = once(key, self._made)
        try:
            producer.send_all(records)
            producer.flush()
        except BaseException:
            drop(key)  # records of this task may be in its queue
            raise

    def _made(self) -> IdempotentProducer:
        from kstream_kafka.client.record_sending import IdempotentProducer  # imported late: only a task needs librdkafka

        return IdempotentProducer(self.producer)
