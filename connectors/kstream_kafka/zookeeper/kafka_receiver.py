"""KafkaReceiver: the plain Kafka receiver of Spark 1.x and 2.x.

ReliableKafkaReceiver: the Kafka receiver that acknowledges what has been stored.

What `KafkaUtils.createStream` makes: a receiver, its stream, and the decoding of what it received.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream.clock import Clock, SystemClock
from kstream.receiver import Receiver
from kstream_kafka.zookeeper.group_member import GroupMember, Parts
from kstream_kafka.zookeeper.group_reader import open_reader
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, AfterStoring, OnTimer
from kstream_kafka.zookeeper.zookeeper_offsets import check_installed, join

if TYPE_CHECKING:
    from kstream.context import StreamingContext
    from kstream.dstream.dstream import DStream


def system_clock() -> Clock:
    return SystemClock()


PARTS = Parts(join, open_reader, system_clock)
"""ZooKeeper, Kafka and the machine's clock."""


class KafkaReceiver(Receiver):
    """Reads a share of the topics' partitions, as one consumer of a group that is in ZooKeeper. Records are (key, value) in bytes.

    Offsets are written every `auto.commit.interval.ms`, of what has been read by then, be it stored or not: records that are in no
    block yet are lost with the process. `ReliableKafkaReceiver` loses none. Made by `KafkaUtils.createStream`.
    """

    def __init__(self, settings: ReceiverSettings, storageLevel: Any = None, parts: Parts = PARTS) -> None:
        super().__init__(storageLevel)
        self.settings = settings
        self._parts = parts
        self._member: GroupMember | None = None

    def onStart(self) -> None:
        """Returns at once; ZooKeeper and Kafka are asked by a thread. What they refuse comes as a restart, with the error."""
        self._member = GroupMember(self.settings, self._parts, self, self._acknowledgement)
        self._member.start()

    def onStop(self) -> None:
        """Blocks until what was read is stored, the offsets are written and the claims given back. ZooKeeper that is away is waited for
        no more than a moment: what is not acknowledged then comes again."""
        if self._member is not None:
            self._member.stop()
            self._member = None

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        return OnTimer(self.settings.commit_interval_ms if self.settings.commits_on_timer else None, now_ms)

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_member": None}


class ReliableKafkaReceiver(KafkaReceiver):
    """As `KafkaReceiver`, but the offsets of a block are written to ZooKeeper only after the block has been stored.

    At least once: what was read and not stored when a receiver dies, restarts or loses its session is read again, by itself or by another
    consumer of the group; what was stored and not yet acknowledged comes twice. A block that cannot be stored is tried three times; then
    the receiver restarts at the offsets in ZooKeeper, and nothing behind that block has been acknowledged.

    "Stored" is what the stream makes of it: without a write-ahead log, stored blocks die with the driver although their offsets are
    written.
    """

    def _acknowledgement(self, now_ms: int) -> Acknowledgement:
        return AfterStoring()


Decoder = Callable[[Any], Any] | None
SECRETS = "Kafka parameters that may hold a secret are never stored, and a receiver stream has them"


@dataclass(frozen=True)
class Decoders:
    """Decodes a partition of what was received, in a batch's task as in Spark 2.4: a record that cannot be decoded fails its batch, with
    the decoder's own error, and not the receiver."""

    key: Decoder
    value: Decoder

    def __call__(self, records: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
        key, value = self.key or _same, self.value or _same
        return [(key(k), value(v)) for k, v in records]


def receiver_stream(
    ssc: StreamingContext, given: tuple[Any, Any, Any, Any], storageLevel: Any, key: Decoder, value: Decoder, *, reliable: bool
) -> DStream:
    """`given` is what ReceiverSettings.parse takes. Errors as `createStream`."""
    settings = ReceiverSettings.parse(*given)
    check_installed()
    kind = ReliableKafkaReceiver if reliable else KafkaReceiver
    if settings.params.storable() is None:
        ssc.recorder.why_not = ssc.recorder.why_not or SECRETS
    received = ssc.receiverStream(kind(settings, storageLevel))
    return received if key is None and value is None else received.mapPartitions(Decoders(key, value))


def _same(raw: Any) -> Any:
    return raw
