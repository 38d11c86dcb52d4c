"""The planner looks at some of the next records, for the limit of bytes."""

from __future__ import annotations

from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaError
from kstream_kafka.structured.options import SourceOptions
from kstream_kafka.structured.record_lengths import RECORDS, RecordLengths
from kstream_kafka.structured.trigger_limits import TriggerLimits

from kstream.batch_time import Time
from kstream.offsets.admission_control import LARGEST_RECORD
from kstream.testing import ManualClock
from tests.kstream_kafka.fakes import FakeConsumer, Message

BROKERS = {"bootstrap.servers": "h:1"}
T = ("t", 0)


def messages(count: int, size: int) -> list[Message]:
    return [Message(at, b"v" * size) for at in range(count)]


def test_the_next_records_tell_how_long_records_are() -> None:
    consumer = FakeConsumer([messages(RECORDS, 100), messages(RECORDS, 300)])
    lengths = RecordLengths(KafkaParams.parse(BROKERS), lambda _: consumer)
    assert lengths.mean({T: 0}, {T: 1_000}) == 100
    assert consumer.assigned == [("t", 0, 0, None)] and consumer.unassigned == 1
    lengths.close()
    assert consumer.closed


def test_without_records_it_is_the_last_length_and_before_any_the_largest() -> None:
    consumer = FakeConsumer([messages(RECORDS, 100)])
    lengths = RecordLengths(KafkaParams.parse(BROKERS), lambda _: consumer)
    assert lengths.mean({T: 5}, {T: 5}) == LARGEST_RECORD
    assert lengths.mean({T: 0}, {T: 30}) == 100 == lengths.mean({T: 5}, {T: 5})


def test_brokers_that_do_not_answer_cost_no_batch() -> None:
    class Silent(FakeConsumer):
        def consume(self, num_messages: int, timeout: float) -> list[Message]:
            raise KafkaError("away")

    assert RecordLengths(KafkaParams.parse(BROKERS), lambda _: Silent()).mean({T: 0}, {T: 9}) == LARGEST_RECORD


def limited(options: dict[str, str], mean: float, ends: dict[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    parsed = SourceOptions.parse({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options})
    return TriggerLimits(parsed, ManualClock(), lambda _current, _ends: mean).admit(Time(1), dict.fromkeys(ends, 0), ends, ())


def test_a_limit_of_bytes_is_one_of_records_and_the_lower_limit_counts() -> None:
    assert limited({"maxBytesPerTrigger": "1k"}, 100, {T: 500}) == {T: 10}
    assert limited({"maxBytesPerTrigger": "1k", "maxOffsetsPerTrigger": "7"}, 100, {T: 500}) == {T: 7}
    assert limited({"maxBytesPerTrigger": "1k"}, 5_000, {T: 500}) == {T: 1}
    assert limited({"maxBytesPerTrigger": "1k"}, 100, {T: 0}) == {T: 0}
