"""read_records: the records of offset ranges, for `kstream peek`; and a client's message as a LogRecord.

They are read as a worker reads them, with its consumer and its checks, and without decoders. No group is joined and nothing is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kstream.connectors import LogRecord
from kstream.offsets.offset_range import OffsetRange, PlannedRange, UnreadableRange
from kstream.offsets.read_report import ReadReport, lost_ranges
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.errors import KafkaError, PollTimeoutError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.reader.headers import headers_of
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.reader.range_reader import read_splits

WAIT_S = 15
"""Seconds to wait for the next record."""
TIMESTAMP_TYPES = {1: "CreateTime", 2: "LogAppendTime"}
"""confluent_kafka's numbers → Kafka's words."""
_GONE = {
    "retention": "retention has removed the records",
    "truncation": "the log was cut, the planned records are gone",
    "recreation": "the topic was deleted and created again",
}


def read_records(
    connection: Mapping[str, Any], data: Mapping[str, Any], ranges: Sequence[PlannedRange]
) -> Iterator[LogRecord | UnreadableRange]:
    """Read the records of ranges. Lazy; blocks on the brokers.

    Args:
        connection: the Kafka parameters.
        data: plan data of the stream, with the topic ids. The leader epochs of its ranges count for ranges that it has.
        ranges: the ranges, in the order of the result.

    Yields:
        The records, and an UnreadableRange for offsets that the log does not have.

    Raises:
        KafkaError: the parameters cannot work, the brokers do not answer or refuse this client, or a topic does not exist.
    """
    params, plan = KafkaParams.parse(connection), KafkaPlan.decode(data)
    partitions = {(r.topic, r.partition) for r in ranges}
    client = KafkaDriverClient(params)
    try:
        begins, ends = client.earliest(partitions), client.latest(partitions)
    finally:
        client.close()
    planned = {(r.topic, r.partition, r.fromOffset, r.untilOffset): split for split in plan.splits for r in [split.range]}
    consumer = KafkaRangeConsumer(small(params.executor()))
    try:
        for wanted in ranges:
            begin, end = begins[wanted[:2]].offset, ends[wanted[:2]].offset
            yield from _read(consumer, wanted, (begin, end), planned.get(wanted), plan.topic_ids)
    finally:
        consumer.close()


def _read(
    consumer: KafkaRangeConsumer, wanted: PlannedRange, log: tuple[int, int], split: RangeSplit | None, topic_ids: Mapping[str, str]
) -> Iterator[LogRecord | UnreadableRange]:
    """Yield the records of one range, and an UnreadableRange for each part of it that the log does not have, or has no more. Blocks.

    Args:
        consumer: reads the range.
        wanted: the range.
        log: the first offset of the log, and the offset after its last one.
        split: the same range with the epochs of its plan; None for a range without a plan.
        topic_ids: topic → topic id of the plan.
    """
    topic, partition, first, until = wanted
    begin, end = min(max(first, log[0]), until), max(first, min(until, log[1]))
    if first < begin:
        yield UnreadableRange(topic, partition, first, begin, f"{_GONE['retention']}, the log begins at {log[0]}")
    report = ReadReport(tolerate_loss=True)
    epoch = None if split is None else split.leader_epoch
    from_epoch = split.from_epoch if split is not None and first == begin else None
    part = RangeSplit(OffsetRange(topic, partition, begin, max(begin, end)), epoch, from_epoch)
    try:
        for _, messages in read_splits(consumer, (part,), WAIT_S * 1000, report=report, topic_ids=topic_ids):
            yield from map(as_log_record, messages)
    except PollTimeoutError as e:
        said = f": {e.facts['reason']}" if e.facts["reason"] else ""
        text = f"{topic}-{partition}: the leader gave no record at or after offset {e.facts['at']} within {WAIT_S} s{said}"
        raise KafkaError(text, topic=topic, partition=partition, at=e.facts["at"]) from e
    for lost in lost_ranges(report.lost):
        upto = until if lost.lost_until is None else lost.lost_until
        yield UnreadableRange(topic, partition, lost.lost_from, upto, _GONE.get(lost.cause, lost.cause))
    if max(begin, end) < until:
        yield UnreadableRange(topic, partition, max(begin, end), until, f"the log ends at {log[1]}")


def as_log_record(message: Any) -> LogRecord:
    """Return a message of confluent_kafka as a LogRecord, in bytes. A name of a header that is not UTF-8 is no error."""
    kind, at_ms = message.timestamp()
    word = TIMESTAMP_TYPES.get(kind, "")
    place = message.topic(), message.partition(), message.offset()
    return LogRecord(*place, at_ms if word else None, word, message.key(), message.value(), _headers(message))


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    """Return the headers of a message. The client cannot read names that are no UTF-8; then one entry says so."""
    try:
        return list(headers_of([message])[0] or ())
    except ValueError:
        return [("a header whose name is not UTF-8: the client shows no header", None)]
