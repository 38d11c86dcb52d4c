"""Every exception of the Kafka connector, one tree under kstream's own.

    KStreamError
    └── KafkaError                        base of all below, and any other error of a client
        ├── KafkaConfigError              a Kafka parameter is unknown, unsupported or cannot work
        ├── SourceOptionError             an option of the data source is unknown, refused or cannot work
        ├── BrokerUnreachableError        no broker answered in time                                (retriable)
        ├── AuthenticationFailedError     the brokers refuse the user, the password, the mechanism or the token
        ├── TlsFailedError                no TLS connection: a certificate is refused, or the listener is of another kind
        ├── NotAuthorizedError            the brokers know the user and refuse the operation: an ACL is missing
        ├── GroupNotEmptyError            a consumer group has live members, and lets nobody else commit
        ├── UnknownTopicError             topics do not exist                                       (retriable)
        ├── TopicNotAvailableError        brokers do not show topics, which may exist nevertheless  (retriable)
        ├── LeaderNotAvailableError       leaders returned no offsets after all retries             (retriable)
        ├── PartitionRevokedError         partitions of a stream do not exist any more              (retriable)
        ├── RangesNotAvailableError       createRDD got ranges that lie partly outside of their logs
        ├── DataLossError                 unread records are lost: `onDataLoss` decides
        │     ├── RangeLostError          records of a range that is read
        │     │     ├── RecordsRemovedError     retention or deleteRecords was faster than the stream
        │     │     └── LogTruncatedError       an unclean leader election cut the log
        │     ├── LogShrankError          the log was cut, found when a batch was planned
        │     └── TopicRecreatedError     the topic was deleted and created again
        ├── MalformedValueError           a value does not fit the schema of its query
        ├── RowEncodingError              a row that is to be written does not fit the format of its value
        ├── ProducerFencedError           another producer has taken the transactional id           (retriable)
        ├── CommitUnknownError            nobody has said whether a transaction is committed        (retriable)
        ├── RecordTooLargeError           a record that is to be written is larger than max.request.size
        ├── ReceiptsLostError             the receipts of an exactly-once output are gone
        ├── SchemaRegistryUnreachableError  no schema registry answered                             (retriable)
        ├── SchemaRegistryRefusedError    a schema registry refuses the user, the request or the schema
        ├── ZooKeeperUnreachableError     a receiver's ZooKeeper did not answer in time             (retriable)
        ├── OwnershipLostError            a receiver's session is over: another may read its partitions     (retriable)
        └── PollTimeoutError              no record of a range came in `spark.streaming.kafka.consumer.poll.ms`  (retriable)

The facts of an error are its attributes. The message names the event, the values and the remedy. All errors can be pickled, because
Spark's Python workers raise the errors of the lower half. The clients and `librdkafka.py` map confluent_kafka's exceptions, with `from`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from kstream import errors
from kstream.nearest_name import did_you_mean

TopicAndNumber = tuple[str, int]
"""(topic, partition number)"""
CONTINUE_HINT = (
    "To continue with the remaining records, restart with onDataLoss='skip' (the loss goes to the ledger), or set other offsets: "
    "`kstream offsets`."
)
"""The end of each message about a loss."""


def _list(partitions: Iterable[TopicAndNumber], most: int = 5) -> str:
    """Return the partitions in one line, as `orders-0, orders-1 … (12 in all)`. At most `most` of them are named."""
    names = [f"{topic}-{partition}" for topic, partition in sorted(partitions)]
    more = f" … ({len(names)} in all)" if len(names) > most else ""
    return ", ".join(names[:most]) + more


class KafkaError(errors.KStreamError):
    """Base of the connector's errors."""


class KafkaConfigError(KafkaError, errors.ConfigurationError):
    """A Kafka parameter, or an option of a command (`--to`), is unknown, unsupported or cannot work. Facts: key, reason, hint."""

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        kind = "Option" if key.startswith("--") else "Kafka parameter"
        super().__init__(f"{kind} {key!r} {reason}.{' ' + hint if hint else ''}", key=key, reason=reason, hint=hint)


class SourceOptionError(KafkaError, errors.ConfigurationError):
    """An option of the data source `kstream` is unknown, refused or cannot work. Facts: key, reason, hint."""

    reason: str

    def __init__(self, key: str, reason: str, hint: str = "") -> None:
        super().__init__(
            f"Option {key!r} of the data source kstream {reason}.{' ' + hint if hint else ''}", key=key, reason=reason, hint=hint
        )


