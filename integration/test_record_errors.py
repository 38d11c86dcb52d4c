"""Poison records under the policies of a stream, on the real broker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from kstream_kafka import PerPartitionConfig, utf8_decoder
from kstream_kafka.planning.dead_letter import dead_letter_of

from integration.kafka_broker import KafkaBroker, running_broker
from integration.reading import error_of
from integration.record_errors import Job, letters_in
from kstream import StreamingContext

MakeTopic = Callable[..., str]


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


@pytest.mark.parametrize("persist", ["cache", "window"])
def test_behind_a_persisted_stream_the_policy_holds_and_each_record_is_one_letter(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, persist: str
) -> None:
    """Spark's storage has the elements, and not the records that they were made from."""
    name, dead = topic(2), topic()
    poison = {3: "x", 8: "0 1 2", 9: "0", 14: "3 y"}
    kafka.produce(name, [(None, poison.get(i, f"{i} {i}"), i % 2) for i in range(20)])
    job = Job(sc, kafka)

    def numbers_of(text: str) -> list[int]:
        return [int(word) for word in text.split()]

    stream = job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead, valueDecoder=utf8_decoder).flatMap(numbers_of)
    if persist == "cache":
        stream.cache()
    else:
        stream.window(1, 0.5).foreachRDD(lambda rdd: rdd.count())
    inverse = stream.filter(lambda number: number != 19).map(lambda number: 1 / number)
    inverse.foreachRDD(lambda rdd: rdd.count())
    expected = [1 / i for i in range(1, 19) if i not in poison for _ in range(2)] + [1 / 1, 1 / 2]
    assert job.run(inverse) == sorted(expected)
    found = [dead_letter_of(m.headers()) for m in letters_in(kafka, dead)]
    places = sorted((letter.partition, letter.offset, letter.exception) for letter in found if letter and letter.offset is not None)
    zero, value = "ZeroDivisionError", "ValueError"
    assert places == [(0, 0, zero), (0, 4, zero), (0, 7, value), (1, 1, value), (1, 4, zero)]
    assert {m.value() for m in letters_in(kafka, dead)} == {b"0 0", *(text.encode() for text in poison.values())}


class FiveABatch(PerPartitionConfig):
    def maxRatePerPartition(self, topicPartition: Any) -> int:
        return 10


def test_a_window_that_reads_older_batches_does_not_write_their_letters_again(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path
) -> None:
    """It slides every second batch, and reads the first one after the other output has. A restart reads all its batches anew."""
    name, dead = topic(), topic()
    for produced in 20, 30:
        numbers(kafka, name, produced - len(letters_in(kafka, name)), {1, 7, 13, 18})
        job = Job(sc, kafka, tmp_path)
        stream = job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead, perPartitionConfig=FiveABatch())
        windows: list[int] = []
        stream.map(str).window(60, 1).foreachRDD(lambda rdd, windows=windows: windows.append(rdd.count()))
        job.run(stream)
        assert max(windows) > 8
        assert len(letters_in(kafka, dead)) == produced // 5


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


@pytest.mark.parametrize(("partitions", "letters"), [(1, 0), (4, 80)], ids=["found in the task", "found on the driver"])
def test_a_batch_with_too_many_errors_writes_its_letters_once_however_often_a_driver_starts(
    sc: Any, kafka: KafkaBroker, topic: MakeTopic, tmp_path: Path, partitions: int, letters: int
) -> None:
    """A supervisor starts the driver again and again until a person comes."""
    name, dead = topic(partitions), topic()
    kafka.produce(name, [(None, "{" if i < 80 else "1", i % partitions) for i in range(400)])

    def setup() -> StreamingContext:
        job = Job(sc, kafka, tmp_path)
        stream = job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead, maxErrorRatio=0.15)
        stream.foreachRDD(lambda rdd: rdd.collect())
        return job.ssc

    for _ in range(3):
        ssc = StreamingContext.getOrCreate(str(tmp_path), setup)
        ssc.start()
        try:
            assert "of the 400 records of a batch failed, more than maxErrorRatio=0.15 allows" in error_of(ssc)
        finally:
            ssc.stop(stopSparkContext=False, stopGraceFully=False)
        assert len(letters_in(kafka, dead)) == letters


def test_a_dead_letter_that_is_too_large_leaves_the_others_of_its_batch_stored(sc: Any, kafka: KafkaBroker, topic: MakeTopic) -> None:
    """The broker refuses the whole batch of the producer. Together the others are too large, too, and one by one they are not."""
    name, dead = topic(), topic(1, {"max.message.bytes": "20000"})
    kafka.produce(name, [(None, "{" * size, 0) for size in (9000, 30_000, 9000, 9000)])
    job = Job(sc, kafka)
    job.stream(name, onRecordError="dead-letter", deadLetterTopic=dead).foreachRDD(lambda rdd: rdd.collect())
    job.ssc.start()
    try:
        assert f"a dead letter could not be stored in {dead}: the record with its headers is too large" in error_of(job.ssc)
    finally:
        job.ssc.stop(stopSparkContext=False, stopGraceFully=False)
    letters = [dead_letter_of(message.headers()) for message in letters_in(kafka, dead)]
    assert sorted(letter.offset for letter in letters if letter and letter.offset is not None) == [0, 2, 3]


def test_a_dead_letter_topic_that_is_deleted_while_the_job_runs_is_an_error_and_is_not_made_again(sc: Any, tmp_path: Path) -> None:
    """The brokers would make it, with one partition and the retention of any topic."""
    with running_broker(tmp_path, {"auto.create.topics.enable": "true"}) as kafka:
        for name in "orders", "dead":
            kafka.create_topic(name, 1)
        numbers(kafka, "orders", 10, {4})
        job = Job(sc, kafka)
        stream = job.stream("orders", onRecordError="dead-letter", deadLetterTopic="dead")
        stream.foreachRDD(lambda rdd: kafka.delete_topic("dead"))
        stream.foreachRDD(lambda rdd: rdd.collect())
        job.ssc.start()
        try:
            said = error_of(job.ssc)
        finally:
            job.ssc.stop(stopSparkContext=False, stopGraceFully=False)
        assert f"a dead letter could not be stored in dead: Kafka at {kafka.bootstrap} has no such topic (" in said
        assert f"Create it: kafka-topics.sh --bootstrap-server {kafka.bootstrap} --create --topic dead --partitions 1, or kstream" in said
        assert "dead" not in kafka.admin.list_topics(timeout=10).topics


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
