"""KafkaOutput: the driver's half of the Kafka sink. The tasks' half is `partition_writer`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any

from kstream.batch import Json
from kstream.batch_time import Time
from kstream.dstream.arguments import check_function
from kstream.dstream.output import Output, OutputBatch, Writer
from kstream.errors import ConfigurationError
from kstream.public_call import refused
from kstream.sinks.receipt import WrittenBatch, lost_partition, to_write
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.client.transaction import Transaction
from kstream_kafka.errors import check_one_of
from kstream_kafka.sink.at_least_once import AtLeastOnceWriter
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter, Written
from kstream_kafka.sink.producer_record import RecordEncoder
from kstream_kafka.sink.receipt import KafkaReceipt, newest_of
from kstream_kafka.sink.receipts import Receipts
from kstream_kafka.sink.receipts_topic import ReceiptsTopic

if TYPE_CHECKING:
    from pyspark import RDD

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
TRANSACTION_MS = 60_000
"""The time-out of a transaction."""
AT_ONCE = 32
"""So many transactional ids are taken at once."""
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_REMEDY = "If that cannot be, give the output another name: it writes the whole batch then, and these partitions a second time"


def kafka_output(
    topic: str | None,
    kafkaParams: Mapping[str, Any],
    *,
    key: Callable[[Any], Any] | None = None,
    value: Callable[[Any], Any] | None = None,
    headers: Callable[[Any], Any] | None = None,
    partition: Callable[[Any], Any] | None = None,
    delivery: str = EXACTLY_ONCE,
    name: str | None = None,
    prefix: str = "kstream",
) -> Output | Callable[[RDD[Any]], None]:
    """Return an output for `foreachRDD` that writes to Kafka. Arguments and errors as for `DStream.saveToKafka`."""
    check_one_of(delivery, (EXACTLY_ONCE, AT_LEAST_ONCE), "delivery")
    for argument, function in (("key", key), ("value", value), ("headers", headers), ("partition", partition)):
        if function is not None:
            check_function("saveToKafka", argument, function)
    if name is None and topic is None:
        raise refused(ValueError("saveToKafka: without a topic the output needs a name: saveToKafka(None, …, name='orders')"))
    name = name if name is not None else f"kafka {topic}"
    if not name or "," in name:
        raise refused(ValueError(f"saveToKafka: name is {name!r}; give some text without commas"))
    if not _PREFIX.fullmatch(prefix):
        raise refused(ValueError(f"saveToKafka: prefix is {prefix!r}; give the beginning of a topic's name, such as kstream"))
    encoder, params = RecordEncoder(name, topic, key, value, headers, partition), KafkaParams.parse(kafkaParams)
    if delivery == EXACTLY_ONCE:
        return KafkaOutput(name, encoder, params, prefix)
    writer = AtLeastOnceWriter(encoder, params.sink())
    return lambda rdd: rdd.foreachPartition(writer)


class KafkaOutput(Output):
    """An output that writes each record to Kafka exactly once. `DStream.saveToKafka` makes one."""

    is_ordered = True
    keeps_layout = True

    def __init__(self, name: str, encoder: RecordEncoder, params: KafkaParams, prefix: str) -> None:
        """
        Args:
            name: the name of the output.
            encoder: makes what is written of a record.
            params: the Kafka parameters.
            prefix: begins the name of the topic of the receipts, and the transactional ids.
        """
        self.name = name
        self._encoder = encoder
        self._params = params
        self._topic = ReceiptsTopic(params, prefix, name)
        self._driver: Writer | None = None
        self._topic_id: str | None = None
        """That of the topic of the receipts; None before anything is written."""
        self._receipts: Receipts | None = None
        """None before this driver has taken over."""
        self._newest: WrittenBatch | None = None
        """The newest batch that is written, as far as the checkpoint and this driver know."""
        self._begins: dict[int, int] = {}
        """partition of the topic → the offset from which on the receipts of the newest batch and of later ones are."""
        self._known: dict[int, KafkaReceipt] = {}
        """partition of the RDD → the receipt of the batch that is being written, of its earlier tries."""
        self._written: dict[Time, int] = {}
        """The number of records of each batch that is written and whose completion is not stored."""

    def worker_functions(self) -> Sequence[Any]:
        encoder = self._encoder
        return [function for function in (encoder.key, encoder.value, encoder.headers, encoder.partition) if function is not None]

    def restore(self, writer: Writer, stored: Json) -> None:
        """See the base class. Kafka is asked when the first batch is written, in its job: there an outage fails only a try."""
        if not writer.job:
            raise ConfigurationError(
                f"output {self.name} needs a checkpoint directory: without it no restart knows which batches have run. Set one "
                "(ssc.checkpoint)",
                key="spark.streaming.checkpoint.directory",
                value=None,
            )
        self._driver, self._receipts = writer, None
        self._written.clear()
        if stored is not None:
            self._topic_id = stored["topicId"]
            self._newest = WrittenBatch(stored["batch"], stored["partitions"])
            self._begins = {int(place): offset for place, offset in stored["receipts"].items()}

    # -- before a batch

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int] | None:
        """Read the receipts, if a try of the batch may have run before. At the first batch, take over from earlier drivers."""
        self._known = {}
        if self._receipts is not None and batch.is_first_try:
            return None
        assert self._driver is not None
        number = rdd.getNumPartitions()
        with closing(TopicReader(self._reading())) as reader:
            if self._receipts is None:
                taken = self._topic.take_over(self._driver, reader, self._topic_id)
                self._receipts, self._topic_id, self._begins = taken.receipts, taken.topic_id, {**taken.begins, **self._begins}
            else:
                self._receipts.check_fence(reader)
            self._fence_tasks(self._receipts, number)
            receipts = self._read(self._receipts, reader)
        wanted = to_write(receipts, batch.time.milliseconds, batch.nonce, number, self._driver.knows, self.name, _REMEDY)
        self._known = {r.partition: r for r in receipts if r.time_ms == batch.time.milliseconds}
        return wanted

    def _fence_tasks(self, receipts: Receipts, number: int) -> None:
        """Take the transactional ids: tasks of earlier tries and drivers end, and what they have not committed is aborted. Blocks."""

        def take(partition: int) -> None:
            transaction = Transaction(self._params.sink(), receipts.transactional_id(partition), TRANSACTION_MS)
            try:
                transaction.open()
            finally:
                transaction.close()

        with ThreadPoolExecutor(AT_ONCE, "KafkaTransaction") as threads:
            list(threads.map(take, range(number)))

    def _read(self, receipts: Receipts, reader: TopicReader) -> list[KafkaReceipt]:
        """Return the last receipt of each partition. ReceiptsLostError if one of the newest written batch is not there. Blocks."""
        found = newest_of([receipt for receipt, _ in receipts.read(reader, self._begins)])
        lost = lost_partition(found, self._newest)
        if self._newest is not None and lost is not None:
            raise self._topic.lost(f"batch {self._newest.time_ms} ms was written, and there is no receipt of its partition {lost}")
        return found

    # -- the batch

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> None:
        assert self._receipts is not None
        number = rdd.getNumPartitions()
        chosen = range(number) if partitions is None else partitions
        missing = [partition for partition in range(number) if partition not in self._known]
        writer = KafkaPartitionWriter(
            receipts=self._receipts,
            encoder=self._encoder,
            producer=self._params.sink(),
            consumer=self._reading(),
            time_ms=batch.time.milliseconds,
            nonce=batch.nonce,
            num_partitions=number,
            begins=self._begins,
            timeout_ms=TRANSACTION_MS,
            wanted=frozenset(missing) if self._known else None,
            is_first_try=batch.is_first_try and _is_narrow(rdd),
        )
        written: Iterable[Written | None] = rdd.context.runJob(rdd.mapPartitionsWithIndex(writer), list, chosen) if chosen else ()
        records = sum(receipt.num_records for receipt in self._known.values())
        self._note(self._receipts, batch.time, number, dict(zip(chosen, written, strict=True)), records)

    def _note(self, receipts: Receipts, time: Time, number: int, written: Mapping[int, Written | None], records: int) -> None:
        """Note that a batch is written."""
        records += sum(one.digest.records for one in written.values() if one is not None)
        if number and (self._newest is None or self._newest.time_ms < time.milliseconds):
            self._newest = WrittenBatch(time.milliseconds, number)
            if not self._known:
                first: dict[int, int] = {}
                for partition, one in written.items():
                    if one is not None:
                        place = receipts.place(partition)
                        first[place] = min(one.offset, first.get(place, one.offset))
                self._begins = {**self._begins, **first}
        self._written[time] = records

    def outcome(self, time: Time) -> Json:
        newest = self._newest
        if newest is None:
            return None
        return {
            "batch": newest.time_ms,
            "partitions": newest.num_partitions,
            "records": self._written.get(time, 0),
            "receipts": {str(place): offset for place, offset in sorted(self._begins.items())},
            "topicId": self._topic_id,
        }

    def committed(self, time: Time) -> None:
        self._written.pop(time, None)

    def _reading(self) -> Mapping[str, Any]:
        return small(self._params.executor())


def _is_narrow(rdd: Any) -> bool:
    """Return whether no shuffle is behind an RDD. Only then a task whose attempt is the first is the first."""
    return rdd._jrdd.rdd().outputDeterministicLevel().toString() == "DETERMINATE"
