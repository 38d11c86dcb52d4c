"""KafkaHandOver: takes the transactional ids of tasks, and reads the receipts of partitions. In the driver.

A read of receipts must have all that were committed before it. A broker that was away may answer with an old end of the log. So the read
writes a marker to each partition of the topic that it needs, and goes on up to that: no old answer has it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable
from contextlib import closing, suppress

from kstream.continuous.ports import EpochReceipt
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.record_producer import RecordProducer, store
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.continuous.epoch_receipt import decode_epoch_receipt, input_partition_of, is_epoch, marker_key
from kstream_kafka.continuous.epoch_writer import EpochPlace
from kstream_kafka.sink.broker_probe import check_is_broker, check_transactions
from kstream_kafka.sink.receipt import FENCES
from kstream_kafka.sink.receipts import READ_S, where
from kstream_kafka.sink.receipts_topic import ReceiptsTopic
from kstream_kafka.sink.transactional_ids import take_ids


class KafkaHandOver:
    """A HandOver of Kafka. In the driver; any thread. All methods block on the brokers."""

    def __init__(self, params: KafkaParams, prefix: str, job: str, output: str, known_id: str | None = None) -> None:
        """Sends nothing.

        Args:
            params: the Kafka parameters.
            prefix: begins the name of the topic, and the transactional ids.
            job: identifies the job.
            output: the name of the output.
            known_id: the id of the topic, once an epoch may have been written; None before.
        """
        self._params = params
        self._prefix = prefix
        self._job = job
        self._output = output
        self._topic = ReceiptsTopic(params, prefix, output)
        self._topic_id = known_id
        self._using = threading.Lock()
        self._place: EpochPlace | None = None
        self._reader: TopicReader | None = None
        self._producer: RecordProducer | None = None
        self._found: dict[Partition, EpochReceipt] = {}
        self._read: dict[int, int] = {}
        """partition of the topic → the offset before which all receipts are in `_found`."""

    @property
    def topic_id(self) -> str | None:
        """The id of the topic of the receipts, once `place` has returned. A checkpoint that keeps it notices when the receipts are gone."""
        return self._topic_id

    def place(self) -> EpochPlace:
        """Return where the epochs have their receipts. The first call makes the topic if there is none, and checks it.

        Raises:
            ReceiptsLostError: the topic is not the one that is known.
            KafkaConfigError: the brokers do not keep what transactions promise, or the topic cannot have receipts.
            KafkaError: the brokers do not answer, or refuse this client.
        """
        with self._using:
            return self._opened()

    def fence(self, tasks: Collection[int]) -> None:
        """Take the transactional ids of these tasks: whatever runs under them can commit nothing more. Errors as `place`."""
        place = self.place()
        take_ids(self._params, [place.transactional_id(task) for task in sorted(tasks)], place.topic)

    def receipts(self, partitions: Collection[Partition]) -> dict[Partition, EpochReceipt]:
        """Return the newest receipt of each of these partitions that has one: those that were committed before this call.

        A transaction that another task has open there holds up the read until it ends.

        Raises:
            ReceiptsLostError: the topic was deleted or made anew.
            CorruptRecordError: a receipt is of another version.
            KafkaError: as `place`; or the topic could not be read in time.
        """
        with self._using:
            place = self._opened()
            try:
                self._read_on(place, {place.place(partition) for partition in partitions})
            except BaseException:
                self._close_clients()
                raise
            return {partition: self._found[partition] for partition in partitions if partition in self._found}

    def close(self) -> None:
        with self._using:
            self._close_clients()

    def _opened(self) -> EpochPlace:
        if self._place is None:
            with closing(KafkaDriverClient(self._params)) as client:
                check_is_broker(client)
                is_new = self._topic_id is None
                self._topic_id, numbers = self._topic.found(client, self._topic_id)
            if is_new:
                identity = f"{self._prefix}-{self._job}-{self._output}-probe"
                check_transactions(self._params, self._its_reader(), self._topic.name, FENCES, identity, READ_S)
            self._place = EpochPlace(self._topic.name, len(numbers), self._prefix, self._job, self._output)
        return self._place

    def _read_on(self, place: EpochPlace, numbers: set[int]) -> None:
        """Read these partitions of the topic up to markers that are written now."""
        if not numbers:
            return
        marked = self._marked(place, numbers)
        if any(marked[number] < self._read.get(number, 0) for number in numbers):
            raise self._topic.lost(f"topic {place.topic} was deleted and made anew")
        begins = {**self._earliest(numbers - self._read.keys()), **{n: self._read[n] for n in numbers if n in self._read}}
        until = {number: offset + 1 for number, offset in marked.items()}
        seconds = READ_S + self._params.transaction_ms / 1000
        log = self._its_reader().read(place.topic, begins, seconds, lambda key: is_epoch(key, self._job, self._output), until)
        for message in log.messages:
            partition, value = input_partition_of(message.key(), self._job, self._output), message.value()
            if partition is not None and value is not None:
                receipt = decode_epoch_receipt(value, where(message))
                self._found[partition] = EpochReceipt(receipt.position, receipt.generation)
        self._read.update(until)

    def _marked(self, place: EpochPlace, numbers: Collection[int]) -> dict[int, int]:
        """Write a marker to partitions of the topic. Return partition → the offset of the marker."""
        if self._producer is None:  # an idempotent producer waits half a second for its id; a marker may be there twice
            self._producer = RecordProducer({**self._params.producer(), "enable.idempotence": "false", "linger.ms": 0})
        words = f"output {self._output}: no marker could be written to the topic of its receipts"
        return store(self._producer, place.topic, marker_key(self._job, self._output), b"", numbers, words)

    def _earliest(self, numbers: Iterable[int]) -> dict[int, int]:
        """Return partition of the topic → the first offset of its log."""
        asked = [(self._topic.name, number) for number in numbers]
        if not asked:
            return {}
        with closing(KafkaDriverClient(self._params)) as client:
            return {number: end.offset for (_, number), end in client.earliest(asked).items()}

    def _its_reader(self) -> TopicReader:
        if self._reader is None:
            self._reader = TopicReader(small(self._params.from_leaders()))
        return self._reader

    def _close_clients(self) -> None:
        reader, self._reader, self._producer = self._reader, None, None
        if reader is not None:
            with suppress(Exception):
                reader.close()
