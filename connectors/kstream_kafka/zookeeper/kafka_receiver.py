"""KafkaReceiver and ReliableKafkaReceiver, and the stream of `KafkaUtils.createStream`: a receiver and the decoding of its records."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from kstream.clock import Clock, SystemClock
from kstream.receiver import Receiver
from kstream_kafka.zookeeper.group_member import GroupMember, ReceiverParts
from kstream_kafka.zookeeper.group_reader import open_reader
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, AfterStoring, OnTimer
from kstream_kafka.zookeeper.zookeeper_offsets import check_installed, join

if TYPE_CHECKING:
    from kstream.context import StreamingContext
    from kstream.dstream.dstream import DStream

Decoder: TypeAlias = "Callable[[Any], Any] | None"
SECRETS = "Kafka parameters that may hold a secret are never stored, and a receiver stream has them"


def system_clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


PARTS = ReceiverParts(join, open_reader, system_clock)
"""ZooKeeper, Kafka and the machine's clock."""


class KafkaReceiver(Receiver):
    """The plain receiver: one consumer of a group in ZooKeeper, with a share of the topics' partitions. Records are (key, value) in bytes.

    It writes the offsets of all records that it has read, stored or not, every `auto.commit.interval.ms`. Records in no stored block are
    lost with the process. `ReliableKafkaReceiver` loses none. `KafkaUtils.createStream` creates it.
    """

    def __init__(self, settings: ReceiverSettings, storageLevel: Any = None, parts: ReceiverParts = PARTS) -> None:
        """Create the receiver. Sends no request. Only tests give other `parts`."""
        super().__init__(storageLevel)
        self.settings = settings
        self._parts = parts
        self._member: GroupMember | None = None

    def onStart(self) -> None:
        """Start the member's thread and return at once. Errors of ZooKeeper and Kafka come as a restart with the error."""
        self._member = GroupMember(self.settings, self._parts, self, self._acknowledgement)
        self._member.start()

    def onStop(self) -> None:
        """Block until all records are stored, the offsets are written and the claims released.

        If ZooKeeper does not answer, the wait is short, and records without acknowledgement come again.
        """
        if self._member is not None:
            self._member.stop()
            self._member = None

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        return OnTimer(self.settings.commit_interval_ms if self.settings.commits_on_timer else None, now_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_member": None}


class ReliableKafkaReceiver(KafkaReceiver):
    """As `KafkaReceiver`, but the offsets of a block are written to ZooKeeper only after the block was stored.

    At least once: when a receiver dies, restarts or loses its session, records that were read and not stored are read again, by it or by
    another consumer of the group. Records that were stored and not acknowledged come twice. A block is stored in three tries; after the
    third failure the receiver restarts at the offsets in ZooKeeper, and no offset behind that block was acknowledged.

    Without a write-ahead log, stored blocks die with the driver although their offsets are written.
    """

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        return AfterStoring()


@dataclass(frozen=True)
class Decoders:
    """Decodes a partition of received records in a batch's task, as in Spark 2.4.

    A record that cannot be decoded fails its batch with the decoder's error, and not the receiver.
    """

    key: Decoder
    value: Decoder

    def __call__(self, records: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        key, value = self.key or _same, self.value or _same
        return [(key(k), value(v)) for k, v in records]


def receiver_stream(
    ssc: StreamingContext, given: tuple[Any, Any, Any, Any], storageLevel: Any, key: Decoder, value: Decoder, *, reliable: bool
) -> DStream[Any]:
    """Create the stream of `KafkaUtils.createStream`. Errors as there.

    Args:
        ssc: the StreamingContext.
        given: the arguments of `ReceiverSettings.parse`.
        storageLevel: the storage level of received blocks.
        key: bytes → key; None leaves bytes.
        value: bytes → value; None leaves bytes.
        reliable: whether offsets are written after storing.
    """
    from kstream.dstream.recipe import recorder_of  # the receiver on an executor needs no streams

    settings = ReceiverSettings.parse(*given)
    check_installed()
    kind = ReliableKafkaReceiver if reliable else KafkaReceiver
    if settings.params.storable() is None:
        recorder = recorder_of(ssc)
        recorder.why_not = recorder.why_not or SECRETS
    received = ssc.receiverStream(kind(settings, storageLevel))
    return received if key is None and value is None else received.mapPartitions(Decoders(key, value))


def _same(raw: Any) -> Any:
    return raw
