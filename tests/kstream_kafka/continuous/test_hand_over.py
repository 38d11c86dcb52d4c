"""KafkaHandOver: the ids are taken, and then the receipts that are read are all that there will be of the earlier tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.topic_reader import ReadLog
from kstream_kafka.continuous import hand_over
from kstream_kafka.continuous.epoch_receipt import epoch_key, input_partition_of, marker_key
from kstream_kafka.continuous.epoch_writer import EpochWriter, KafkaEpochOutput
from kstream_kafka.continuous.hand_over import KafkaHandOver
from kstream_kafka.errors import BrokerUnreachableError, KafkaConfigError, KafkaError, ReceiptsLostError
from kstream_kafka.sink.producer_record import RecordEncoder
from kstream_kafka.sink.receipt import receipt_key

from kstream.continuous.ports import EpochReceipt
from kstream.errors import CorruptRecordError, FencedError
from tests.kstream_kafka.sink.fake_kafka import FakeKafka, FakeReader, Open, installed

ZERO, ONE, TWO = ("in", 0), ("in", 1), ("in", 2)
PARAMS = KafkaParams.parse({"bootstrap.servers": "fake:1"})
TOPIC = "p-receipts"


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = installed(monkeypatch)
    made.create("out", 1)
    return made


def driver(known_id: str | None = None) -> KafkaHandOver:
    return KafkaHandOver(PARAMS, "p", "job", "totals", known_id)


def a_task(hands: KafkaHandOver, task: int, generation: int = 1) -> KafkaEpochOutput:
    made = KafkaEpochOutput(hands.place(), EpochWriter(task, generation, 3), {}, RecordEncoder("totals", "out"), 60_000)
    made.open()
    return made


class Reads:
    """What reads of receipts ask for."""

    def __init__(self, kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: list[tuple[dict[int, int], dict[int, int]]] = []
        outer = self

        class Reader(FakeReader):
            def read(
                self,
                topic: str,
                begins: Mapping[int, int],
                _seconds: float,
                wants: Callable[[bytes | None], bool] = lambda _: True,
                until: Mapping[int, int] | None = None,
                waits: bool = True,
                least: Mapping[int, int] | None = None,
            ) -> ReadLog:
                if until is not None:
                    outer.asked.append((dict(begins), dict(until)))
                return super().read(topic, begins, _seconds, wants, until, waits, least)

        monkeypatch.setattr(hand_over, "TopicReader", lambda _settings: Reader(kafka))


def test_after_the_fence_no_task_commits_and_the_receipts_say_what_is_written(kafka: FakeKafka) -> None:
    hands = driver()
    tasks = [a_task(hands, 0), a_task(hands, 1)]
    tasks[0].end({ZERO: 5, ONE: 7})
    tasks[0].end({ZERO: 6})
    tasks[1].add([b"late"])
    kafka.on["flush"] = lambda: driver().fence([0, 1])
    with pytest.raises(FencedError):
        tasks[1].end({TWO: 9})
    with pytest.raises(FencedError):
        tasks[0].end({ZERO: 8})
    assert hands.receipts([ZERO, ONE, TWO]) == {ZERO: EpochReceipt(6, 1), ONE: EpochReceipt(7, 1)}
    assert kafka.values("out") == []


def test_the_receipts_of_other_outputs_and_markers_are_none(kafka: FakeKafka) -> None:
    hands = driver()
    place = hands.place()
    for key in (epoch_key("job", "other", ZERO), epoch_key("j", "totals", ZERO), receipt_key("job", "totals", 0), None, b"text"):
        kafka.append(TOPIC, place.place(ZERO), key, b"{}")
    kafka.append(TOPIC, place.place(ZERO), epoch_key("job", "totals", ZERO), None)
    assert hands.receipts([ZERO]) == {} and hands.receipts([]) == {}


def test_a_read_goes_up_to_its_own_marker_and_the_next_one_begins_behind_it(kafka: FakeKafka, monkeypatch: pytest.MonkeyPatch) -> None:
    reads = Reads(kafka, monkeypatch)
    hands = driver()
    task, place = a_task(hands, 0), hands.place().place(ZERO)
    task.end({ZERO: 5})
    kafka.append(TOPIC, place, b"of somebody else", b"")
    assert hands.receipts([ZERO]) == {ZERO: EpochReceipt(5, 1)}
    log = kafka.topics[TOPIC][1][place]
    marked = [entry.at for entry in log if entry.its_key == marker_key("job", "totals")]
    assert reads.asked == [({place: 0}, {place: marked[0] + 1})] and marked == [len(log) - 1]
    task.end({ZERO: 6})
    assert hands.receipts([ZERO, ONE])[ZERO] == EpochReceipt(6, 1)
    assert reads.asked[1][0] == {place: marked[0] + 1, hands.place().place(ONE): 0}


def test_an_open_transaction_holds_up_a_read_and_the_next_read_has_it_all(kafka: FakeKafka) -> None:
    hands = driver()
    place = hands.place().place(ZERO)
    a_task(hands, 0).end({ZERO: 5})
    opened = kafka.open["other"] = Open()
    kafka.append(TOPIC, place, b"open", b"", opened)
    with pytest.raises(BrokerUnreachableError):
        hands.receipts([ZERO])
    kafka.end("other", is_committed=False)
    assert hands.receipts([ZERO]) == {ZERO: EpochReceipt(5, 1)}


def test_a_later_driver_finds_the_receipts_of_all_generations(kafka: FakeKafka) -> None:
    first = driver()
    a_task(first, 0, 1).end({ZERO: 5})
    a_task(first, 1, 2).end({ZERO: 9, ONE: 4})
    second = driver(first.topic_id)
    assert second.receipts([ZERO, ONE]) == {ZERO: EpochReceipt(9, 2), ONE: EpochReceipt(4, 2)}


def test_a_topic_that_was_made_anew_has_lost_the_receipts(kafka: FakeKafka) -> None:
    hands = driver()
    for position in (5, 6):
        a_task(hands, 0).end({ZERO: position})
    hands.receipts([ZERO])
    kafka.create(TOPIC, 17)
    with pytest.raises(ReceiptsLostError, match="was deleted and made anew"):
        hands.receipts([ZERO])
    with pytest.raises(ReceiptsLostError, match="was deleted and made anew"):
        driver("id 2").place()


def test_brokers_without_transactions_are_refused_before_an_id_is_taken(kafka: FakeKafka) -> None:
    kafka.fences = False
    with pytest.raises(KafkaConfigError, match="let an earlier producer commit"):
        driver().fence([0])
    assert [name for name in kafka.epochs if "continuous" in name] == []


def test_a_marker_that_is_not_stored_ends_the_read(kafka: FakeKafka) -> None:
    hands = driver()
    hands.place()

    def refuse() -> None:
        raise KafkaError("refused")

    kafka.on["fence"] = refuse
    with pytest.raises(KafkaError, match="refused"):
        hands.receipts([ZERO])


def test_a_receipt_of_another_version_is_an_error(kafka: FakeKafka) -> None:
    hands = driver()
    key = epoch_key("job", "totals", ZERO)
    assert input_partition_of(key, "job", "totals") == ZERO
    kafka.append(TOPIC, hands.place().place(ZERO), key, b'{"version":2}')
    with pytest.raises(CorruptRecordError):
        hands.receipts([ZERO])
