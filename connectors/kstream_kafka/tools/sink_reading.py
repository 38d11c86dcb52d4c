"""SinkReading: what the topics of receipts and audit say of all outputs, those of queries too. The commands read it; nothing is written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from kstream.errors import ConfigurationError
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.errors import UnknownTopicError
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.sink.audit import QUERY, AuditEntry, entry_of
from kstream_kafka.sink.audit_topic import audit_topic
from kstream_kafka.sink.query_receipt import QueryReceipt, decode_query_receipt
from kstream_kafka.sink.receipt import (
    Fence,
    GivenUp,
    KafkaReceipt,
    decode_acceptance,
    decode_fence,
    decode_given_up,
    decode_receipt,
    parsed_key,
)
from kstream_kafka.sink.receipts import where
from kstream_kafka.sink.receipts_topic import receipts_topic
from kstream_kafka.tools.audit_check import AuditFinding, AuditVerdict, TopicCheck

CHUNK = 50_000
"""Offsets of a partition that are read at once."""
READ_S = 60.0


@dataclass
class KnownOutput:
    """What the topic of the receipts has of one output.

    Attributes:
        job: identifies the job.
        name: the name of the output.
        fence: the driver that may write; None if the record is gone.
        receipts: partition of the RDD → its newest receipt.
        accepted_ms: the batch that was accepted last; None without one.
        given_up: the batches that were given up, by their time in ms.
    """

    job: str
    name: str
    fence: Fence | None = None
    receipts: dict[int, KafkaReceipt] = field(default_factory=dict[int, KafkaReceipt])
    accepted_ms: int | None = None
    given_up: dict[int, GivenUp] = field(default_factory=dict[int, GivenUp])

    @property
    def newest(self) -> list[KafkaReceipt]:
        """The receipts of the newest batch, by partition."""
        last = max((receipt.time_ms for receipt in self.receipts.values()), default=None)
        return [receipt for _, receipt in sorted(self.receipts.items()) if receipt.time_ms == last]

    @property
    def num_ids(self) -> int:
        """How many transactional ids the output has, as far as the receipts tell."""
        return max((max(receipt.num_partitions, receipt.partition + 1) for receipt in self.receipts.values()), default=0)


class SinkReading:
    """Reads the topics of one prefix. One thread; all methods block. KafkaError if the brokers do not answer, or refuse this client."""

    def __init__(self, connection: Mapping[str, Any], prefix: str) -> None:
        """
        Args:
            connection: the Kafka parameters.
            prefix: begins the names of the topics.
        """
        self.params = KafkaParams.parse(connection)
        self.prefix = prefix

    def outputs(self) -> dict[tuple[str, str], KnownOutput | QueryReceipt]:
        """Return the outputs that have a fence or a receipt, by job and name; of a query, by its id and QUERY, the newest receipt.

        CorruptRecordError for a record of another program.
        """
        found: dict[tuple[str, str], KnownOutput] = {}
        queries: dict[tuple[str, str], QueryReceipt] = {}
        for message in self._messages(receipts_topic(self.prefix)):
            if message.value() is None:
                continue
            match parsed_key(message.key()):
                case [str(kind), str(job), str(name), *rest] if kind in ("fence", "receipt", "accept", "given-up"):
                    self._note(found.setdefault((job, name), KnownOutput(job, name)), kind, rest, message)
                case ["query", str(query)]:
                    queries[query, QUERY] = decode_query_receipt(query, message.value(), where(message))
                case _:
                    continue
        return dict(sorted({**found, **queries}.items()))

    def entries(self) -> dict[tuple[str, str], list[AuditEntry]]:
        """Return job and output → the entries of the audit, in the order of the log. Errors as `outputs`."""
        found = defaultdict[tuple[str, str], list[AuditEntry]](list)
        for message in self._messages(audit_topic(self.prefix)):
            entry = entry_of(message.key(), message.value() or b"", where(message))
            if entry is not None:
                found[entry.job, entry.output].append(entry)
        return found

    def given_up(self, job: str, name: str) -> list[GivenUp]:
        """Return the batches of an output that were given up, oldest first. Without the topic of the receipts nobody knows of one."""
        try:
            found = self.outputs().get((job, name))
        except ConfigurationError:
            return []
        return [batch for _, batch in sorted(found.given_up.items())] if isinstance(found, KnownOutput) else []

    def check(self, topic: str, batches: Sequence[AuditEntry], is_shared: bool) -> tuple[TopicCheck, list[AuditFinding]]:
        """Read an output topic, and compare it with the entries of its batches. Return the check and its findings. Blocks on the brokers.

        If records of the batches are gone, the topic is not read, and the finding says why nothing can be proved.

        `is_shared`: whether another output has written to it, too.
        """
        check = TopicCheck(topic, batches, is_shared)
        ranges = check.ranges()
        if check.first is None:
            words = "has no entry before its first batch, which says where the records of that batch begin"
            return check, [AuditFinding(AuditVerdict.NOT_PROVABLE, f"topic {topic} {words}")]
        with closing(KafkaDriverClient(self.params.uncommitted())) as client:
            words = self._why_not(client, topic, ranges)
        if words is not None:
            return check, [AuditFinding(AuditVerdict.NOT_PROVABLE, f"topic {topic} {words}")]
        with closing(self._reader()) as reader:
            for partition, (begin, end) in ranges.items():
                for message in _read(reader, topic, partition, begin, end):
                    check.add(partition, message.offset(), message.key(), message.value())
        return check, check.findings()

    def _why_not(self, client: KafkaDriverClient, topic: str, ranges: Mapping[int, tuple[int, int]]) -> str | None:
        """Return why the records of these ranges are not all there any more, as the end of the sentence `topic …`; None if they are."""
        try:
            there = client.partitions(Topics((topic,)))
        except UnknownTopicError:
            return "is gone"
        if not ranges:
            return "has no records of these batches: it was made anew"
        policy = client.topic_setting(topic, "cleanup.policy")
        if policy is not None and "compact" in policy:
            return "is compacted: older records of a key may be gone"
        if any((topic, partition) not in there for partition in ranges):
            return "has fewer partitions than it had: it was made anew"
        ends = client.latest([(topic, partition) for partition in ranges])
        if any(ends[topic, partition].offset < end for partition, (_, end) in ranges.items()):
            return "has a shorter log than it had: it was made anew"
        begins = client.earliest([(topic, partition) for partition in ranges])
        if gone := [partition for partition, (begin, _) in ranges.items() if begins[topic, partition].offset > begin]:
            return f"has lost its oldest records to retention, in partitions {gone}"
        return None

    def _note(self, output: KnownOutput, kind: str, rest: Sequence[Any], message: Any) -> None:
        """Put a record of the topic of receipts into what is known of its output. A key of an unknown form is ignored.

        Args:
            output: the output that the key names.
            kind, rest: the first part of the key, and the parts behind the output's name.
            message: the record.
        """
        value, place = message.value(), where(message)
        match kind, rest:
            case "fence", [int(), str()]:
                output.fence = max(decode_fence(value, place), output.fence or Fence(0, "", 0), key=lambda fence: fence.epoch)
            case "accept", []:
                output.accepted_ms = decode_acceptance(value, place)
            case "given-up", [int(time_ms)]:
                output.given_up[time_ms] = decode_given_up(value, place)
            case "receipt", [int(partition)]:
                output.receipts[partition] = decode_receipt(partition, value, place)
            case _:
                pass

    def _messages(self, topic: str) -> list[Any]:
        """Return the committed records that a topic has now. Blocks. ConfigurationError if it does not exist."""
        with closing(KafkaDriverClient(self.params)) as client:
            try:
                begins = client.earliest(client.partitions(Topics((topic,))))
            except UnknownTopicError as e:
                raise ConfigurationError(
                    f"there is no topic {topic}: no job has written exactly once with the prefix {self.prefix}. Give another --prefix",
                    key="--prefix",
                    value=self.prefix,
                ) from e
        with closing(self._reader()) as reader:
            return reader.read(topic, {partition: begin.offset for (_, partition), begin in begins.items()}, READ_S, waits=False).messages

    def _reader(self) -> TopicReader:
        return TopicReader(self.params.from_leaders())


def chosen(outputs: Mapping[tuple[str, str], Any], job: str | None, name: str | None) -> tuple[str, str]:
    """Return job and name of the one output that the options mean. Pure.

    Args:
        outputs: the outputs, by job and name.
        job: the job, or its beginning; None for any.
        name: the name of the output; None for any.

    Raises:
        ConfigurationError: none or several fit.
    """
    fitting = [key for key in outputs if key[0].startswith(job or "") and name in (None, key[1])]
    if len(fitting) == 1:
        return fitting[0]
    known = "; ".join(f"{known_name} of job {known_job}" for known_job, known_name in sorted(fitting or outputs))
    reason = "several outputs fit" if fitting else "no output fits"
    raise ConfigurationError(f"{reason}: {known or 'there is none'}. Give OUTPUT and --job", key="OUTPUT", value=name)


def _read(reader: TopicReader, topic: str, partition: int, begin: int, end: int) -> Iterator[Any]:
    """Yield the committed records of a range, a chunk at a time."""
    for first in range(begin, end, CHUNK):
        yield from reader.read(topic, {partition: first}, READ_S, until={partition: min(first + CHUNK, end)}).messages
