"""ReliableKafkaReceiver: the Kafka receiver that acknowledges what has been stored."""

from __future__ import annotations

from kstream_kafka.zookeeper.kafka_receiver import KafkaReceiver
from kstream_kafka.zookeeper.stored_offsets import Acknowledgement, AfterStoring


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
