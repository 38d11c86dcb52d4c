"""The 0-10 form: strategies, locations, deserialisers, per-partition rates – and createRDD in both forms."""

from __future__ import annotations

import json
import struct
import uuid
from typing import Any

import pytest
from kstream_kafka import (
    CanCommitOffsets,
    ConsumerStrategies,
    HasOffsetRanges,
    KafkaUtils,
    LocationStrategies,
    OffsetRange,
    PerPartitionConfig,
    TopicAndPartition,
    TopicPartition,
    consumer_record,
    restore_input,
    value_only,
)
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError, RangesNotAvailableError
from kstream_kafka.reader.decoding import decoder_of, utf8_decoder
from kstream_kafka.reader.kafka_rdd import check_available
from kstream_kafka.reader.location_strategy import LocationStrategy, java_hash, preferred, sorted_executors

from kstream.errors import ConfigurationError
from kstream.offsets.positions import Position
from tests.kstream_kafka.fakes import FakeClient
from tests.kstream_kafka.stream import BROKERS, FakeHost, Stream

P = ("t", 0)


def made(strategy: Any, locations: Any = LocationStrategies.PreferConsistent, *more: Any, **options: Any) -> Any:
    host: Any = FakeHost()
    return KafkaUtils.createDirectStream(host, locations, strategy, *more, **options)


def test_the_elements_are_consumer_records_unless_a_handler_is_given() -> None:
    assert made(ConsumerStrategies.Subscribe(["t"], BROKERS)).spec.decoding.message_handler is consumer_record
    chosen = made(ConsumerStrategies.Subscribe(["t"], BROKERS), messageHandler=value_only)
    assert chosen.spec.decoding.message_handler is value_only


def test_without_offsets_a_group_starts_where_it_committed_and_a_stream_without_a_group_by_the_reset_policy() -> None:
    assert ConsumerStrategies.Subscribe(["t"], {**BROKERS, "group.id": "g"}).starting_offsets.default == Position("committed")
    assert ConsumerStrategies.Subscribe(["t"], BROKERS).starting_offsets.default is None


def test_offsets_by_partition_leave_the_other_partitions_to_the_group() -> None:
    strategy = ConsumerStrategies.Subscribe(["t"], {**BROKERS, "group.id": "g"}, {TopicPartition("t", 0): 5})
    assert (strategy.starting_offsets.of(P), strategy.starting_offsets.of(("t", 1))) == (Position("offset", 5), Position("committed"))


def test_each_strategy_says_what_is_read() -> None:
    subscribed = ConsumerStrategies.Subscribe(("a", "b", "a"), BROKERS).topics
    pattern = ConsumerStrategies.SubscribePattern(r"pat\d", BROKERS).topics
    assigned = ConsumerStrategies.Assign([TopicPartition("t", 1), ("t", 0)], BROKERS).topics
    assert [str(topics) for topics in (subscribed, pattern, assigned)] == [
        "Subscribe[a, b]",
        r"SubscribePattern[pat\d]",
        "Assign[t-0, t-1]",
    ]
    assert pattern.wants("pat1") and not pattern.wants("pat10")


@pytest.mark.parametrize(
    "make",
    [
        lambda: ConsumerStrategies.Subscribe([], BROKERS),
        lambda: ConsumerStrategies.SubscribePattern("(", BROKERS),
        lambda: ConsumerStrategies.Assign([], BROKERS),
        lambda: ConsumerStrategies.Assign(["t"], BROKERS),
        lambda: made(ConsumerStrategies.Assign([P], BROKERS, {("t", 7): 1})),
    ],
)
def test_a_strategy_that_cannot_work_is_refused(make: Any) -> None:
    with pytest.raises(ConfigurationError):
        make()


def test_the_two_forms_are_not_to_be_mixed() -> None:
    with pytest.raises(TypeError, match="ConsumerStrategy"):
        made(BROKERS)
    with pytest.raises(TypeError, match="names"):
        ConsumerStrategies.Subscribe("t", BROKERS)
    with pytest.raises(TypeError, match="PerPartitionConfig"):
        made(ConsumerStrategies.Subscribe(["t"], BROKERS), LocationStrategies.PreferConsistent, object())


