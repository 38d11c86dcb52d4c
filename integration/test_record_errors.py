"""Poison records under the policies of a stream, on the real broker."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from kstream_kafka import KafkaUtils, utf8_decoder, value_only
from kstream_kafka.planning.dead_letter import dead_letter_of

from integration.kafka_broker import KafkaBroker
from integration.kafka_handle import QUIET
from integration.reading import error_of
from kstream import StreamingContext

MakeTopic = Callable[..., str]


def loads(raw: bytes) -> Any:
    return json.loads(raw)


class Job:
    """A bounded run over all records of a topic, and what its output got."""

    def __init__(self, sc: Any, kafka: KafkaBroker, checkpoint: Path | None = None) -> None:
        self.kafka = kafka
        self.ssc = StreamingContext(sc, 0.5)
        if checkpoint is not None:
            self.ssc.checkpoint(str(checkpoint))
        self.seen: list[Any] = []

    def stream(self, topic: str, **given: Any) -> Any:
        params = {"bootstrap.servers": self.kafka.bootstrap}
        decoding = {"valueDecoder": loads, "messageHandler": value_only, **given}
        return KafkaUtils.createDirectStream(self.ssc, [topic], params, "earliest", untilOffsets="latest", **decoding)

    def run(self, stream: Any) -> list[Any]:
        """Run to the end of the topic; what the stream gave, sorted."""
        stream.foreachRDD(lambda rdd: self.seen.extend(rdd.collect()))
        self.ssc.start()
        try:
            assert self.ssc.awaitTerminationOrTimeout(60)
        finally:
            self.ssc.stop(stopSparkContext=False)
        return sorted(self.seen)


def numbers(kafka: KafkaBroker, topic: str, count: int, poison: set[int]) -> None:
    kafka.produce(topic, [(None, "{" if i in poison else str(i), 0) for i in range(count)])


def test_a_record_that_cannot_be_decoded_is_left_out_and_the_others_come(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, caplog: pytest.LogCaptureFixture
) -> None:
    name = topic()
    numbers(kafka, name, 50, {0, 7, 8, 49})
    job = Job(sc, kafka)
    assert job.run(job.stream(name, onRecordError="skip")) == [i for i in range(50) if i not in (0, 7, 8, 49)]
    (line,) = [record.getMessage() for record in caplog.records if "records failed" in record.getMessage()]
    assert f"4 records failed in valueDecoder with JSONDecodeError and were skipped; the first: {name}-0@0: Expecting property" in line


def test_a_count_does_not_count_what_was_left_out(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    numbers(kafka, name, 20, {3})
    job = Job(sc, kafka)
    job.stream(name, onRecordError="skip").foreachRDD(lambda rdd: job.seen.extend([rdd.count(), len(rdd.take(30))]))
    job.ssc.start()
    try:
        assert job.ssc.awaitTerminationOrTimeout(60)
    finally:
        job.ssc.stop(stopSparkContext=False)
    assert job.seen[:2] == [19, 19]


def test_without_a_policy_one_such_record_fails_the_batch(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name = topic()
    numbers(kafka, name, 10, {7})
    job = Job(sc, kafka)
    job.stream(name).foreachRDD(lambda rdd: rdd.count() and rdd.collect())
    job.ssc.start()
    try:
        assert "JSONDecodeError" in error_of(job.ssc)
    finally:
        job.ssc.stop(stopSparkContext=False, stopGraceFully=False)


@pytest.mark.parametrize("partitions", [1, 4], ids=["found in the task", "found on the driver"])
def test_too_many_of_them_fail_the_batch(sc: Any, kafka: KafkaBroker, topic: MakeTopic, partitions: int) -> None:
    """A broken deploy: its records must not go where the few bad ones go. Of four tasks none can know it alone."""
    name = topic(partitions)
    kafka.produce(name, [(None, "{" if i < 80 else "1", i % partitions) for i in range(400)])
    job = Job(sc, kafka)
    job.stream(name, onRecordError="skip", maxErrorRatio=0.15).foreachRDD(lambda rdd: job.seen.extend(rdd.collect()))
    job.ssc.start()
    try:
        said = error_of(job.ssc)
    finally:
        job.ssc.stop(stopSparkContext=False, stopGraceFully=False)
    errors = 61 if partitions == 1 else 80
    assert f"{errors} of the 400 records of a batch failed, more than maxErrorRatio=0.15 allows" in said
    assert "JSONDecodeError in valueDecoder" in said
    assert bool(job.seen) == (partitions > 1)


# -- dead letters


def letters_in(kafka: KafkaBroker, topic: str) -> list[Any]:
    """All records of a dead-letter topic with one partition, as messages."""
    consumer = Consumer({"bootstrap.servers": kafka.bootstrap, "group.id": "letters", **QUIET})
    begin, end = kafka.log_range(topic)
    found: list[Any] = []
    consumer.assign([TopicPartition(topic, 0, begin)])
    while len(found) < end - begin:
        found += [m for m in consumer.consume(100, 1.0) if m.error() is None]
    consumer.close()
    return found


def test_a_dead_letter_has_key_value_and_headers_untouched_and_the_error_after_them(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    name, dead = topic(), topic()
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    own: list[Any] = [("trace", b"\x00\xff"), ("none", None), ("trace", b"")]
    producer.produce(name, b"1", b"good")
    producer.produce(name, b"\xff{", b"\xfe", timestamp=1_700_000_000_123, headers=own)
    producer.produce(name, None, None)
    assert producer.flush(30) == 0
    job = Job(sc, kafka)
    assert job.run(job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead)) == [1]
    first, second = letters_in(kafka, dead)
    assert (first.key(), first.value(), first.headers()[:3]) == (b"\xfe", b"\xff{", own)
    assert (second.key(), second.value()) == (None, None)
    letter = dead_letter_of(first.headers())
    assert letter is not None and letter.place == (name, 0, 1) and letter.headers == own
    assert letter.timestamp == 1_700_000_000_123 and letter.exception == "UnicodeDecodeError" and letter.operator == "valueDecoder"
    assert "in loads" in letter.stacktrace
    other = dead_letter_of(second.headers())
    assert other is not None and other.exception == "TypeError" and other.batch_ms == letter.batch_ms


def test_operators_send_the_record_of_the_source_and_the_rest_of_the_batch_goes_on(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """A record that makes three words, of which two fail, is one dead letter."""
    name, dead = topic(), topic()
    kafka.produce(name, [(None, text, 0) for text in ("1 2 3", "4 x y", "5", "0", "6")])
    job = Job(sc, kafka)
    words = job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead, valueDecoder=utf8_decoder).flatMap(str.split)
    sixtieths = words.map(int).filter(lambda number: 60 / number > 0).map(lambda number: (number, 60)).mapValues(lambda value: value + 1)
    assert job.run(sixtieths.map(lambda pair: pair[0])) == [1, 2, 3, 4, 5, 6]
    found = [dead_letter_of(m.headers()) for m in letters_in(kafka, dead)]
    assert [(letter.offset, letter.exception, letter.operator.split(":")[0].split(" ")[0]) for letter in found if letter] == [
        (1, "ValueError", "map"),
        (3, "ZeroDivisionError", "filter"),
    ]
    assert all(letter is not None and "integration/test_record_errors.py" in letter.operator for letter in found)


def test_dead_letters_that_cannot_be_stored_fail_the_batch_and_it_stays_pending(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    name, dead = topic(), topic(1, {"max.message.bytes": "600"})
    numbers(kafka, name, 10, {4})
    job = Job(sc, kafka, tmp_path)
    job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead).foreachRDD(lambda rdd: rdd.collect())
    job.ssc.start()
    try:
        said = error_of(job.ssc)
    finally:
        job.ssc.stop(stopSparkContext=False, stopGraceFully=False)
    assert f"a dead letter could not be stored in {dead}: the record with its headers is too large" in said
    assert "Raise max.message.bytes of the topic. So its batch fails and stays pending; nothing is lost." in said
    failed, done = ({file.name[:15] for file in (tmp_path / folder).iterdir()} for folder in ("failed", "done"))
    assert failed and not failed & done


def test_a_dead_letter_of_a_read_that_is_cut_short_fails_the_batch_too(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """`take` ends the task before the end of its range: nobody hears what the reader raises then."""
    name, dead = topic(), topic(1, {"max.message.bytes": "600"})
    numbers(kafka, name, 5000, {0})
    job = Job(sc, kafka)
    job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead).pprint(3)
    job.ssc.start()
    try:
        assert f"a dead letter could not be stored in {dead}" in error_of(job.ssc)
    finally:
        job.ssc.stop(stopSparkContext=False, stopGraceFully=False)