def check_one_of(value: str | None, known: Sequence[str], key: str) -> None:
    """Check a parameter that has few values; None is one of them.

    Raises:
        KafkaConfigError: the value of `key` is not one of `known`.
    """
    if value is not None and value not in known:
        raise KafkaConfigError(key, f"is {value!r}", f"One of: {', '.join(known)}.")


class BrokerUnreachableError(KafkaError):
    """No broker answered. Facts: bootstrap, waited_ms, reason (the client's last error, may be empty)."""

    retriable = True
    outage = True

    def __init__(self, bootstrap: str, waited_ms: int, reason: str = "") -> None:
        because = f" The client says: {reason}." if reason else ""
        super().__init__(
            f"No Kafka broker of {bootstrap} answered within {waited_ms} ms.{because} "
            "Check that the brokers run, that bootstrap.servers and the listener's port are right, and security.protocol.",
            bootstrap=bootstrap,
            waited_ms=waited_ms,
            reason=reason,
        )


class AuthenticationFailedError(KafkaError):
    """The brokers refuse the credentials. Facts: broker, protocol, mechanism, reason, hint. No fact holds the credentials."""

    mechanism: str

    def __init__(self, broker: str, protocol: str, mechanism: str, reason: str, hint: str) -> None:
        by = f"{protocol}, {mechanism}" if mechanism else protocol
        super().__init__(
            f"Kafka at {broker} ({by}) does not authenticate this client: {_stopped(reason)} {hint}",
            broker=broker,
            protocol=protocol,
            mechanism=mechanism,
            reason=reason,
            hint=hint,
        )

    @property
    def is_refusal(self) -> bool:
        """Whether a person must act. A token comes from another system and expires: the next one may be good."""
        return self.mechanism != "OAUTHBEARER"


class TlsFailedError(KafkaError):
    """No TLS connection can be made. Facts: broker, protocol, mechanism, reason, hint."""

    @property
    def is_refusal(self) -> bool:
        return True

    def __init__(self, broker: str, protocol: str, mechanism: str, reason: str, hint: str) -> None:
        super().__init__(
            f"No TLS connection with Kafka at {broker} ({protocol}): {_stopped(reason)} {hint}",
            broker=broker,
            protocol=protocol,
            mechanism=mechanism,
            reason=reason,
            hint=hint,
        )


class NotAuthorizedError(KafkaError):
    """An ACL is missing. Facts: bootstrap, operation, resource ("topic", "group" or "cluster"), name, reason."""

    @property
    def is_refusal(self) -> bool:
        return True

    def __init__(self, bootstrap: str, operation: str, resource: str, name: str, reason: str) -> None:
        of = f" {name!r}" if name else ""
        option = f"--{resource} {name!r}" if name else f"--{resource}"
        super().__init__(
            f"Kafka at {bootstrap} does not let this client {operation} the {resource}{of}: {_stopped(reason)} Give its user the ACL: "
            f"kafka-acls.sh --bootstrap-server {bootstrap} --add --allow-principal User:… --operation {operation} {option}",
            bootstrap=bootstrap,
            operation=operation,
            resource=resource,
            name=name,
            reason=reason,
        )


class GroupNotEmptyError(KafkaError):
    """A consumer group has live members, so Kafka takes no commits from others. Facts: bootstrap, group, reason."""

    def __init__(self, bootstrap: str, group: str, reason: str) -> None:
        super().__init__(
            f"Kafka at {bootstrap} lets only the live members of the consumer group {group!r} commit its offsets ({reason}). Consumers use "
            "this group. Stop them, or give the job a group of its own: publishOffsets(group=…), or another group.id for commitAsync.",
            bootstrap=bootstrap,
            group=group,
            reason=reason,
        )


def _stopped(sentence: str) -> str:
    """Return the sentence with a full stop at its end."""
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."


def create_command(topic: str, bootstrap: str) -> str:
    """Return the commands that create a topic, for a hint: Kafka's own, and that of kstream for those who have only pip."""
    return (
        f"kafka-topics.sh --bootstrap-server {bootstrap} --create --topic {topic} --partitions 1, or "
        f"kstream produce {topic} --partitions 1 --bootstrap {bootstrap} < /dev/null"
    )