def test_secrets_of_a_strategy_do_not_show() -> None:
    assert "hush" not in repr(ConsumerStrategies.Subscribe(["t"], {**BROKERS, "sasl.password": "hush"}))


class Halved(PerPartitionConfig):
    """Ten records a second from even partitions, five from odd ones."""

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        return 10 if topicPartition.partition % 2 == 0 else 5


def test_KD12_rates_may_differ_from_partition_to_partition() -> None:
    spec = made(
        ConsumerStrategies.Subscribe(["t"], {**BROKERS, "auto.offset.reset": "earliest"}), LocationStrategies.PreferBrokers, Halved()
    ).spec
    s = Stream({("t", 0): (0, 100), ("t", 1): (0, 100)}, spec=spec)
    assert s.start().batch() == [["t", 0, 0, 10], ["t", 1, 0, 5]]


class OneLimited(Halved):
    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        return 10 if topicPartition.partition == 0 else 0


def test_a_rate_of_0_is_no_limit_beside_partitions_that_have_one() -> None:
    strategy = ConsumerStrategies.Subscribe(["t"], {**BROKERS, "auto.offset.reset": "earliest"})
    s = Stream({("t", 0): (0, 100), ("t", 1): (0, 100)}, spec=made(strategy, LocationStrategies.PreferBrokers, OneLimited()).spec)
    assert s.start().batch() == [["t", 0, 0, 10], ["t", 1, 0, 100]]


def test_a_stream_of_the_new_form_survives_its_recipe() -> None:
    strategy = ConsumerStrategies.Assign([P], {**BROKERS, "group.id": "g"}, {P: "-10m"})
    fixed = LocationStrategies.PreferFixed({TopicPartition("t", 0): "host"})
    stream = made(strategy, fixed, Halved(), untilOffsets="latest", downtime="by-timestamp")
    recipe = stream.recipe()
    assert json.loads(json.dumps(recipe.args)) == recipe.args
    again: Any = restore_input(FakeHost(), recipe)  # pyright: ignore[reportArgumentType]
    assert again.spec == stream.spec


def test_streams_and_rdds_are_known_by_what_they_can_do() -> None:
    assert isinstance(made(ConsumerStrategies.Subscribe(["t"], BROKERS)), CanCommitOffsets)
    assert not isinstance(object(), HasOffsetRanges)


def test_commitAsync_without_a_group_says_what_is_missing() -> None:
    with pytest.raises(KafkaConfigError, match=r"group\.id"):
        made(ConsumerStrategies.Subscribe(["t"], BROKERS)).commitAsync([OffsetRange("t", 0, 0, 1)])


# -- locations


def test_KR4_executors_are_counted_by_host_then_id_both_falling() -> None:
    assert sorted_executors([("a", "1"), ("b", "2"), ("b", "10"), ("a", "3")]) == [("b", "2"), ("b", "10"), ("a", "3"), ("a", "1")]


@pytest.mark.parametrize(  # what org.apache.kafka.common.TopicPartition of Kafka 4.3.1 answered
    ("partition", "expected"),
    [
        (("test", 0), 3557459), (("test", 1), 3557490), (("t", 0), 1077), (("", 0), 961), (("long topic name that overflows", 7), -2386126),
        (("thème", 3), 110454186),
    ],
)  # fmt: skip
def test_KR4_the_hash_is_that_of_javas_topic_partition(partition: tuple[str, int], expected: int) -> None:
    assert java_hash(partition) == expected


def test_KR4_a_partition_prefers_the_executor_at_its_hash_and_always_the_same() -> None:
    executors = sorted_executors([("a", "1"), ("a", "2"), ("b", "3")])
    assert preferred(("test", 0), executors) == [f"executor_{executors[3557459 % 3][0]}_{executors[3557459 % 3][1]}"]
    assert {tuple(preferred(("long topic name that overflows", n), executors)) for n in range(30)} == {
        ("executor_b_3",), ("executor_a_2",), ("executor_a_1",),
    }  # fmt: skip


def test_a_host_is_preferred_where_it_has_executors_and_ignored_where_it_has_none() -> None:
    executors = sorted_executors([("a", "1"), ("b", "2")])
    assert preferred(P, executors, "b") == ["executor_b_2"]
    assert preferred(P, executors, "nowhere") == preferred(P, executors)
    assert preferred(P, []) == []


