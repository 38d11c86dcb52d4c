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
# The reason for which recovery=graph cannot store such a stream.
SECRETS = "Kafka parameters that may hold a secret are never stored, and a receiver stream has them"


def system_clock() -> Clock:
    """Return the machine's clock."""
    return SystemClock()


PARTS = ReceiverParts(join, open_reader, system_clock)
"""The parts that connect to ZooKeeper and Kafka, and the machine's clock."""


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
        """Start the member's thread and return at once. An error of ZooKeeper or Kafka later restarts the receiver with that error."""
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
        """Return the rule that decides when offsets are written. `now_ms` is the monotonic time."""
        return OnTimer(self.settings.commit_interval_ms if self.settings.commits_on_timer else None, now_ms)

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickling, without the running member."""
        return {**super().__getstate__(), "_member": None}


class ReliableKafkaReceiver(KafkaReceiver):
    """A `KafkaReceiver` that writes the offsets of a block to ZooKeeper only after the block was stored.

    Each record comes at least once. When a receiver dies, restarts or loses its session, this receiver or another consumer of the group
    reads the records again that were not stored. Records that were stored and not acknowledged come twice. A block is stored in three
    tries. After the third failure the receiver restarts at the offsets in ZooKeeper, and no offset past that block was acknowledged.

    Without a write-ahead log, stored blocks die with the driver although their offsets are written.
    """

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        """Return the rule that writes the offsets of a block once the block is stored."""
        return AfterStoring()


@dataclass(frozen=True)
class Decoders:
    """Decodes a partition of received records in a batch's task, as in Spark 2.4.

    An error of a decoder fails the batch, and not the receiver. A decoder that is None leaves the bytes.
    """

    key: Decoder
    value: Decoder

    def __call__(self, records: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        """Return the decoded (key, value) pairs of a partition. An error of a decoder passes."""
        key, value = self.key or _same, self.value or _same
        return [(key(k), value(v)) for k, v in records]


def receiver_stream(
    ssc: StreamingContext, given: tuple[Any, Any, Any, Any], storageLevel: Any, key: Decoder, value: Decoder, *, reliable: bool
) -> DStream[Any]:
    """Create the stream of `KafkaUtils.createStream`. Sends no request.

    Args:
        ssc: the StreamingContext.
        given: the arguments of `ReceiverSettings.parse`.
        storageLevel: the storage level of received blocks.
        key: bytes → key; None leaves bytes.
        value: bytes → value; None leaves bytes.
        reliable: whether offsets are written after storing.

    Raises:
        KafkaConfigError: an argument or parameter cannot work.
        TypeError: an argument is of the wrong type.
        MissingDependencyError: kazoo is missing.
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
    """Return the bytes unchanged."""
    return raw
