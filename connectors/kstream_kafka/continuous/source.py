"""KafkaContinuousSource and KafkaContinuousTarget: Kafka's half of a continuous stream, in the driver."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from functools import partial
from typing import Any

from kstream.continuous.ports import EpochOutput, HandOver, TaskRun, UnboundedLog
from kstream.continuous.positions_only import AT_LEAST_ONCE_MS, EXACTLY_ONCE_MS, NoReceipts
from kstream.offsets.offset_range import Partition
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.continuous.epoch_writer import AtLeastOnceEpochOutput, EpochPlace, EpochWriter, KafkaEpochOutput
from kstream_kafka.continuous.hand_over import KafkaHandOver
from kstream_kafka.continuous.unbounded_reader import open_log
from kstream_kafka.planning.starting_offsets import OffsetResolver
from kstream_kafka.planning.subscription import ConsumerStrategy
from kstream_kafka.reader.decoding import Decoding, consumer_record, decoder_of
from kstream_kafka.sink.kafka_output import FAIL, KafkaTarget, encoder_and_target
from kstream_kafka.sink.producer_record import Encoded, RecordEncoder


class KafkaContinuousSource:
    """A ContinuousSource: the partitions of a consumer strategy."""

    def __init__(self, strategy: ConsumerStrategy) -> None:
        self._strategy = strategy
        given = strategy.given
        self._decoding = Decoding(
            decoder_of(given, "key.deserializer", None), decoder_of(given, "value.deserializer", None), consumer_record
        )

    def starts(self, known: Collection[Partition]) -> Mapping[Partition, int]:
        """Return the new partitions with their positions. KafkaError: the brokers do not answer, or a topic does not exist."""
        strategy = self._strategy
        resolver = OffsetResolver(strategy.params.reset, strategy.params.group, lambda: round(time.time() * 1000))
        with closing(KafkaDriverClient(strategy.params)) as client:
            new = client.partitions(strategy.topics) - set(known)
            return resolver.resolve(client, {partition: strategy.starting_offsets.of(partition) for partition in new}) if new else {}

    def open_log(self, topics: Collection[str]) -> Callable[[], UnboundedLog]:
        """Return what opens the log in a worker. It knows the ids that these topics have now."""
        params = self._strategy.params
        with closing(KafkaDriverClient(params)) as client:
            return partial(open_log, params, self._decoding, client.topic_ids(topics))


class KafkaContinuousTarget:
    """A ContinuousTarget: records that are encoded already."""

    def __init__(self, target: KafkaTarget) -> None:
        self._target = target
        self._place: EpochPlace | None = None

    @property
    def epoch_ms(self) -> int:
        return EXACTLY_ONCE_MS if self._target.is_exactly_once else AT_LEAST_ONCE_MS

    def hand_over(self, job: str) -> HandOver:
        """Return the hand-over; at least once there is none. Makes the topic of the receipts. KafkaError: the brokers refuse it."""
        target = self._target
        if not target.is_exactly_once:
            return NoReceipts()
        made = KafkaHandOver(target.params, target.prefix, job, target.name)
        self._place = made.place()
        return made

    def open_output(self, run: TaskRun, driver_epoch: int) -> Callable[[], EpochOutput]:
        """Return what opens the output of a run in its worker."""
        params: KafkaParams = self._target.params
        if self._place is None:
            return partial(AtLeastOnceEpochOutput, params.sink(), _encoded)
        writer = EpochWriter(run.task, run.generation, driver_epoch)
        return partial(KafkaEpochOutput, self._place, writer, params.sink(), _encoded, params.transaction_ms)


def continuous_output(
    topic: str | None,
    kafkaParams: Mapping[str, Any],
    functions: Mapping[str, Callable[[Any], Any] | None],
    delivery: str,
    name: str | None,
    prefix: str,
) -> tuple[RecordEncoder, KafkaContinuousTarget]:
    """Return the parts of `ContinuousStream.saveToKafka`: what encodes a record, and where it is written. A hook of the core."""
    encoder, target = encoder_and_target(topic, kafkaParams, functions, delivery, name, prefix, FAIL, audit=False)
    return encoder, KafkaContinuousTarget(target)


def _encoded(record: Encoded) -> Encoded:
    return record