def test_strategies_may_be_written_with_and_without_parentheses() -> None:
    assert LocationStrategies.PreferBrokers() is LocationStrategies.PreferBrokers
    fixed = LocationStrategies.PreferFixed({("t", 0): "h"})
    assert LocationStrategy.from_json(json.loads(json.dumps(fixed.to_json()))) == fixed


# -- deserialisers

KAFKA = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("name", "raw", "expected"),
    [
        ("StringDeserializer", b"\xc3\xa9", "é"),
        ("ShortDeserializer", struct.pack(">h", -2), -2),
        ("IntegerDeserializer", struct.pack(">i", 7), 7),
        ("LongDeserializer", struct.pack(">q", -(2**40)), -(2**40)),
        ("FloatDeserializer", struct.pack(">f", 0.5), 0.5),
        ("DoubleDeserializer", struct.pack(">d", 0.1), 0.1),
        ("UUIDDeserializer", b"123e4567-e89b-12d3-a456-426614174000", uuid.UUID("123e4567-e89b-12d3-a456-426614174000")),
        ("VoidDeserializer", None, None),
    ],
)
def test_kafkas_own_deserialisers_are_known_by_their_names(name: str, raw: bytes | None, expected: Any) -> None:
    f = decoder_of({"value.deserializer": KAFKA + name}, "value.deserializer", utf8_decoder)
    assert f is not None and f(raw) == expected and f(None) is None


def test_the_byte_deserialisers_leave_bytes() -> None:
    strategy = ConsumerStrategies.Subscribe(["t"], {**BROKERS, "key.deserializer": KAFKA + "ByteArrayDeserializer"})
    decoding = made(strategy).spec.decoding
    assert decoding.key_decoder is None and decoding.value_decoder is utf8_decoder


def test_a_decoder_of_the_users_own_wins_over_a_class_name() -> None:
    assert decoder_of({"key.deserializer": "com.example.Avro"}, "key.deserializer", None) is None
    with pytest.raises(KafkaConfigError, match=r"com\.example\.Avro.*keyDecoder"):
        decoder_of({"key.deserializer": "com.example.Avro"}, "key.deserializer", utf8_decoder)


# -- createRDD


@pytest.mark.parametrize("bad", [(0, 11), (3, 9), (9, 5)])
def test_KR1_createRDD_of_the_old_form_refuses_ranges_that_are_not_wholly_there(bad: tuple[int, int]) -> None:
    client = FakeClient({P: (4, 10)})
    with pytest.raises(RangesNotAvailableError, match=rf"Offsets not available on leader: t-0 \[{bad[0]}, {bad[1]}\) .* \[4, 10\)"):
        check_available(KafkaParams.parse(BROKERS), [OffsetRange("t", 0, *bad)], lambda _: client)
    assert client.closed


def test_ranges_that_are_there_pass_and_no_range_asks_nobody() -> None:
    client = FakeClient({P: (4, 10)})
    check_available(KafkaParams.parse(BROKERS), [OffsetRange("t", 0, 4, 10), OffsetRange("t", 0, 7, 7)], lambda _: client)
    check_available(KafkaParams.parse(BROKERS), [], lambda _: 1 / 0)  # pyright: ignore[reportArgumentType]


def test_ranges_of_another_type_are_type_errors() -> None:
    with pytest.raises(TypeError, match="offsetRanges should be list"):
        KafkaUtils.createRDD(None, BROKERS, [("t", 0, 0, 1)])  # pyright: ignore


def test_createRDD_goes_by_the_settings_of_the_SparkContext(sc: Any, setting: Any) -> None:
    """As the RDDs of a stream do: else the count of a compacted topic would be that of its offsets."""
    ranges, anywhere = [OffsetRange("t", 0, 0, 4)], LocationStrategies.PreferConsistent
    usual = KafkaUtils.createRDD(sc, BROKERS, ranges, anywhere)
    assert usual.count() == 4 and usual.reads.poll_timeout_ms == 120_000
    setting("spark.streaming.kafka.allowNonConsecutiveOffsets", "true")
    setting("spark.streaming.kafka.consumer.poll.ms", "3s")
    told = KafkaUtils.createRDD(sc, BROKERS, ranges, anywhere)
    assert told.reads.poll_timeout_ms == 3000 and not told._exact_counts