class UnknownTopicError(KafkaError):
    """Topics do not exist. Facts: topics, known (the number of topics that this client may see), waited_ms, near (similar names).

    A stream raises it at the start and when it looks for new partitions. For a topic that it already reads, a stream raises
    `PartitionRevokedError` instead.
    """

    retriable = True

    @property
    def is_refusal(self) -> bool:
        return True

    def __init__(self, topics: Sequence[str], known: int, waited_ms: int = 0, near: Sequence[str] = ()) -> None:
        hint = f"{did_you_mean(near)} " if near else ""
        create = f"`kstream produce {topics[0]} --partitions 1 --bootstrap HOST:PORT < /dev/null`"
        searched = f"searched for {waited_ms} ms; " if waited_ms else ""
        super().__init__(
            f"Kafka knows no topic {', '.join(repr(t) for t in topics)} ({searched}the cluster has {known} topics that "
            f"this client may see). {hint}Create the topic (kafka-topics.sh, or {create}), correct its name, or check the client's "
            "DESCRIBE permission.",
            topics=list(topics),
            known=known,
            waited_ms=waited_ms,
            near=list(near),
        )


class TopicNotAvailableError(KafkaError):
    """The brokers do not show topics at the moment. They do not say either that the topics do not exist. Facts: topics, reason."""

    retriable = True
    outage = True

    def __init__(self, topics: Sequence[str], reason: str) -> None:
        super().__init__(
            f"Kafka does not show {', '.join(repr(t) for t in topics)} at the moment: {reason}. A topic counts as deleted only when the "
            "brokers have lasted in saying so. The next batch asks again, and nothing is lost.",
            topics=list(topics),
            reason=reason,
        )


class LeaderNotAvailableError(KafkaError):
    """The leaders of partitions returned no offsets after all retries. Facts: partitions, retries, reason."""

    retriable = True
    outage = True

    def __init__(self, partitions: Mapping[TopicAndNumber, str], retries: int) -> None:
        reason = "; ".join(sorted(set(partitions.values())))
        super().__init__(
            f"The leaders of {_list(partitions)} returned no offsets after {retries} retries ({reason}). The next batch "
            "tries again; raise default.api.timeout.ms or spark.streaming.kafka.maxRetries to let each batch try longer.",
            partitions=sorted(partitions),
            retries=retries,
            reason=reason,
        )


class PartitionRevokedError(KafkaError):
    """Partitions of a stream do not exist any more. Facts: partitions."""

    retriable = True

    def __init__(self, partitions: Iterable[TopicAndNumber]) -> None:
        gone = sorted(partitions)
        super().__init__(
            f"Partitions {_list(gone)} are being read, but the cluster no longer has them. Was the topic deleted? "
            "Batches continue when it exists again; to continue without it, restart with existing topics.",
            partitions=gone,
        )


class RangesNotAvailableError(KafkaError):
    """Ranges of createRDD lie partly outside of their logs. Fact: ranges, a list of (topic, partition, from, until, earliest, latest)."""

    def __init__(self, ranges: Sequence[tuple[str, int, int, int, int, int]]) -> None:
        rows = "; ".join(f"{t}-{p} [{a}, {b}) where the log is [{first}, {end})" for t, p, a, b, first, end in ranges[:5])
        super().__init__(
            f"Offsets not available on leader: {rows}{f' … ({len(ranges)} ranges)' if len(ranges) > 5 else ''}. Give offsets that the "
            "logs have, with from ≤ until.",
            ranges=list(ranges),
        )


class _RangeError(KafkaError):
    """An error of the read of one range. Facts: topic, partition, from_offset, until_offset, and those of the subclass.

    `where` is the range: (topic, partition, from, until).
    """

    def __init__(self, where: tuple[str, int, int, int], message: str, **facts: Any) -> None:
        topic, partition, from_offset, until_offset = where
        super().__init__(
            f"{topic}-{partition} [{from_offset}, {until_offset}): {message}",
            topic=topic,
            partition=partition,
            from_offset=from_offset,
            until_offset=until_offset,
            **facts,
        )


class DataLossError(KafkaError, errors.DataLossError):
    """Unread records are lost. Fact: `cause`, as in the ledger: "retention", "truncation" or "recreation"."""

    cause: ClassVar[str] = ""


