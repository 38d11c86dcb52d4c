"""The real client against librdkafka's mock cluster, in this process: no broker, no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kstream_kafka import OffsetRange
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, bulk, small
from kstream_kafka.errors import BrokerUnreachableError, LeaderNotAvailableError, LogTruncatedError
from kstream_kafka.planning.dead_letter import MOST_HEADERS
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.reader import range_consumer
from kstream_kafka.reader.headers import headers_of
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.reader.range_reader import read_range


@pytest.fixture(scope="module")
def params() -> Iterator[KafkaParams]:
    """Parameters for a cluster of one broker with 25 records in each of the 4 partitions of `orders`."""
    producer = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "replaced"})
    broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
    for i in range(100):
        producer.produce("orders", str(i), partition=i % 4)
    assert producer.flush(10) == 0
    yield KafkaParams.parse({"bootstrap.servers": f"{broker.host}:{broker.port}"})
    del producer


def test_the_driver_finds_partitions_and_both_ends(params: KafkaParams):
    """K8a: earliest and latest of every partition."""
    client = KafkaDriverClient(params)
    partitions = client.partitions(subscription(["orders"]))
    assert partitions == {("orders", i) for i in range(4)}
    assert {end.offset for end in client.latest(partitions).values()} == {25}
    assert {end.offset for end in client.earliest(partitions).values()} == {0}
    assert client.latest([]) == {}


@pytest.mark.parametrize("sized", [small, bulk])
def test_one_consumer_reads_one_range_after_the_other(params: KafkaParams, sized: object):
    assert callable(sized)
    consumer = KafkaRangeConsumer(sized(params.executor()))
    for partition, start, until in [(0, 0, 25), (3, 4, 5), (0, 20, 25), (0, 0, 1)]:
        chunks = read_range(consumer, OffsetRange("orders", partition, start, until), 20_000)
        assert [m.value() for chunk in chunks for m in chunk] == [b"%d" % (4 * i + partition) for i in range(start, until)]
        consumer.unassign()
    consumer.close()


def test_a_letter_with_the_most_headers_is_read_and_one_more_header_hides_them_all(params: KafkaParams):
    producer = Producer({"bootstrap.servers": params.bootstrap})
    for count in MOST_HEADERS, MOST_HEADERS + 1:
        headers: list[tuple[str, str | bytes | None]] = [("h", b"")] * count
        producer.produce("headers", b"x", headers=headers, partition=0)
    assert producer.flush(10) == 0
    consumer = KafkaRangeConsumer(small(params.executor()))
    messages = [m for chunk in read_range(consumer, OffsetRange("headers", 0, 0, 2), 20_000) for m in chunk]
    consumer.close()
    most, more = headers_of(messages)
    assert most is not None and len(most) == MOST_HEADERS and more is None


def test_ranges_that_are_not_there_are_told_apart(params: KafkaParams):
    consumer = KafkaRangeConsumer(small(params.executor()))
    with pytest.raises(LogTruncatedError, match="the partition ends at 25"):
        list(read_range(consumer, OffsetRange("orders", 0, 20, 40), 20_000))
    with pytest.raises(LogTruncatedError, match="offset 50 is past the log's end 25"):
        list(read_range(consumer, OffsetRange("orders", 0, 50, 60), 20_000))
    consumer.close()


class FallsSilent(KafkaRangeConsumer):
    """Loses what it fetches after the first records, as far as its reader can see, until it begins anew. Silence takes no real time.

    Attributes:
        until: how many assignments it takes until records come again.
    """

    def __init__(self, settings: Any, until: int) -> None:
        self.now, self.until, self.given, self.assignments, self.clients = 0.0, until, 0, 0, 0
        super().__init__(settings)

    def _connect(self) -> None:
        self.clients += 1
        super()._connect()

    def assign(self, begins: Any) -> None:
        self.assignments += 1
        super().assign(begins)

    def consume(self, num_messages: int, timeout: float) -> list[Any]:
        if self.given < 7:
            found = super().consume(min(num_messages, 7 - self.given), 10)
            self.given += len(found)
        elif self.assignments >= self.until:
            found = super().consume(num_messages, 10)
        else:
            super().consume(3, 0.2)
            found, self.now = [], self.now + 1
        return found


@pytest.mark.parametrize(("until", "clients"), [(2, 1), (3, 2)], ids=["assigned again", "replaced"])
def test_a_read_that_begins_anew_gives_each_record_once(params: KafkaParams, until: int, clients: int):
    consumer = FallsSilent(small(params.executor()), until)
    chunks = read_range(consumer, OffsetRange("orders", 1, 2, 25), 120_000, monotonic=lambda: consumer.now)
    assert [m.value() for chunk in chunks for m in chunk] == [b"%d" % (4 * i + 1) for i in range(2, 25)]
    assert (consumer.assignments, consumer.clients) == (until, clients)
    consumer.unassign()
    assert [m.offset() for chunk in read_range(consumer, OffsetRange("orders", 0, 0, 3), 20_000) for m in chunk] == [0, 1, 2]
    consumer.close()


class CutOffAdmin:
    """An AdminClient whose first answer has no offset and no error, as after the driver was frozen past its request's time."""

    def __init__(self, real: AdminClient) -> None:
        self._real = real
        self.asked = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def list_offsets(self, wanted: dict[TopicPartition, Any], **options: Any) -> Any:
        self.asked += 1
        if self.asked > 1:
            return self._real.list_offsets(wanted, **options)
        futures: dict[TopicPartition, Future[Any]] = {at: Future() for at in wanted}
        for future in futures.values():
            future.set_result(SimpleNamespace(offset=-1001, leader_epoch=None))
        return futures


def test_an_answer_without_an_offset_is_asked_for_again_and_never_taken_for_the_end_of_a_log(params: KafkaParams):
    client = KafkaDriverClient(params, max_retries=1)
    admin = client._admin = CutOffAdmin(client._admin)  # type: ignore[assignment]
    assert {end.offset for end in client.latest([("orders", 0), ("orders", 1)]).values()} == {25}
    assert admin.asked == 2


def test_an_answer_without_an_offset_that_lasts_is_an_error(params: KafkaParams):
    client = KafkaDriverClient(replace(params, own={"default.api.timeout.ms": 0}), max_retries=0)
    client._admin = CutOffAdmin(client._admin)  # type: ignore[assignment]
    with pytest.raises(LeaderNotAvailableError):
        client.latest([("orders", 0)])


def test_a_worker_that_reaches_no_broker_cannot_tell_topic_ids_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """This error is waited out, and one of a broker that refuses is not."""
    monkeypatch.setattr(range_consumer, "TOPIC_IDS_S", 0.2)
    consumer = KafkaRangeConsumer({"bootstrap.servers": "127.0.0.1:1", "group.id": "g"})
    with pytest.raises(BrokerUnreachableError, match="No Kafka broker of"):
        consumer.topic_ids(["t"])
    consumer.close()
