"""KafkaOutput: the driver's half of the Kafka sink. The tasks' half is `partition_writer`."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kstream.batch import Json, OutputFigures
from kstream.batch.figures import together
from kstream.batch_time import Time
from kstream.dstream.arguments import check_function
from kstream.errors import ConfigurationError
from kstream.output import Output, OutputBatch, Writer
from kstream.public_call import refused
from kstream.sinks.exactly_once import ExactlyOnceOutput
from kstream.sinks.receipt import WrittenBatch, changed, check_is_of_checkpoint, lost_partition, to_write
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.client.transaction import check_properties
from kstream_kafka.errors import check_one_of
from kstream_kafka.schemas.registry_codec import secrets_in
from kstream_kafka.sink.at_least_once import AtLeastOnceWriter
from kstream_kafka.sink.audit import AuditEntry, beginning
from kstream_kafka.sink.audit_topic import AuditTopic, input_ranges
from kstream_kafka.sink.comparison import Recomputation, Recomputed, difference, is_one_to_one
from kstream_kafka.sink.partition_writer import KafkaPartitionWriter
from kstream_kafka.sink.producer_record import RecordEncoder
from kstream_kafka.sink.receipt import FENCES, GivenUp, KafkaReceipt, sum_of
from kstream_kafka.sink.receipts import READ_S, FoundReceipt, FoundReceipts, Receipts
from kstream_kafka.sink.receipts_topic import ReceiptsTopic
from kstream_kafka.sink.transactional_ids import take_ids

if TYPE_CHECKING:
    from pyspark import RDD

logger = logging.getLogger("kstream.kafka")

EXACTLY_ONCE, AT_LEAST_ONCE = "exactly-once", "at-least-once"
FAIL, KEEP = "fail", "keep"
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,200}")
_CHANGED = (
    "So its records may be divided otherwise, and some would be lost or be there twice. Start the job with the code that it had, until "
    "this batch has ended. Or keep what is written, and write the other partitions as they are now: kstream sink accept, or "
    "saveToKafka(…, outputChanged='keep')"
)
_REMEDY = "If that cannot be, give the output another name: it writes the whole batch then, and these partitions a second time"


def kafka_output(
    topic: str | None,
    kafkaParams: Mapping[str, Any],
    functions: Mapping[str, Callable[[Any], Any] | None],
    delivery: str,
    name: str | None,
    prefix: str,
    outputChanged: str,
    audit: bool,
) -> tuple[RecordEncoder, Output | Callable[[Time, RDD[Any]], None], Sequence[str]]:
    """Return the parts of `DStream.saveToKafka`. A hook of the core.

    Args:
        topic, kafkaParams, delivery, name, prefix, outputChanged, audit: as for `DStream.saveToKafka`.
        functions: its arguments `key`, `value`, `headers` and `partition`, by name.

    Returns:
        What encodes a record; the output that writes encoded records; the names of the parameters that may hold a secret.

    Raises:
        TypeError, ValueError, KafkaConfigError: as `DStream.saveToKafka`.
    """
    encoder, target = encoder_and_target(topic, kafkaParams, functions, delivery, name, prefix, outputChanged, audit)
    params = target.params
    secrets = [*params.not_storable(), *secrets_in(functions.values())]
    if target.is_exactly_once:
        return encoder, target.output(), secrets
    writer = AtLeastOnceWriter(params.sink())
    return encoder, lambda _time, rdd: rdd.foreachPartition(writer), secrets


def encoder_and_target(
    topic: str | None,
    kafkaParams: Mapping[str, Any],
    functions: Mapping[str, Callable[[Any], Any] | None],
    delivery: str,
    name: str | None,
    prefix: str,
    outputChanged: str,
    audit: bool,
) -> tuple[RecordEncoder, KafkaTarget]:
    """Check the arguments of a call of `saveToKafka`. Return what encodes a record, and what is written. Errors as its own."""
    for argument, function in functions.items():
        if function is not None:
            check_function("saveToKafka", argument, function)
    if name is None and topic is None:
        raise refused(ValueError("saveToKafka: without a topic the output needs a name: saveToKafka(None, …, name='orders')"))
    name = name if name is not None else f"kafka {topic}"
    target = KafkaTarget.of("saveToKafka", name, topic, kafkaParams, delivery, prefix, outputChanged, audit)
    return RecordEncoder(name, topic, **functions, most_bytes=target.params.max_record_bytes), target


@dataclass(frozen=True, slots=True)
class KafkaTarget:
    """What an output is to write, and how.

    Attributes:
        name: the name of the output.
        topic: the topic that is written; None if each record names its own.
        params: the Kafka parameters.
        is_exactly_once: whether it leaves receipts.
        prefix, keeps, audit: as for `KafkaOutput`.
    """

    name: str
    topic: str | None
    params: KafkaParams
    is_exactly_once: bool
    prefix: str
    keeps: bool
    audit: bool

    @staticmethod
    def of(
        call: str,
        name: str,
        topic: str | None,
        kafkaParams: Mapping[str, Any],
        delivery: str,
        prefix: str,
        outputChanged: str,
        audit: bool,
    ) -> KafkaTarget:
        """Check the arguments of a call. Sends no request.

        Args:
            call: the name of the public function, for messages.
            name, topic, kafkaParams, delivery, prefix, outputChanged, audit: as for `DStream.saveToKafka`.

        Raises:
            TypeError, ValueError, KafkaConfigError: as `DStream.saveToKafka`.
        """
        check_one_of(delivery, (EXACTLY_ONCE, AT_LEAST_ONCE), "delivery")
        check_one_of(outputChanged, (FAIL, KEEP), "outputChanged")
        if not name or "," in name:
            raise refused(ValueError(f"{call}: name is {name!r}; give some text without commas"))
        if not _PREFIX.fullmatch(prefix):
            raise refused(ValueError(f"{call}: prefix is {prefix!r}; give the beginning of a topic's name, such as kstream"))
        params = KafkaParams.parse(kafkaParams)
        check_properties(params.sink(), params.transaction_ms)
        return KafkaTarget(name, topic, params, delivery == EXACTLY_ONCE, prefix, outputChanged == KEEP, audit)

    def output(self) -> KafkaOutput:
        """Return what writes exactly once."""
        return KafkaOutput(self.name, self.params, self.prefix, self.topic, keeps=self.keeps, audit=self.audit)


@dataclass(frozen=True, slots=True)
class _Begun:
    """What the driver has found before a try of a batch.

    Attributes:
        receipts: where receipts are.
        known: partition of the RDD → the receipt that an earlier try has written.
        wanted: the partitions that are to be written; None for all.
        keeps: whether what is written stands, whatever the batch has now.
        kept: the partitions whose records may have moved since they were written; None if they were not compared.
        is_past: whether a later batch is written, too. Then all of this one is.
    """

    receipts: Receipts
    known: Mapping[int, FoundReceipt]
    wanted: Sequence[int] | None
    keeps: bool = False
    kept: Sequence[int] | None = None
    is_past: bool = False

    @property
    def hashing(self) -> int | None:
        """That of the receipts; None without any."""
        return next((one.receipt.hashing for one in self.known.values()), None)


def figures_of(partitions: Iterable[OutputFigures]) -> OutputFigures:
    """Return the figures of an output in a try of a batch, from those of its tasks. Pure."""
    known = list(partitions)
    times = sorted(one.commit_p99_ms for one in known if one.commit_p99_ms is not None)
    p99 = times[-(-len(times) * 99 // 100) - 1] if times else None
    return replace(together(OutputFigures(0, 0, 0, 0), known), commit_p99_ms=p99)


class KafkaOutput(ExactlyOnceOutput):
    """An output that writes each encoded record to Kafka exactly once. `DStream.saveToKafka` makes one."""

    _begun: _Begun
    """What `prepare` has found of the batch that is being written."""

    def __init__(
        self, name: str, params: KafkaParams, prefix: str, topic: str | None = None, *, keeps: bool = False, audit: bool = True
    ) -> None:
        """
        Args:
            name: the name of the output.
            params: the Kafka parameters.
            prefix: begins the names of the topics of receipts and audit, and the transactional ids.
            topic: the topic that is written; None if each record names its own.
            keeps: whether what is written of a half-written batch stands, though the batch has other keys now.
            audit: whether each batch leaves an entry in the topic of the audit.
        """
        super().__init__(name)
        self._params = params
        self._writes_to = topic
        self._keeps = keeps
        self._topic = ReceiptsTopic(params, prefix, name)
        self._audit = AuditTopic(params, prefix) if audit else None
        self._timeout_ms = params.transaction_ms
        self._topic_id: str | None = None
        """That of the topic of the receipts; None before anything is written."""
        self._receipts: Receipts | None = None
        """None before this driver has taken over."""
        self._begins: dict[int, int] = {}
        """partition of the topic → the offset of the first receipt of the newest batch. No receipt of a later batch is before it."""
        self._ends: dict[int, int] = {}
        """partition of the topic → an offset behind all receipts of the newest batch."""
        self._alone: dict[int, int] = {}
        """partition of the topic → the partition of the RDD whose receipt is directly before that offset; only if it is the one there."""
        self._fenced: dict[int, int] = {}
        """partition of the topic → the offset behind this driver's fence. No read of the driver ends before it."""
        self._accepted: frozenset[int] = frozenset()
        """The batches, in ms, that `kstream sink accept` names."""
        self._given_up: set[int] = set()
        """The batches, in ms, that are noted in Kafka as given up."""

    def restore(self, writer: Writer, stored: Json) -> None:
        super().restore(writer, stored)
        self._receipts = None
        if stored is not None:
            self._topic_id = stored["topicId"]
            self._begins = {int(place): offset for place, offset in stored["receipts"].items()}

    # -- before a batch

    def prepare(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int] | None:
        """Read the receipts, if a try of the batch may have run before. At the first batch, take over from earlier drivers."""
        self._check_repeats(rdd)
        if self._receipts is not None and batch.is_first_try:
            self._begun = _Begun(self._receipts, {}, None)
            return None
        number = rdd.getNumPartitions()
        with closing(TopicReader(self._reading())) as reader:
            if self._receipts is not None:
                self._topic.check_is_there(self._topic_id)
            else:
                taken = self._topic.take_over(
                    self._driver, reader, self._topic_id, self._begins, lambda receipts: self._to_write(receipts, batch, number)
                )
                self._receipts, self._topic_id, self._begins = taken.receipts, taken.topic_id, taken.begins
                self._fenced, self._accepted, self._given_up = taken.fenced, taken.accepted, set(taken.given_up)
            self._fence_tasks(self._receipts, number)
            found = self._receipts.look(reader, self._begins, READ_S + self._timeout_ms / 1000, least=self._fenced)
            wanted = self._receipts.judged(reader, lambda: self._missing(found.receipts, batch, number))
            for gone in self._missed(batch.time, found.receipts):
                self._topic.give_up(self._receipts, gone)
                self._given_up.add(gone.time_ms)
        known = {one.receipt.partition: one for one in found.receipts if one.receipt.time_ms == batch.time.milliseconds}
        self._move_on(found)
        if self._newest is None and not found.receipts and self._audit is not None and self._writes_to is not None:
            self._audit.append(beginning(self._driver, self.name, self._writes_to))
        is_past = any(one.receipt.time_ms > batch.time.milliseconds for one in found.receipts)
        self._accepted |= found.accepted
        self._begun = _Begun(self._receipts, known, wanted, self._keeps or batch.time.milliseconds in self._accepted, is_past=is_past)
        if known and (wanted or self._begun.keeps) and not is_one_to_one(rdd):
            self._begun = replace(self._begun, kept=self._recompute(batch, rdd))
        return wanted

    def _missed(self, time: Time, found: Sequence[FoundReceipt]) -> list[GivenUp]:
        """Return the batches before this one that are given up, that an audit would miss, and that are not noted.

        Args:
            time: this batch.
            found: the receipts of the output.
        """
        written = {one.receipt.time_ms for one in found}
        newest = None if self._newest is None else self._newest.time_ms
        gone = {one.milliseconds for one in self._driver.given_up if one < time} - self._given_up
        missed = sorted(ms for ms in gone if ms in written or (newest is not None and newest < ms))
        return [GivenUp(ms, sum_of(one.receipt.digests for one in found if one.receipt.time_ms == ms)) for ms in missed]

    def _recompute(self, batch: OutputBatch, rdd: RDD[Any]) -> Sequence[int]:
        """Compute what is written of a half-written batch again, and compare. Returns and raises as `_compared`."""
        job = Recomputation(self._begun.hashing, self.name, batch.time.milliseconds)
        found: Iterable[Recomputed] = rdd.context.runJob(rdd.mapPartitionsWithIndex(job), list, sorted(self._begun.known))
        return self._compared(batch, found, may_have_moved=True)

    def _compared(self, batch: OutputBatch, recomputed: Iterable[Recomputed], may_have_moved: bool) -> Sequence[int]:
        """Compare partitions with what is written of them. Return those whose records may have moved, after a WARNING.

        OutputChangedError if records may have moved to partitions that are not written, and that is not accepted.
        """
        receipts = {partition: one.receipt.digests for partition, one in self._begun.known.items()}
        differences = [found for one in recomputed if (found := difference(one.partition, receipts.get(one.partition, {}), one.digests))]
        if not differences:
            return ()
        worst = next((found for found in differences if found.has_moved), differences[0])
        words = f"batch {batch.time.milliseconds} ms is half-written, and differs now in {worst.words}"
        if may_have_moved and worst.has_moved and not self._begun.keeps:
            raise changed(self.name, f"{words}. {_CHANGED}")
        logger.warning("output %s: %s. What is written stands: the code, or what it reads, has changed", self.name, words)
        return [found.partition for found in differences if found.has_moved]

    def _missing(self, found: Sequence[FoundReceipt], batch: OutputBatch, number: int) -> list[int] | None:
        """Return as `_to_write`. ReceiptsLostError if a receipt of the newest batch is gone; other errors as `to_write`."""
        lost = lost_partition([one.receipt for one in found], self._newest)
        if self._newest is not None and lost is not None:
            raise self._topic.lost(f"batch {self._newest.time_ms} ms was written, and there is no receipt of its partition {lost}")
        return self._to_write(found, batch, number)

    def _to_write(self, found: Sequence[FoundReceipt], batch: OutputBatch, number: int) -> list[int] | None:
        """Return the partitions of a batch that are to be written. Errors as `to_write`, and as `check_is_of_checkpoint` for each receipt.

        The newest fence alone does not tell whether a copy of the checkpoint has written: a driver of this one may have followed it.
        """
        for writer in {(one.receipt.epoch, one.receipt.writer) for one in found}:
            check_is_of_checkpoint(self.name, writer, self._driver.nonce_of)
        newest = {one.receipt.partition: one.receipt for one in found}
        time_ms = batch.time.milliseconds
        return to_write(list(newest.values()), time_ms, batch.nonce, number, self._driver.knows, self.name, _REMEDY)

    def _move_on(self, found: FoundReceipts) -> None:
        """Note that all receipts up to these ends are known. A partition of the topic without any is not read again."""
        places = {one.place for one in found.receipts}
        self._ends, self._alone = {place: end for place, end in found.ends.items() if place != FENCES}, {}
        self._begins = {place: begin if place in places else self._ends[place] for place, begin in self._begins.items()}

    def _check_repeats(self, rdd: Any) -> None:
        """Raise ConfigurationError for an RDD whose partitions Spark may compute otherwise at the next try."""
        if rdd._jrdd.rdd().outputDeterministicLevel().toString() == "INDETERMINATE":
            raise ConfigurationError(
                f"output {self.name}: Spark may divide the records of a batch otherwise at each try, because of a repartition behind a "
                "shuffle. So nothing can be written exactly once. Leave the repartition out, or use partitionBy with a key",
                key="repartition",
                value=None,
            )

    def _fence_tasks(self, receipts: Receipts, number: int) -> None:
        """Take the transactional ids: tasks of earlier tries and drivers end, and what they have not committed is aborted. Blocks."""
        take_ids(self._params, [receipts.transactional_id(partition) for partition in range(number)], receipts.topic)

    # -- the batch

    def run(self, batch: OutputBatch, rdd: RDD[Any], partitions: Sequence[int] | None) -> OutputFigures:
        number, begun = rdd.getNumPartitions(), self._begun
        chosen = range(number) if partitions is None else partitions
        receipts, written = list(begun.known.values()), list[FoundReceipt]()
        if chosen:
            writer = KafkaPartitionWriter(
                receipts=begun.receipts,
                producer=self._params.sink(),
                consumer=self._reading(),
                time_ms=batch.time.milliseconds,
                nonce=batch.nonce,
                num_partitions=number,
                begins=dict(self._ends),
                alone=frozenset(self._alone.values()),
                timeout_ms=self._timeout_ms,
                wanted=None if begun.wanted is None else frozenset(begun.wanted),
                is_first_try=batch.is_first_try,
                hashing=begun.hashing,
            )
            results = list[FoundReceipt | Recomputed | None](rdd.context.runJob(rdd.mapPartitionsWithIndex(writer), list, chosen))
            written = [one for one in results if isinstance(one, FoundReceipt)]
            receipts += written
            if begun.kept is None and begun.wanted:
                recomputed = [one for one in results if isinstance(one, Recomputed)]
                begun = replace(begun, kept=self._compared(batch, recomputed, may_have_moved=False))
        if self._audit is not None and not begun.is_past:
            self._tell(self._audit, batch, number, [one.receipt for one in receipts], begun.kept or ())
        self._note_receipts(batch.time, number, receipts)
        return figures_of(one.figures for one in written)

    def _tell(self, audit: AuditTopic, batch: OutputBatch, number: int, receipts: Sequence[KafkaReceipt], kept: Sequence[int]) -> None:
        """Write the entry of a batch for the audit. All of the batch is committed."""
        inputs, time_ms, driver = input_ranges(batch.inputs), batch.time.milliseconds, self._driver
        if (inputs or receipts) and all(one.time_ms == time_ms for one in receipts):
            digests = sum_of(one.digests for one in receipts)
            audit.append(AuditEntry(driver.job, self.name, driver.epoch, time_ms, batch.nonce, number, digests, {}, inputs, kept))

    def _note_receipts(self, time: Time, number: int, receipts: Sequence[FoundReceipt]) -> None:
        """Note that a batch is written, with these receipts. There are none if it is empty. A later one may be written, too."""
        num_records = sum(one.receipt.num_records for one in receipts)
        if not receipts or any(one.receipt.time_ms > time.milliseconds for one in receipts):
            self._note(time, num_records)
            return
        empty = frozenset(range(number)) - {one.receipt.partition for one in receipts}
        self._note(time, num_records, WrittenBatch(time.milliseconds, number, empty))
        for place in {one.place for one in receipts}:
            here = [one for one in receipts if one.place == place]
            self._begins[place], self._ends[place] = min(one.offset for one in here), max(one.offset for one in here) + 1
            self._alone.pop(place, None)
            if len(here) == 1:
                self._alone[place] = here[0].receipt.partition

    def outcome(self, time: Time) -> Json:
        if self._newest is None:
            return None
        begins = {str(place): offset for place, offset in sorted(self._begins.items())}
        return {**super().outcome(time), "empty": sorted(self._newest.empty), "receipts": begins, "topicId": self._topic_id}

    def stop(self) -> None:
        if self._audit is not None:
            self._audit.close()

    def _reading(self) -> Mapping[str, Any]:
        """Return the properties of the consumers of receipts."""
        return small(self._params.from_leaders())