class RangeLostError(_RangeError, DataLossError):
    """The loss of records of one range. Facts: lost_from, lost_until, resume_at.

    The offsets [lost_from, lost_until) are lost. `resume_at` is the next offset that can be read. If it is the range's end or more, no
    later record of the range can be read.
    """

    lost_from: int
    lost_until: int
    resume_at: int


class RecordsRemovedError(RangeLostError):
    """The log begins after the next offset to read. Facts: at (that offset), earliest, latest, and those of RangeLostError."""

    cause = "retention"

    def __init__(self, where: tuple[str, int, int, int], at: int, earliest: int, latest: int | None) -> None:
        end = min(earliest, where[3])
        super().__init__(
            where,
            f"records [{at}, {end}) were removed before they were read, {end - at} offsets: the log starts at {earliest} now and ends at "
            f"{latest}. Retention or deleteRecords was faster than this stream: give the topic a longer retention. {CONTINUE_HINT}",
            at=at,
            earliest=earliest,
            latest=latest,
            lost_from=at,
            lost_until=end,
            resume_at=earliest,
        )


class LogTruncatedError(RangeLostError):
    """The log was cut below an offset that was read or planned. Facts: reason, and those of RangeLostError.

    `lost` are the lost offsets: (the first one, the offset after the last one).
    """

    cause = "truncation"

    def __init__(self, where: tuple[str, int, int, int], lost: tuple[int, int], resume_at: int, reason: str) -> None:
        super().__init__(
            where,
            f"{reason}. An unclean leader election cut the log since the range was planned, or the range never existed. Records "
            f"[{lost[0]}, {lost[1]}) are lost, and no record that replaced them was yielded. {CONTINUE_HINT}",
            reason=reason,
            lost_from=lost[0],
            lost_until=lost[1],
            resume_at=resume_at,
        )


class LogShrankError(DataLossError):
    """Partitions end before their next offset to read. Fact: partitions, a list of (topic, partition, next, latest)."""

    cause = "truncation"

    def __init__(self, partitions: Sequence[tuple[str, int, int, int]]) -> None:
        rows = "; ".join(f"{t}-{p}: next to read is {at}, the log ends at {end}" for t, p, at, end in partitions[:5])
        super().__init__(
            f"{len(partitions)} partition(s) end before the offset reached ({rows}), and the topic is still the same: an unclean leader "
            f"election cut the log. If this lasts, the records between are lost. {CONTINUE_HINT}",
            partitions=list(partitions),
        )


class TopicRecreatedError(DataLossError):
    """A topic was deleted and created again. Facts: topic, planned_id, found_id, ranges (a list of (partition, from, until))."""

    cause = "recreation"

    def __init__(self, topic: str, planned_id: str, found_id: str, ranges: Sequence[tuple[int, int, int]]) -> None:
        rows = ", ".join(f"{p} [{a}, {b})" if a < b else f"{p} at {a}" for p, a, b in ranges[:5])
        more = f" … ({len(ranges)} in all)" if len(ranges) > 5 else ""
        super().__init__(
            f"Topic {topic!r} was deleted and created again: its id was {planned_id} and is {found_id} now. The offsets of its partitions "
            f"({rows}{more}) are those of the old topic, whose unread records are lost; no record of the new one was yielded. To read the "
            f"new topic from its beginning: `kstream offsets reset CHECKPOINT --topic {topic} --to earliest`, or onDataLoss='skip'.",
            topic=topic,
            planned_id=planned_id,
            found_id=found_id,
            ranges=list(ranges),
        )


class PollTimeoutError(_RangeError):
    """No record of a range came in time. Facts: at (the next offset to read), waited_ms, reason (the client's last error, may be empty)."""

    retriable = True

    def __init__(self, where: tuple[str, int, int, int], at: int, waited_ms: int, reason: str = "") -> None:
        because = f" The client says: {reason}." if reason else ""
        super().__init__(
            where,
            f"no record at or after offset {at} came within {waited_ms} ms (spark.streaming.kafka.consumer.poll.ms).{because} "
            "Check that the executors reach the brokers.",
            at=at,
            waited_ms=waited_ms,
            reason=reason,
        )


