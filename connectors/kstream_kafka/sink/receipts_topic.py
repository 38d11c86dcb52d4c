"""ReceiptsTopic: the topic of the receipts, as the driver makes it and takes it over."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kstream.dstream.output import Writer
from kstream.sinks.receipt import check_is_of_checkpoint
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.errors import KafkaConfigError, KafkaError, ReceiptsLostError, UnknownTopicError
from kstream_kafka.sink.receipt import FENCES, Fence, decode_fence, encode_fence, fence_key
from kstream_kafka.sink.receipts import READ_S, FoundReceipt, Receipts, where
from kstream_kafka.source.subscription import Topics

NEW_PARTITIONS = 16
"""How many partitions of a new topic have receipts."""
NEW_TOPIC = {"cleanup.policy": "compact", "segment.bytes": "16777216", "segment.ms": "3600000"}
"""Settings of a new topic. Only segments that are full or old are compacted: with small ones a start reads little."""


@dataclass(frozen=True, slots=True)
class TakenOver:
    """What a driver knows when it has taken over.

    Attributes:
        receipts: where the receipts are. They name this driver.
        topic_id: that of the topic.
        begins: partition of the topic → an offset before which no receipt of this output is.
    """

    receipts: Receipts
    topic_id: str
    begins: dict[int, int]


class ReceiptsTopic:
    """The topic of the receipts of one output. Driver; one thread. All methods block on the brokers."""

    def __init__(self, params: KafkaParams, prefix: str, output: str) -> None:
        """
        Args:
            params: the Kafka parameters.
            prefix: begins the name of the topic, and the transactional ids.
            output: the name of the output.
        """
        self.name = f"{prefix}-receipts"
        self._params = params
        self._prefix = prefix
        self._output = output

    def take_over(
        self,
        driver: Writer,
        reader: TopicReader,
        known_id: str | None,
        begins: Mapping[int, int],
        check: Callable[[Sequence[FoundReceipt]], object],
    ) -> TakenOver:
        """Let a driver write from now on, and no earlier one. Makes the topic if there is none. Idempotent.

        Transactions of earlier drivers end when their ids are taken, which comes after this.

        Args:
            driver: the driver.
            reader: reads the topic.
            known_id: the topic id that the checkpoint knows; None if no driver of it has completed a batch.
            begins: partition of the topic → the offset from which on receipts are looked for, as far as the checkpoint knows it.
            check: check(receipts) raises an error if this driver must not write. Then the driver that writes goes on.

        Raises:
            FencedError: a later driver may write.
            OutputChangedError: the fence is not one of this checkpoint.
            ReceiptsLostError: the topic is not the one that the checkpoint knows.
            KafkaError: the brokers do not answer, or refuse this client.
        """
        with closing(KafkaDriverClient(self._params)) as client:
            topic_id, places = self._found(client, known_id)
            before = max(self._fences(driver, reader), key=lambda fence: fence.epoch, default=None)
            if before is None and known_id is not None:
                raise self.lost(f"topic {self.name} has lost its fence")
            if before is None:
                ends = client.latest([(self.name, place) for place in places])
                begins = {place: end.offset for (_, place), end in ends.items()}
            else:
                begins = {**dict.fromkeys(range(FENCES + 1, FENCES + 1 + before.num_partitions), 0), **begins}
        if before is not None:
            check_is_of_checkpoint(self._output, (before.epoch, before.writer), driver.nonce_of)
        receipts = Receipts(self.name, driver.job, self._output, Fence(driver.epoch, driver.nonce, len(begins)), 0, self._prefix)
        check(receipts.look(reader, begins, READ_S, waits=False).receipts)
        receipts = replace(receipts, fences_end=self._append(receipts) + 1)
        for fence in self._fences(driver, reader):  # another driver may have been faster
            receipts.check_driver(fence)
        return TakenOver(receipts, topic_id, dict(begins))

    def lost(self, words: str) -> ReceiptsLostError:
        """Return the error that says that receipts are gone. `words`: what has happened, a clause."""
        return ReceiptsLostError(self._output, self.name, words)

    def _found(self, client: KafkaDriverClient, known_id: str | None) -> tuple[str, frozenset[int]]:
        """Return the id of the topic, and its partitions for receipts. Make the topic if there is none and no driver has completed a batch.

        ReceiptsLostError if it is gone, or is another one. KafkaConfigError if it cannot have receipts.
        """
        if known_id is None and client.create_topic(self.name, FENCES + 1 + NEW_PARTITIONS, NEW_TOPIC):
            client.latest([(self.name, partition) for partition in range(FENCES + 1 + NEW_PARTITIONS)])  # until its leaders answer
        try:
            places = frozenset(partition for _, partition in client.partitions(Topics((self.name,)))) - {FENCES}
        except UnknownTopicError as e:
            raise self.lost(f"topic {self.name} is gone") from e
        found = client.topic_ids([self.name]).get(self.name)
        if found is None:
            raise KafkaError(f"output {self._output}: Kafka tells no id of topic {self.name}; brokers from 2.8 on do")
        if known_id not in (None, found):
            raise self.lost(f"topic {self.name} was deleted and made anew")
        policy = client.topic_setting(self.name, "cleanup.policy")
        if not places or (policy is not None and "compact" not in policy):
            hint = f"Make it with 17 partitions and cleanup.policy=compact, or let kstream make topic {self.name}."
            raise KafkaConfigError("prefix", f"names topic {self.name}, which has one partition only or is not compacted", hint)
        return found, places

    def _fences(self, driver: Writer, reader: TopicReader) -> list[Fence]:
        """Return the fences of this output that are there, oldest first."""
        key = fence_key(driver.job, self._output)
        log = reader.read(self.name, {FENCES: 0}, READ_S, lambda found: found == key)
        return [decode_fence(message.value(), where(message)) for message in log.messages if message.value() is not None]

    def _append(self, receipts: Receipts) -> int:
        """Write the fence of this driver, and return its offset."""
        failures: list[str] = []
        offsets: list[int] = []
        # An idempotent producer waits half a second for its id. A fence that is there twice says the same.
        producer = RecordProducer({**self._params.producer(), "enable.idempotence": "false"})
        key, value = fence_key(receipts.job, receipts.output), encode_fence(receipts.fence)
        producer.send(self.name, key, value, (), failures.append, FENCES, lambda _, offset: offsets.append(offset))
        producer.flush()
        if not offsets:
            reason = failures[0] if failures else f"{self.name} has not answered"
            raise KafkaError(f"output {self._output}: its fence could not be written: {reason}", reason=reason)
        return offsets[0]
