"""The errors policy of a direct stream, as its user gives it."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.source.stream_spec import StreamSpec

from kstream.errors import ConfigurationError
from tests.kstream_kafka.stream import BROKERS, FakeHost, Stream


def direct(conf: dict[str, str] | None = None, **given: Any) -> Any:
    host: Any = FakeHost(conf)
    return KafkaUtils.createDirectStream(host, ["orders"], BROKERS, **given)


def test_a_stream_has_the_policy_that_it_is_given() -> None:
    assert not direct().tolerates_record_errors
    assert direct(onRecordError="skip").tolerates_record_errors
    assert direct({"spark.streaming.kstream.onRecordError": "skip"}).tolerates_record_errors


def test_a_stream_tells_its_policy() -> None:
    given = direct(onRecordError="dead-letter", deadLetterTopic="orders.dlq")
    assert [stream.errors_policy for stream in (direct(), given)] == ["fail", "dead-letter"]


def test_the_settings_of_the_policy_are_read_once_and_not_for_each_batch() -> None:
    conf = {"spark.streaming.kstream.onRecordError": "skip", "spark.streaming.kstream.maxErrorRatio": "0.3"}
    stream = Stream({("t", 0): (0, 3)}, conf=conf).start()
    policy = stream.stream.record_errors
    conf.update({"spark.streaming.kstream.onRecordError": "fail", "spark.streaming.kstream.maxErrorRatio": "0.1"})
    stream.batch()
    assert stream.stream.record_errors is policy and stream.stream.tolerates_record_errors
    assert (policy.policy, policy.max_ratio) == ("skip", 0.3)


def test_a_dead_letter_policy_without_a_topic_is_an_error_of_the_start() -> None:
    stream = Stream({("t", 0): (0, 3)}, conf={"spark.streaming.kstream.onRecordError": "dead-letter"})
    with pytest.raises(ConfigurationError, match="deadLetterTopic is needed by onRecordError='dead-letter'"):
        stream.start()


def test_a_policy_that_does_not_exist_is_an_error_of_the_call() -> None:
    with pytest.raises(ConfigurationError, match="onRecordError is 'ignore'; it must be one of fail, skip, dead-letter"):
        direct(onRecordError="ignore")


def test_a_stream_never_reads_its_own_dead_letters() -> None:
    with pytest.raises(KafkaConfigError, match="'deadLetterTopic' is 'orders', which the stream itself reads"):
        direct(onRecordError="dead-letter", deadLetterTopic="orders")
    conf = {"spark.streaming.kstream.onRecordError": "dead-letter", "spark.streaming.kstream.deadLetterTopic": "t"}
    with pytest.raises(KafkaConfigError, match="'deadLetterTopic' is 't', which the stream itself reads"):
        Stream({("t", 0): (0, 0)}, conf=conf).start()


def test_the_recipe_has_the_policy_and_one_without_it_is_as_before() -> None:
    spec = direct(onRecordError="dead-letter", deadLetterTopic="orders.dlq", maxErrorRatio=0.2).spec
    recipe = spec.recipe()
    assert recipe.args["on_record_error"] == {"policy": "dead-letter", "deadLetterTopic": "orders.dlq", "maxErrorRatio": 0.2}
    assert StreamSpec.from_recipe(recipe).on_record_error == spec.on_record_error
    assert "on_record_error" not in direct().spec.recipe().args


def test_a_dead_letter_topic_that_does_not_exist_is_an_error_of_the_start_with_the_command_that_makes_it() -> None:
    conf = {"spark.streaming.kstream.onRecordError": "dead-letter", "spark.streaming.kstream.deadLetterTopic": "dead"}
    stream = Stream({("t", 0): (0, 0)}, conf=conf)
    with pytest.raises(
        KafkaConfigError, match=r"'dead', a topic that Kafka does not have. Create it: kafka-topics.sh .* --topic dead"
    ) as caught:
        stream.start()
    assert "kstream produce dead --partitions 1 --bootstrap " in str(caught.value)
    stream.client.logs["dead", 0] = (0, 0)
    stream.start()


def test_operators_on_records_have_the_policy_until_the_records_are_no_longer_those_of_the_source() -> None:
    stream = direct(onRecordError="skip")

    def holds(made: Any) -> bool:
        return made._node.tolerates_record_errors

    pairs = stream.map(str).flatMap(str.split).filter(bool).map(lambda word: (word, 1)).mapValues(str).flatMapValues(list)
    assert holds(pairs)
    ended = [
        stream.mapPartitions(list),
        stream.transform(lambda rdd: rdd),
        stream.glom(),
        pairs.partitionBy(2),
        stream.union(stream),
    ]
    assert not any(holds(made.map(str)) for made in ended)
    assert not holds(direct().map(str))
    pairs.cache()
    behind = pairs.map(str)
    assert holds(behind) and holds(behind.map(str))
    behind.cache()
    assert not holds(behind.map(str)), "of two streams in storage, one above the other, the records are not known"
