"""Transaction: a Kafka transaction with a producer of its own.

librdkafka does not raise the epoch of a producer with each transaction (KIP-890), so the delayed end of one transaction could end the next
one of the same producer. So a producer is used for a second transaction only by who asks for it (`is_kept`), and only while none of its
requests can be on its way twice: no connection was lost, no request was sent again. What was sent once and is answered is not delayed.

Calls into librdkafka may block beyond their time-outs, for example when a coordinator was removed. So each of them runs under a watchdog.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any, TypeVar

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, Producer

from kstream_kafka.client.librdkafka import UNREACHABLE, ConnectionLog, LastClientError, map_error, new_client, text_of
from kstream_kafka.client.own_thread import begun
from kstream_kafka.client.ports import Encoded, Settings
from kstream_kafka.client.record_sending import send, send_all, too_large
from kstream_kafka.client.redaction import Properties
from kstream_kafka.errors import BrokerUnreachableError, CommitUnknownError, KafkaError, NotAuthorizedError, ProducerFencedError

T = TypeVar("T")
THREAD = "KafkaTransaction"
"""The name of the threads of calls."""
GRACE_S = 5.0
"""Seconds that a call may take beyond its own time-out."""
ABORT_S = 10.0
"""Seconds for the end of a transaction that has failed. Without it the brokers end the transaction after its time-out."""

METADATA_S = 2.0
"""Seconds for the metadata of a topic."""
RECONNECT_MS = 22
"""The pause before a connection is made again, in ms. The client also waits for half of it before it makes the first one to a broker."""

_FENCED = frozenset(
    {
        ClientError._FENCED,
        ClientError.PRODUCER_FENCED,
        ClientError.INVALID_PRODUCER_EPOCH,
        ClientError.INVALID_PRODUCER_ID_MAPPING,
    }
)


class Transaction:
    """One transaction. `open` may run in another thread; apart from that all calls come from one thread.

    The order of calls: `open`, `begin`, `send_all`, `send`, `flush`, `commit`; `close` in any case. While `can_go_on` is true, another
    `begin` may follow a commit.
    """

    def __init__(self, settings: Settings, transactional_id: str, timeout_ms: int, topic: str, is_kept: bool = False) -> None:
        """
        Args:
            settings: complete producer properties.
            transactional_id: the id. Only the producer that was opened last with an id can write.
            timeout_ms: after this time from `begin` on the brokers abort the transaction.
            topic: one that exists.
            is_kept: whether further transactions are to follow.
        """
        self._log = ConnectionLog(settings.get("debug")) if is_kept else None
        self._topic = topic
        self._bootstrap = str(settings.get("bootstrap.servers", ""))
        self._id = transactional_id
        self._seconds = timeout_ms / 1000
        self._last_error = LastClientError()
        self._settings = Properties(
            {
                "reconnect.backoff.ms": RECONNECT_MS,
                **settings,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": timeout_ms,
                "message.timeout.ms": timeout_ms,
                "delivery.report.only.error": False,
                "error_cb": self._last_error.note,
                **({} if self._log is None else self._log.settings),
            }
        )
        self._producer: Any = None
        self._has_begun = False

    def open(self) -> None:
        """Make the producer. The transactions of earlier producers of this id are ended, and these can write no more. Blocks.

        Raises:
            KafkaError: the brokers do not answer, or refuse this client.
        """
        self.make()
        self._connect()
        self._call("the transactional id could not be taken", lambda: self._producer.init_transactions(self._seconds), self._seconds)
        if self._log is not None:  # a request for the id that comes late fences this producer, and harms nothing
            self._producer.poll(0)
            self._log.has_repeats = False

    @property
    def can_go_on(self) -> bool:
        """Whether another transaction may follow by the same producer, once this one is committed."""
        return self._log is not None and self._log.is_live and not self._log.has_repeats

    def _connect(self) -> None:
        """Ask for metadata, until a connection is there on which the coordinator can be asked for. An outage shows in the next call.

        With the first metadata the client drops its connection to the bootstrap server. If it has asked for the coordinator there, the next
        look comes half a second later. So the metadata come first; and a second time, on a connection that stays.
        """
        for _ in range(2):
            with suppress(KafkaException, FutureTimeoutError):
                _within(METADATA_S + GRACE_S, lambda: self._producer.list_topics(self._topic, timeout=METADATA_S))

    def make(self) -> None:
        """Make the producer. Sends nothing. KafkaConfigError if librdkafka refuses a property."""
        self._producer = new_client(Producer, self._settings, self._log)

    def begin(self) -> None:
        """Begin the transaction. No request is sent."""
        self._call("the transaction could not begin", self._producer.begin_transaction, 0.0)
        self._has_begun = True

    def send_all(self, records: Iterable[Encoded]) -> None:
        """Add records. Blocks while the queue of the producer is full. Errors as `send`."""
        send_all(self._producer, records, self._refused)

    def send(self, record: Encoded, on_stored: Callable[[int, int], None] | None = None) -> None:
        """Add a record. Blocks while the queue of the producer is full. A record that cannot be stored fails a later `send` or `commit`.

        Args:
            record: the record.
            on_stored: called within a later call with partition and offset, once all replicas have the record.

        Raises:
            ProducerFencedError: another producer has taken the id.
            KafkaError: this record or an earlier one cannot be stored.
        """
        stored = None if on_stored is None else lambda error, m: None if error else on_stored(m.partition(), m.offset())
        try:
            send(self._producer, record, stored)
        except KafkaException as e:
            raise self._refused(record[0], e.args[0]) from e

    def _refused(self, topic: str, error: ClientError) -> KafkaError:
        return self._error(error, f"a record for topic {topic} was refused")

    def flush(self) -> None:
        """Wait until all records are stored. KafkaError if some have no answer in the time of the transaction."""
        left = self._call("records could not be stored", lambda: self._producer.flush(self._seconds), self._seconds)
        if left:
            raise BrokerUnreachableError(self._bootstrap, round(self._seconds * 1000), self._last_error.text)

    def failure(self) -> KafkaError | None:
        """Return why the transaction can only be aborted; None if it can be committed. Sends no request."""
        try:
            self._producer.begin_transaction()
        except KafkaException as e:
            return self._error(e.args[0], "records could not be stored") if e.args[0].txn_requires_abort() or e.args[0].fatal() else None
        return None

    def commit(self) -> None:
        """Commit. Blocks.

        Raises:
            CommitUnknownError: the brokers have not answered: the transaction may be committed or not.
            ProducerFencedError: another producer has taken the id: the transaction may be committed or not.
            KafkaError: records could not be stored, and the transaction is not committed. After answers that were lost it may be, too.
        """
        try:
            _within(self._seconds + GRACE_S, self._commit)
        except KafkaException as e:
            if e.args[0].txn_requires_abort():
                raise self._error(e.args[0], "the transaction could not be committed") from e
            self._has_begun = False  # an abort could meet a commit that is on its way
            if isinstance(error := self._error(e.args[0], "the transaction could not be committed"), ProducerFencedError):
                raise error from e
            raise CommitUnknownError(self._id, text_of(e.args[0])) from e
        except FutureTimeoutError as e:
            self._has_begun = False
            raise CommitUnknownError(self._id, self._last_error.text or "no answer in time") from e
        self._has_begun = False

    def _commit(self) -> None:
        self._producer.commit_transaction(self._seconds)
        self._producer.poll(0)  # so that the log has what was before the answer

    def close(self) -> None:
        """Abort what is not committed, and close the producer. Blocks for ABORT_S and twice GRACE_S at most. Raises nothing."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        if self._has_begun:
            self._has_begun = False
            with suppress(Exception):
                _within(ABORT_S + GRACE_S, lambda: producer.abort_transaction(ABORT_S))
        with suppress(Exception):  # clients before 2.13 have no `close`
            _within(GRACE_S, lambda: producer.close())

    def _call(self, failed: str, call: Callable[[], T], seconds: float) -> T:
        """Run a call into librdkafka. KafkaError if it fails, or does not return `GRACE_S` after its own time-out."""
        try:
            return _within(seconds + GRACE_S, call)
        except FutureTimeoutError as e:
            raise BrokerUnreachableError(self._bootstrap, round((seconds + GRACE_S) * 1000), f"{failed}, {self._last_error.text}") from e
        except KafkaException as e:
            raise self._error(e.args[0], failed) from e

    def _error(self, error: ClientError, failed: str) -> KafkaError:
        """Return the connector's error for an answer.

        After a first error librdkafka only says that the producer is in a wrong state. Its next `begin_transaction` has the first error.
        """
        if error.code() in (ClientError._FATAL, ClientError._STATE) and self._producer is not None:
            try:
                self._producer.begin_transaction()
            except KafkaException as e:
                error = e.args[0]
        code, reason = error.code(), text_of(error)
        if code in _FENCED:
            return ProducerFencedError(self._id, reason)
        if code == ClientError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED:
            return NotAuthorizedError(self._bootstrap, "WRITE", "transactional-id", self._id, reason)
        if code == ClientError.INVALID_TRANSACTION_TIMEOUT:
            return KafkaError(
                f"a transaction of {round(self._seconds)} s is needed for a partition of a batch, and the brokers allow less. Divide the "
                "batches into more partitions, or raise transaction.max.timeout.ms of the brokers",
                reason=reason,
            )
        if code == ClientError.MSG_SIZE_TOO_LARGE:
            return too_large("", reason)
        if code in UNREACHABLE:
            return BrokerUnreachableError(self._bootstrap, round(self._seconds * 1000), f"{failed}: {reason}{self._last_error.because}")
        return map_error(error, self._bootstrap, "WRITE", "", "")


def check_properties(settings: Settings, timeout_ms: int) -> None:
    """Check the properties of a producer. Sends nothing: a producer with a transactional id connects when the id is taken.

    Args:
        settings: complete producer properties.
        timeout_ms: the time-out of a transaction.

    Raises:
        KafkaConfigError: librdkafka refuses a property.
    """
    transaction = Transaction(settings, "kstream", timeout_ms, "")
    transaction.make()
    transaction.close()


def _within(seconds: float, call: Callable[[], T]) -> T:
    """Run a call in a thread of its own. TimeoutError of futures if it takes longer; the thread is abandoned then."""
    return begun(call, THREAD).result(seconds)
