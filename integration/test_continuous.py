"""The Kafka half of continuous processing on a real broker, without Spark: runs of a task that are suspended or killed in their commit."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace

import pytest
from confluent_kafka import Consumer, TopicPartition
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.continuous.epoch_writer import AtLeastOnceEpochOutput, EpochWriter, KafkaEpochOutput
from kstream_kafka.continuous.hand_over import KafkaHandOver
from kstream_kafka.sink.producer_record import RecordEncoder

from integration.continuous_task import TaskProcess, TaskSpec
from integration.kafka_broker import Broker
from kstream.continuous.ports import EpochReceipt

pytestmark = pytest.mark.timeout(120)
RECORDS = [b"%d" % number for number in range(6)]


def committed(kafka: Broker, topic: str) -> list[bytes]:
    """What a consumer that has nothing of kstream reads of partition 0: the committed values, in their order."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "other", "enable.partition.eof": True})
    with closing(consumer):
        consumer.assign([TopicPartition(topic, 0, 0)])
        found: list[bytes] = []
        while (message := consumer.poll(10)) is not None and message.error() is None:
            found.append(message.value() or b"")
        assert message is not None, "the end was not reached"
        return found


@pytest.fixture
def hands(kafka: Broker, topic: Callable[..., str]) -> Iterator[KafkaHandOver]:
    """The driver's half of a new job."""
    made = KafkaHandOver(KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}), "kstream", topic(), "totals")
    with closing(made):
        yield made


@pytest.mark.parametrize("by", [signal.SIGSTOP, signal.SIGKILL])
def test_a_run_that_dies_in_its_commit_is_handed_over_and_each_record_is_written_once(
    kafka: Broker, topic: Callable[..., str], hands: KafkaHandOver, by: signal.Signals
) -> None:
    source, target = topic(), topic()
    kafka.produce(source, [(None, value, 0) for value in RECORDS])
    spec = TaskSpec(kafka.bootstrap, source, target, hands.place(), 1, 0, len(RECORDS), dies_at=3, dies_by=by)
    first = TaskProcess(spec)
    if by is signal.SIGSTOP:
        assert first.wait_suspended(), first.result()
    else:
        assert first.result() == (-by, "")
    hands.fence([0])
    assert hands.receipts([(source, 0)]) == {(source, 0): EpochReceipt(3, 1)}
    replace(spec, generation=2, begin=3, dies_at=-1).run()
    if by is signal.SIGSTOP:
        first.wake()
        assert first.result() == (0, "FencedError")
    assert hands.receipts([(source, 0), (source, 1)]) == {(source, 0): EpochReceipt(6, 2)}
    assert committed(kafka, target) == RECORDS


def test_an_epoch_without_outputs_is_known_to_the_next_driver(kafka: Broker, hands: KafkaHandOver) -> None:
    params = KafkaParams.parse({"bootstrap.servers": kafka.bootstrap})
    output = KafkaEpochOutput(hands.place(), EpochWriter(0, 1, 1), params.sink(), RecordEncoder("totals", None), 60_000)
    with closing(output):
        output.open()
        for position in (4, 5):
            output.end({("in", 0): position, ("in", 1): position})
        assert output.is_open
    place = hands.place()
    later = KafkaHandOver(params, place.prefix, place.job, place.output, hands.topic_id)
    with closing(later):
        assert later.receipts([("in", 0), ("in", 1), ("in", 2)]) == dict.fromkeys([("in", 0), ("in", 1)], EpochReceipt(5, 1))


def test_at_least_once_has_all_when_the_epoch_ends(kafka: Broker, topic: Callable[..., str]) -> None:
    target = topic()
    output = AtLeastOnceEpochOutput(KafkaParams.parse({"bootstrap.servers": kafka.bootstrap}).sink(), RecordEncoder("totals", target))
    with closing(output):
        output.open()
        output.add(RECORDS)
        output.end({("in", 0): 6})
        assert committed(kafka, target) == RECORDS
