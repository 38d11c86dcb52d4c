"""Every exception of the Kafka connector, one tree under kstream's own.

    KStreamError
    └── KafkaError                        base of all below; also what an unforeseen client error becomes
        ├── KafkaConfigError              a Kafka parameter is unknown, unsupported or cannot work
        ├── BrokerUnreachableError        no broker answered in time                                (retriable)
        ├── UnknownTopicError             topics are not on the cluster                             (retriable)
        ├── LeaderNotAvailableError       partitions did not tell their offsets after all retries   (retriable)
        ├── PartitionRevokedError         partitions being read are gone from the cluster           (retriable)
        ├── LogShrankError                a partition ends before the next offset to read: truncated or made anew
        ├── RangesNotAvailableError       createRDD was given ranges that are not wholly on the brokers
        ├── OffsetOutOfRangeError         the first offset of a range is not on the broker any more: retention, or a shorter log
        ├── RangeUnreadableError          a partition ends before the end of a range that was planned
        ├── LogRewrittenError             records inside a range were written after it had been planned
        └── PollTimeoutError              no record of a range came in `spark.streaming.kafka.consumer.poll.ms`  (retriable)

The facts are attributes; the message says what happened, with which values, and what to do. All survive pickling, since the
lower half is raised inside Spark's Python workers. confluent_kafka's exceptions are mapped in `client.py` alone, `from` kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kstream.errors import KStreamError

TopicAndNumber = tuple[str, int]


def _list(partitions: Iterable[TopicAndNumber], most: int = 5) -> str:
    """`orders-0, orders-1 … (12 in all)`: few enough for one line."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    more = f" … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class KafkaError(KStreamError):
    """Base of the connector's errors."""


class KafkaConfigError(KafkaError):
    """A Kafka parameter is unknown, unsupported or cannot work. Facts: key, reason, hint."""

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        super().__init__(f"Kafka parameter {key!r} {reason}.{' ' + hint if hint else ''}", key=key, reason=reason, hint=hint)


class BrokerUnreachableError(KafkaError):
    """No broker answered. Facts: bootstrap, waited_ms, reason (the client's last words, may be empty)."""

    retriable = True

    def __init__(self, bootstrap: str, waited_ms: int, reason: str = "") -> None:
        because = f" The client says: {reason}." if reason else ""
        super().__init__(
            f"No Kafka broker of {bootstrap} answered within {waited_ms} ms.{because} "
            "Check that the brokers run, that bootstrap.servers and the listener's port are right, and security.protocol.",
            bootstrap=bootstrap, waited_ms=waited_ms, reason=reason,
        )  # fmt: skip


class UnknownTopicError(KafkaError):
    """Topics are not on the cluster. Facts: topics, known (how many topics the cluster has), waited_ms."""

    retriable = True

    def __init__(self, topics: Sequence[str], known: int, waited_ms: int = 0) -> None:
        super().__init__(
            f"Kafka knows no topic {', '.join(repr(t) for t in topics)} (looked for {waited_ms} ms; the cluster has {known} "
            "topics that this client may see). Create the topic, correct its name, or check the client's DESCRIBE permission.",
            topics=list(topics), known=known, waited_ms=waited_ms,
        )  # fmt: skip


class LeaderNotAvailableError(KafkaError):
    """Partitions did not tell their offsets after all retries. Facts: partitions, retries, reason."""

    retriable = True

    def __init__(self, partitions: Mapping[TopicAndNumber, str], retries: int) -> None:
        reason = "; ".join(sorted(set(partitions.values())))
        super().__init__(
            f"The leaders of {_list(partitions)} did not tell their offsets after {retries} retries ({reason}). The next batch "
            "tries again; spark.streaming.kafka.maxRetries and refresh.leader.backoff.ms make each one more patient.",
            partitions=sorted(partitions), retries=retries, reason=reason,
        )  # fmt: skip


class PartitionRevokedError(KafkaError):
    """Partitions that are being read are gone from the cluster. Facts: partitions."""

    retriable = True

    def __init__(self, partitions: Iterable[TopicAndNumber]) -> None:
        gone = sorted(partitions)
        super().__init__(
            f"Partitions {_list(gone)} are being read but the cluster has them no more. Was the topic deleted? "
            "Batches go on when it is back; to read on without it, restart with topics that exist.",
            partitions=gone,
        )