class MalformedValueError(KafkaError):
    """The value of a record does not fit the schema of its query. Facts: topic, partition, offset, reason."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition}, offset {offset}: the value {reason}. It does not fit the schema of the query. Mend the schema or the "
            "record; in the mode permissive its fields are null.",
            topic=topic,
            partition=partition,
            offset=offset,
            reason=reason,
        )


class RowEncodingError(KafkaError):
    """The column `value` of a row that is to be written does not fit its format. Facts: row, task, format, reason."""

    def __init__(self, row: int, task: int, format: str, reason: str) -> None:
        super().__init__(
            f"Row {row} of partition {task} of the frame cannot be written as {format}: the value {reason}. Mend the row in the query, or "
            "the schema. Under exactly-once nothing of its batch is written.",
            row=row,
            task=task,
            format=format,
            reason=reason,
        )


class ProducerFencedError(KafkaError):
    """Another producer has taken a transactional id, so this one can write no more. Facts: transactional_id, reason."""

    retriable = True

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(
            f"Another producer has taken the transactional id {transactional_id} ({reason.rstrip('.')}). It is that of another attempt, "
            "or of another driver.",
            transactional_id=transactional_id,
            reason=reason,
        )


class CommitUnknownError(KafkaError):
    """A commit of a transaction had no answer: the records may be there or not. Facts: transactional_id, reason."""

    retriable = True

    def __init__(self, transactional_id: str, reason: str) -> None:
        super().__init__(
            f"The commit of a transaction had no answer (transactional id {transactional_id}): {_stopped(reason)} The next try looks for "
            "its receipt, and writes only what is not there.",
            transactional_id=transactional_id,
            reason=reason,
        )


class RecordTooLargeError(KafkaError):
    """A record that is to be written is larger than `max.request.size`. Facts: topic, size, most."""

    def __init__(self, output: str, topic: str, size: int, most: int) -> None:
        super().__init__(
            f"output {output}: a record for topic {topic} has {size} bytes, and max.request.size allows {most}. Raise it in kafkaParams if "
            "max.message.bytes of the topic allows more",
            topic=topic,
            size=size,
            most=most,
        )


class ReceiptsLostError(KafkaError, errors.OutputChangedError):
    """The topic with the receipts of an exactly-once output or query is gone or was made anew. Facts: output, topic."""

    def __init__(self, output: str, topic: str, words: str) -> None:
        super().__init__(
            f"output {output}: {words}. Without its receipts kstream cannot know which batches Kafka has. Restore topic {topic}. Or give "
            "the output another name, a query another prefix: then it writes all pending batches, and what is there of them a second time.",
            output=output,
            topic=topic,
        )


class SchemaRegistryUnreachableError(KafkaError):
    """No schema registry answered, after the retries of its client. Facts: url, reason."""

    retriable = True

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"The schema registry {url} did not answer: {_stopped(reason)} Check that it runs, that the workers reach this URL, "
            "and the certificate (ssl.ca.location). max.retries and retries.wait.ms say how long its client tries.",
            url=url,
            reason=reason,
        )


class SchemaRegistryRefusedError(KafkaError):
    """A schema registry refuses the user, the request or the schema. Facts: url, status (of HTTP), reason."""

    status: int

    def __init__(self, url: str, status: int, reason: str) -> None:
        login, path = " Check basic.auth.user.info, and what the user may do there.", " Check the path of the URL, and a proxy before it."
        hint = {401: login, 403: login, 404: path}.get(status, "")
        super().__init__(
            f"The schema registry {url} refuses a request (HTTP {status}): {_stopped(reason)}{hint}", url=url, status=status, reason=reason
        )


class ZooKeeperUnreachableError(KafkaError):
    """The ZooKeeper of a receiver did not answer. Facts: quorum, waited_ms."""

    retriable = True

    def __init__(self, quorum: str, waited_ms: int) -> None:
        super().__init__(
            f"No ZooKeeper of {quorum} answered within {waited_ms} ms (zookeeper.connection.timeout.ms). Check that it runs, and that "
            "zkQuorum is its client port: a receiver's offsets are there.",
            quorum=quorum,
            waited_ms=waited_ms,
        )


class OwnershipLostError(KafkaError):
    """A consumer's membership of its group is over, so the consumer may acknowledge no more records. Facts: consumer, reason."""

    retriable = True

    def __init__(self, consumer: str, reason: str) -> None:
        super().__init__(
            f"Consumer {consumer} is no longer a member of its group ({reason}). Records that it had not acknowledged are read again "
            "from the offsets in ZooKeeper. If this happens often, give zookeeper.session.timeout.ms more time.",
            consumer=consumer,
            reason=reason,
        )
