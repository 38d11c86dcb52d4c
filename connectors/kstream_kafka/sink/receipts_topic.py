"""ReceiptsTopic: the topic of the receipts, as the driver makes it and takes it over."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace

from kstream.output import Writer
from kstream.sinks.receipt import check_fence, check_is_of_checkpoint
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.record_producer import RecordProducer, store
from kstream_kafka.client.topic_reader import TopicReader
from kstream_kafka.errors import KafkaConfigError, KafkaError, ReceiptsLostError, UnknownTopicError
from kstream_kafka.planning.subscription import Topics
from kstream_kafka.sink.broker_probe import check_is_broker, check_transactions
from kstream_kafka.sink.receipt import FENCES, Fence, GivenUp, encode_fence, encode_given_up, fence_key, given_up_key
from kstream_kafka.sink.receipts import READ_S, Control, FoundReceipt, Receipts, control_of, is_control

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
        fenced: partition of the topic → the offset behind this driver's fence there. Behind it no earlier driver has receipts.
        accepted: the batches, in ms, that `kstream sink accept` names.
        given_up: those that a driver has noted as given up.
    """

    receipts: Receipts
    topic_id: str
    begins: dict[int, int]
    fenced: dict[int, int]
    accepted: frozenset[int]
    given_up: frozenset[int]