class LogShrankError(KafkaError):
    """A partition ends before the next offset to read. Facts: partitions: list of (topic, partition, next, latest)."""

    def __init__(self, partitions: Sequence[tuple[str, int, int, int]]) -> None:
        rows = "; ".join(f"{t}-{p}: next to read is {at}, the log ends at {end}" for t, p, at, end in partitions[:5])
        super().__init__(
            f"{len(partitions)} partition(s) end before the offset reached ({rows}). The topic was deleted and made anew, or "
            "truncated by an unclean leader election. If this lasts, decide where to go on and restart from new offsets.",
            partitions=list(partitions),
        )


class RangesNotAvailableError(KafkaError):
    """Ranges given to createRDD are not wholly on the brokers. Facts: ranges: list of (topic, partition, from, until, earliest, latest)."""

    def __init__(self, ranges: Sequence[tuple[str, int, int, int, int, int]]) -> None:
        rows = "; ".join(f"{t}-{p} [{a}, {b}) where the log is [{first}, {end})" for t, p, a, b, first, end in ranges[:5])
        super().__init__(
            f"Offsets not available on leader: {rows}{f' … ({len(ranges)} ranges)' if len(ranges) > 5 else ''}. Ask for offsets that are "
            "there, from ≤ until.",
            ranges=list(ranges),
        )


class _RangeError(KafkaError):
    """Something about reading one range. Facts: topic, partition, from_offset, until_offset and the class's own."""

    def __init__(self, where: tuple[str, int, int, int], message: str, **facts: Any) -> None:
        topic, partition, from_offset, until_offset = where
        super().__init__(
            f"{topic}-{partition} [{from_offset}, {until_offset}): {message}",
            topic=topic, partition=partition, from_offset=from_offset, until_offset=until_offset, **facts,
        )  # fmt: skip


class OffsetOutOfRangeError(_RangeError):
    """An offset to read is not on the broker. Facts: at, earliest, latest (None when the broker did not say)."""

    def __init__(self, where: tuple[str, int, int, int], at: int, earliest: int | None, latest: int | None) -> None:
        if earliest is not None and at < earliest:
            lost = min(earliest, where[3])
            message = (
                f"records [{at}, {lost}) were removed before they were read (the log now starts at {earliest}, ends at {latest}): "
                "retention or deleteRecords was faster than this stream. Those records are lost; give the topic a longer retention"
            )
        elif latest is not None and at > latest:
            message = f"offset {at} lies behind the log's end {latest}: the topic was truncated or made anew since the range was planned"
        else:
            message = (
                f"the broker refuses offset {at} (its log is [{earliest}, {latest}) now): the log was cut below that offset and "
                "written anew since the range was planned"
            )
        super().__init__(where, message + ".", at=at, earliest=earliest, latest=latest)


class RangeUnreadableError(_RangeError):
    """The partition ends before the end of a planned range. Facts: end."""

    def __init__(self, where: tuple[str, int, int, int], end: int) -> None:
        super().__init__(
            where,
            f"the partition ends at {end}, before the end of the range: it was truncated or made anew since the range was planned, "
            "or the range was never there.",
            end=end,
        )


class LogRewrittenError(_RangeError):
    """Records inside the range are of a later leader epoch than the plan's. Facts: planned_epoch, found_epoch."""

    def __init__(self, where: tuple[str, int, int, int], planned_epoch: int, found_epoch: int) -> None:
        super().__init__(
            where,
            f"planned under leader epoch {planned_epoch}, but it holds records of epoch {found_epoch}: an unclean leader election cut "
            "the log and other records took these offsets. What was planned is lost; nothing of the new records was passed on.",
            planned_epoch=planned_epoch, found_epoch=found_epoch,
        )  # fmt: skip


class PollTimeoutError(_RangeError):
    """No record of a range came in time. Facts: at, waited_ms, reason."""

    retriable = True

    def __init__(self, where: tuple[str, int, int, int], at: int, waited_ms: int, reason: str = "") -> None:
        because = f" The client says: {reason}." if reason else ""
        super().__init__(
            where,
            f"no record at or after offset {at} came within {waited_ms} ms (spark.streaming.kafka.consumer.poll.ms).{because} "
            "Check that the executors reach the brokers.",
            at=at, waited_ms=waited_ms, reason=reason,
        )  # fmt: skip
