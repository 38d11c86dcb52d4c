"""KafkaEpochOutput: an epoch with its receipts, or nothing of it; one producer for all epochs while its connections hold."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from kstream_kafka.client.ports import Encoded
from kstream_kafka.continuous import epoch_writer
from kstream_kafka.continuous.epoch_receipt import KafkaEpochReceipt, decode_epoch_receipt, input_partition_of
from kstream_kafka.continuous.epoch_writer import AtLeastOnceEpochOutput, EpochPlace, EpochWriter, KafkaEpochOutput
from kstream_kafka.errors import CommitUnknownError, KafkaError
from kstream_kafka.sink.producer_record import RecordEncoder
from kstream_kafka.sink.spool import digests_of

from kstream.errors import FencedError
from kstream.offsets.offset_range import Partition
from tests.kstream_kafka.sink.fake_kafka import FakeKafka, installed

PLACE = EpochPlace("p-receipts", 4, "p", "job", "totals")
ID = "p-job-totals-continuous-2"
ENCODE = RecordEncoder("totals", "out")


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> FakeKafka:
    made = installed(monkeypatch)
    made.create("out", 1)
    made.create(PLACE.topic, 5)
    return made


def output(generation: int = 7, *, is_open: bool = True) -> KafkaEpochOutput:
    made = KafkaEpochOutput(PLACE, EpochWriter(2, generation, 3), {}, ENCODE, 60_000)
    if is_open:
        made.open()
    return made


def receipts(kafka: FakeKafka) -> dict[Partition, KafkaEpochReceipt]:
    """The newest committed receipts."""
    entries = [entry for place in range(5) for entry in kafka.committed(PLACE.topic, place)]
    return {
        where: decode_epoch_receipt(entry.value() or b"", "")
        for entry in entries
        if (where := input_partition_of(entry.key(), "job", "totals")) is not None
    }


def test_an_epoch_is_there_with_the_receipts_of_what_has_moved_or_nothing_of_it_is(kafka: FakeKafka) -> None:
    one = output()
    one.add([b"a", b"b"])
    assert one.num_bytes == 2 and kafka.topics["out"][1][0] == [], "nothing is written before the epoch ends"
    kafka.on["commit"] = lambda: _raise(CommitUnknownError(ID, "no answer"))
    with pytest.raises(CommitUnknownError):
        one.end({("in", 0): 5, ("in", 1): 9})
    one.close()
    assert kafka.values("out") == [] and receipts(kafka) == {}
    one = output()
    one.add([b"a", b"b"])
    one.end({("in", 0): 5, ("in", 1): 9})
    digests = digests_of([ENCODE(b"a"), ENCODE(b"b")])
    assert kafka.values("out") == [b"a", b"b"]
    assert receipts(kafka) == {("in", number): KafkaEpochReceipt(at, 7, 2, 3, digests) for number, at in ((0, 5), (1, 9))}


def test_an_epoch_without_outputs_leaves_its_receipts(kafka: FakeKafka) -> None:
    output().end({("in", 0): 5})
    assert receipts(kafka) == {("in", 0): KafkaEpochReceipt(5, 7, 2, 3, {})} and kafka.values("out") == []


def test_epochs_follow_each_other_by_one_producer_and_none_has_what_an_earlier_one_had(kafka: FakeKafka) -> None:
    one = output()
    for number in range(3):
        one.add([b"%d" % number])
        one.end({("in", 0): number})
        assert one.is_open and one.num_bytes == 0
    assert kafka.values("out") == [b"0", b"1", b"2"] and kafka.epochs == {ID: 1}
    assert receipts(kafka)["in", 0] == KafkaEpochReceipt(2, 7, 2, 3, digests_of([ENCODE(b"2")]))


def test_after_a_lost_connection_the_epoch_stands_and_the_next_one_needs_the_id_anew(kafka: FakeKafka) -> None:
    one = output()
    kafka.loses_connections = True
    one.add([b"a"])
    one.end({("in", 0): 5})
    assert not one.is_open and receipts(kafka)["in", 0].position == 5
    kafka.loses_connections = False
    one.add([b"b"])
    with pytest.raises(KafkaError, match=r"the transactional id of task 2 is not taken"):
        one.end({("in", 0): 6})
    assert kafka.epochs == {ID: 1}, "the output does not take the id by itself"
    one.open()
    one.end({("in", 0): 6})
    assert kafka.values("out") == [b"a", b"b"] and kafka.epochs == {ID: 2} and one.is_open


@pytest.mark.parametrize("step", ["begin", "flush", "commit"])
def test_a_run_whose_id_was_taken_is_fenced_and_its_epoch_is_not_there(kafka: FakeKafka, step: str) -> None:
    one = output()
    one.add([b"a"])
    kafka.on[step] = lambda: output(8).close()
    with pytest.raises(FencedError, match=r"output totals: another run of task 2 writes \(epoch\)"):
        one.end({("in", 0): 5})
    one.close()
    assert kafka.values("out") == [] and receipts(kafka) == {}


def test_an_output_without_its_id_writes_nothing(kafka: FakeKafka) -> None:
    one = output(is_open=False)
    assert not one.is_open
    with pytest.raises(KafkaError):
        one.end({("in", 0): 5})
    one.close()
    assert kafka.epochs == {}


def test_an_id_that_cannot_be_taken_is_an_error_and_the_output_is_not_open(kafka: FakeKafka) -> None:
    one = output(is_open=False)
    kafka.on["open"] = lambda: _raise(KafkaError("refused"))
    with pytest.raises(KafkaError, match="refused"):
        one.open()
    assert not one.is_open


class FakeIdempotentProducer:
    def __init__(self) -> None:
        self.sent: list[Encoded] = []
        self.flushed = 0

    def send_all(self, records: Iterable[Encoded]) -> None:
        self.sent += records

    def flush(self) -> None:
        self.flushed = len(self.sent)


def test_at_least_once_sends_at_once_and_an_epoch_ends_when_all_is_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeIdempotentProducer()
    monkeypatch.setattr(epoch_writer, "IdempotentProducer", lambda _settings: producer)
    one = AtLeastOnceEpochOutput({}, ENCODE)
    with pytest.raises(KafkaError, match="is not open"):
        one.add([b"a"])
    one.open()
    one.add([b"a", b"bc"])
    assert [value for _, _, value, *_ in producer.sent] == [b"a", b"bc"] and one.num_bytes == 3 and producer.flushed == 0
    one.end({("in", 0): 5})
    assert producer.flushed == 2 and one.num_bytes == 0 and one.is_open
    one.close()
    assert not one.is_open


def _raise(error: Exception) -> Any:
    raise error
