"""What `KafkaUtils.createStream` makes: a receiver, its stream, and the decoding of what it received."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kstream_kafka.zookeeper.kafka_receiver import KafkaReceiver
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.reliable_kafka_receiver import ReliableKafkaReceiver
from kstream_kafka.zookeeper.zookeeper_offsets import check_installed

if TYPE_CHECKING:
    from kstream.context import StreamingContext
    from kstream.dstream.dstream import DStream

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