class ReceiptsTopic:
    """The topic of the receipts of one output. Driver; one thread. All methods block on the brokers."""

    def __init__(self, params: KafkaParams, prefix: str, output: str) -> None:
        """
        Args:
            params: the Kafka parameters.
            prefix: begins the name of the topic, and the transactional ids.
            output: the name of the output.
        """
        self.name = receipts_topic(prefix)
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
            KafkaConfigError: the brokers do not keep what transactions promise, or the topic cannot have receipts.
            KafkaError: the brokers do not answer, or refuse this client.
        """
        with closing(KafkaDriverClient(self._params)) as client:
            check_is_broker(client)
            topic_id, partitions = self.found(client, known_id)
            seen = self._control(driver, reader).fences
            before = max(seen, key=lambda fence: fence.epoch, default=None)
            if before is None and known_id is not None:
                raise self.lost(f"topic {self.name} has lost its fence")
            if known_id is None:
                self._check_is_newest(driver)
            if before is None:
                ends = client.latest([(self.name, partition) for partition in partitions])
                begins = {partition: end.offset for (_, partition), end in ends.items()}
            else:
                begins = {**dict.fromkeys(range(FENCES + 1, FENCES + 1 + before.num_partitions), 0), **begins}
        if before is not None:
            check_is_of_checkpoint(self._output, (before.epoch, before.writer), driver.nonce_of)
        receipts = Receipts(self.name, driver.job, self._output, Fence(driver.epoch, driver.nonce, len(begins)), 0, self._prefix)
        found = receipts.look(reader, begins, READ_S, waits=False).receipts
        receipts.judged(reader, lambda: check(found))
        if before is None:
            check_transactions(self._params, reader, self.name, FENCES, f"{self._prefix}-{driver.job}-{self._output}-probe", READ_S)
        receipts = replace(receipts, fences_end=self._append(receipts, [FENCES])[FENCES])
        control = self._look_again(driver, reader, receipts, seen)
        return TakenOver(receipts, topic_id, dict(begins), self._append(receipts, begins), control.accepted, control.given_up)

    def give_up(self, receipts: Receipts, batch: GivenUp) -> None:
        """Write that a batch is given up, so that an audit tells its records from lost ones. Blocks on the brokers.

        Args:
            receipts: name this driver.
            batch: the batch.
        """
        key = given_up_key(receipts.job, receipts.output, batch.time_ms)
        words = f"output {receipts.output}: it could not be noted that batch {batch.time_ms} ms is given up"
        store(RecordProducer(self._params.producer()), self.name, key, encode_given_up(batch), {FENCES}, words)

    def check_is_there(self, known_id: str | None) -> None:
        """Raise ReceiptsLostError if the topic is gone or was made anew, while its driver lives. Blocks on the brokers."""
        with closing(KafkaDriverClient(self._params)) as client:
            self._check_id(client, known_id)

    def found(self, client: KafkaDriverClient, known_id: str | None) -> tuple[str, frozenset[int]]:
        """Return the id of the topic, and its partitions for receipts. Make the topic if there is none and no driver has completed a batch.

        ReceiptsLostError if it is gone, or is another one. KafkaConfigError if it cannot have receipts.
        """
        if known_id is None:
            client.create_topic(self.name, FENCES + 1 + NEW_PARTITIONS, NEW_TOPIC)
        try:
            partitions = frozenset(partition for _, partition in client.partitions(Topics((self.name,)))) - {FENCES}
        except UnknownTopicError as e:
            raise self.lost(f"topic {self.name} is gone") from e
        found = self._check_id(client, known_id)
        policy = client.topic_setting(self.name, "cleanup.policy")
        if not partitions or (policy is not None and "compact" not in policy):
            hint = f"Make it with 17 partitions and cleanup.policy=compact, or let kstream make topic {self.name}."
            raise KafkaConfigError("prefix", f"names topic {self.name}, which has one partition only or is not compacted", hint)
        return found, partitions

    def _check_is_newest(self, driver: Writer) -> None:
        """Raise FencedError if the checkpoint has a later driver. Its fence may be gone, and this driver knows of no topic to miss."""
        later = driver.nonce_of(driver.epoch + 1)
        if later is not None:
            check_fence(self._output, self.name, (driver.epoch, driver.nonce), (driver.epoch + 1, later))

    def _look_again(self, driver: Writer, reader: TopicReader, receipts: Receipts, seen: Sequence[Fence]) -> Control:
        """Look at all fences up to this driver's own, which an answer of a broker that was away has not. Return what is there.

        Args:
            driver, reader: as for `take_over`.
            receipts: name the fence of this driver.
            seen: the fences that were there before.

        Raises:
            FencedError: another driver has been faster.
            OutputChangedError: a fence that was not seen before is not one of this checkpoint.
            KafkaError: no fence was seen before, and one is there: the receipts that it stands for must be read. The next try does.
        """
        control = self._control(driver, reader, receipts.fences_end)
        fences = control.fences
        for fence in fences:
            receipts.check_driver(fence)
        missed = [fence for fence in fences if fence not in seen and fence != receipts.fence]
        for fence in missed:
            check_is_of_checkpoint(self._output, (fence.epoch, fence.writer), driver.nonce_of)
        if missed and not seen:
            raise KafkaError(f"output {self._output}: a broker that was away has answered for topic {self.name}", reason="an old answer")
        return control

    def lost(self, words: str) -> ReceiptsLostError:
        """Return the error that says that receipts are gone. `words`: what has happened, a clause."""
        return ReceiptsLostError(self._output, self.name, words)

    def _check_id(self, client: KafkaDriverClient, known_id: str | None) -> str:
        """Return the id of the topic. ReceiptsLostError if another one is known."""
        found = client.topic_ids([self.name]).get(self.name)
        if found is None and known_id is not None:
            raise self.lost(f"topic {self.name} is gone")
        if found is None:
            raise KafkaError(f"output {self._output}: Kafka tells no id of topic {self.name}; brokers from 2.8 on do")
        if known_id not in (None, found):
            raise self.lost(f"topic {self.name} was deleted and made anew")
        return found

    def _control(self, driver: Writer, reader: TopicReader, until: int | None = None) -> Control:
        """Return what the partition of the fences has. `until`: the offset that must be reached; None for the end."""
        target = None if until is None else {FENCES: until}
        messages = reader.read(self.name, {FENCES: 0}, READ_S, lambda key: is_control(key, driver.job, self._output), target).messages
        return control_of(messages, driver.job, self._output)

    def _append(self, receipts: Receipts, partitions: Iterable[int]) -> dict[int, int]:
        """Write the fence of this driver to partitions of the topic. Return partition → the offset behind it."""
        # An idempotent producer waits half a second for its id. A fence that is there twice says the same.
        producer = RecordProducer({**self._params.producer(), "enable.idempotence": "false"})
        key, value = fence_key(receipts.job, receipts.output, receipts.fence), encode_fence(receipts.fence)
        offsets = store(producer, self.name, key, value, set(partitions), f"output {self._output}: its fence could not be written")
        return {partition: offset + 1 for partition, offset in offsets.items()}


def receipts_topic(prefix: str) -> str:
    return f"{prefix}-receipts"
