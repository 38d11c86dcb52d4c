"""The options of Spark's Kafka source mean here what they mean there, or are refused in words."""

from __future__ import annotations

import logging
import pickle
import re
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka.errors import KafkaConfigError, SourceOptionError
from kstream_kafka.planning.subscription import Partitions, TopicPattern, Topics
from kstream_kafka.structured.option_kinds import KINDS
from kstream_kafka.structured.options import OPTIONS, REFUSED, REFUSED_PARAMETERS, Bound, SourceOptions, markdown_tables, of_kafka

from kstream.offsets.positions import Position, Positions

BROKERS = {"kafka.bootstrap.servers": "h:1"}
ORDERS = {**BROKERS, "subscribe": "orders"}
EXAMPLES = {
    "topics": "a,b",
    "pattern": "a.*",
    "partitions": '{"a":[0]}',
    "offsets": '{"a":{"0":1}}',
    "timestamp": "1700000000000",
    "timestamps": '{"a":{"0":1}}',
    "late start": "latest",
    "bool": "true",
    "number": "10",
    "count": "0",
    "milliseconds": "100",
    "time": "10s",
    "size": "1m",
    "place": "/checkpoints/orders",
    "format": "json",
    "mode": "fail",
}
"""A value of each kind."""
OWN = {"maxBytesPerTrigger", "maxPartitions", "checkpointLocation", "value.format", "mode"}
"""The options that Spark's source does not have."""
OF_SPARK = {
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
}
"""The options of Spark's Kafka source, by its documentation."""


def parse(**given: str) -> SourceOptions:
    """Parse options; `_` stands for the dot in a name."""
    return SourceOptions.parse({**ORDERS, **{name.replace("_", "."): text for name, text in given.items()}})


def refused(given: dict[str, str]) -> SourceOptionError:
    with pytest.raises(SourceOptionError) as caught:
        SourceOptions.parse(given)
    return caught.value


def offsets(**each: dict[str, Any]) -> Positions:
    return Positions(None, {(topic, int(number)): at for topic, by in each.items() for number, at in by.items()})


def test_every_option_of_spark_is_known_or_refused_with_a_reason() -> None:
    assert {option.name for option in OPTIONS} | REFUSED.keys() == {*OF_SPARK, *OWN, "path"}
    assert len({option.name.lower() for option in OPTIONS}) == len(OPTIONS)


def test_names_come_in_lower_case_from_spark_and_are_one_with_those_that_people_write() -> None:
    written = {**ORDERS, "startingOffsets": "earliest", "kafkaConsumer.pollTimeoutMs": "7", "maxBytesPerTrigger": "2k"}
    options = SourceOptions.parse({name.lower(): text for name, text in written.items()})
    assert options == SourceOptions.parse(written)
    assert (options.poll_timeout_ms, options.max_bytes) == (7, 2048)


def test_the_defaults_are_sparks() -> None:
    options = parse()
    assert (options.topics, options.params.bootstrap) == (Topics(("orders",)), "h:1")
    assert options.fail_on_data_loss and not options.include_headers
    assert (options.late_start, options.max_delay_ms, options.poll_timeout_ms, options.retries) == ("error", 900_000, 120_000, 3)
    limits = (options.max_offsets, options.min_offsets, options.max_bytes, options.min_tasks)
    assert (*limits, options.max_records_per_task, options.max_tasks) == (None,) * 6 and options.given == {"subscribe"}
    assert not options.params.read_committed


def test_a_stream_begins_at_the_ends_of_the_logs_and_a_batch_reads_all() -> None:
    assert parse().of_stream().starts == Bound("startingOffsets", Positions(Position("latest")))
    batch = parse().of_batch()
    assert batch.starts == Bound("startingOffsets", Positions(Position("earliest")))
    assert batch.ends == Bound("endingOffsets", Positions(Position("latest")))


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_the_value_of_an_option_is_of_its_kind(option: Any) -> None:
    parse, wanted = KINDS[option.kind]
    assert parse(EXAMPLES[option.kind]) is not None and wanted
    default = option.default.partition(",")[0]
    assert not default or parse(default) is not None
    others = {} if option.name in ("subscribe", "subscribePattern", "assign") else {"subscribe": "a"}
    for wrong in ("", "[1]", "-1"):
        if option.name in ("subscribe", "subscribePattern") and wrong:
            continue
        error = refused({**BROKERS, **others, option.name: wrong})
        assert error.key == option.name and error.hint == f"Give {wanted}."


def test_topics_are_told_by_exactly_one_option() -> None:
    assert SourceOptions.parse({**BROKERS, "subscribe": " a , b,,a"}).topics == Topics(("a", "b"))
    assert SourceOptions.parse({**BROKERS, "subscribePattern": "a-.*"}).topics == TopicPattern("a-.*")
    given = {**BROKERS, "assign": '{"a":[0,2],"b":[1]}'}
    assert SourceOptions.parse(given).topics == Partitions(frozenset({("a", 0), ("a", 2), ("b", 1)}))
    assert "is missing. Give one of subscribe, subscribePattern, assign." in str(refused(BROKERS))
    assert "'subscribe' of the data source kstream is given together with assign." in str(refused({**ORDERS, "assign": '{"a":[0]}'}))


def test_a_pattern_that_python_does_not_compile_says_so() -> None:
    assert "a pattern that Python's re does not compile" in str(refused({**BROKERS, "subscribePattern": r"\p{Alpha}+"}))


def test_the_numbers_minus_one_and_minus_two_are_the_ends_of_a_log() -> None:
    options = parse(startingOffsets='{"a":{"0":23,"1":-1,"2":-2}}')
    assert options.starts == Bound(
        "startingOffsets", offsets(a={"0": Position("offset", 23), "1": Position("latest"), "2": Position("earliest")})
    )
    assert parse(startingOffsets=" EARLIEST ").starts == Bound("startingOffsets", Positions(Position("earliest")))


@pytest.mark.parametrize("text", ["middle", '{"a":{"0":-3}}', '{"a":{"0":1.5}}', '{"a":{"x":1}}', '{"a":[0]}', "{}", '{"a":{"0":true}}'])
def test_offsets_of_another_form_are_refused(text: str) -> None:
    assert refused({**ORDERS, "startingOffsets": text}).reason == f"is {text!r}"


def test_a_timestamp_for_all_wins_over_timestamps_by_partition_and_these_over_offsets() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"a":{"0":5}}', "startingOffsets": "earliest"}
    assert parse(**by_partition, startingTimestamp="7").starts == Bound("startingTimestamp", Positions(Position("time", 7)))
    assert parse(**by_partition).starts == Bound("startingOffsetsByTimestamp", offsets(a={"0": Position("time", 5)}))
    ends = {"endingOffsetsByTimestamp": '{"a":{"0":5}}', "endingOffsets": "latest"}
    assert parse(**ends, endingTimestamp="7").ends == Bound("endingTimestamp", Positions(Position("time", 7)))
    assert parse(**ends).ends == Bound("endingOffsetsByTimestamp", offsets(a={"0": Position("time", 5)}))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingOffsets": "latest", "endingTimestamp": "1"}.get(name, '{"a":{"0":5}}')
    with pytest.raises(SourceOptionError, match=f"Option '{name}' .* is for batches: a stream has no end"):
        parse(**{name: text}).of_stream()


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("startingOffsets", "latest", "is 'latest': a batch has an end"),
        ("startingOffsets", '{"a":{"0":1,"1":-1}}', "is latest for a-1: a batch has an end"),
        ("endingOffsets", "earliest", "is 'earliest': a batch cannot end at earliest"),
        ("endingOffsets", '{"a":{"0":-2}}', "is earliest for a-0: a batch cannot end at earliest"),
    ],
)
def test_a_batch_that_would_read_nothing_is_refused(name: str, text: str, why: str) -> None:
    with pytest.raises(SourceOptionError, match=why):
        parse(**{name: text}).of_batch()


def test_limits_of_a_trigger_have_no_effect_in_a_batch_and_it_says_so(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        parse(maxOffsetsPerTrigger="5", maxBytesPerTrigger="1m", minPartitions="2").of_batch()
    told = [re.match(r"option (\w+) .* has no effect in a batch", record.message) for record in caplog.records]
    assert [match and match[1] for match in told] == ["maxOffsetsPerTrigger", "maxBytesPerTrigger"]


def test_a_least_number_of_offsets_above_the_most_is_refused() -> None:
    assert "is 6, more than maxOffsetsPerTrigger, which is 5" in str(
        refused({**ORDERS, "minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"})
    )


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("startingOffset", "Did you mean 'startingOffsets', 'startingOffsetsByTimestamp' or 'startingOffsetsByTimestampStrategy'?"),
        ("maxoffsetpertrigger", "Did you mean 'maxOffsetsPerTrigger'?"),
        ("bootstrap.servers", "Did you mean 'kafka.bootstrap.servers'?"),
        ("colour", "docs/structured.md has all options."),
    ],
)
def test_an_unknown_option_is_an_error_with_the_nearest_name(name: str, hint: str) -> None:
    assert refused({**ORDERS, name: "1"}).hint == hint


def test_a_prefix_for_groups_and_a_path_are_refused_with_the_reason() -> None:
    error = refused({**ORDERS, "groupidprefix": "mine"})
    assert error.key == "groupIdPrefix" and "kstream joins none" in error.reason
    assert "is no place in Kafka" in str(refused({**ORDERS, "path": "orders"}))


@pytest.mark.parametrize("name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "oauth_cb"])
def test_kafka_parameters_that_a_query_cannot_have_are_refused_as_in_spark(name: str) -> None:
    assert refused({**ORDERS, f"kafka.{name}": "x"}).key == f"kafka.{name}"


def test_kafka_parameters_have_javas_names_or_librdkafkas() -> None:
    options = parse(kafka_request_timeout_ms="900", kafka_socket_keepalive_enable="true", kafka_isolation_level="read_committed")
    assert options.params.settings["socket.timeout.ms"] == "900" and options.params.read_committed
    assert options.params.settings["socket.keepalive.enable"] == "true"
    with pytest.raises(KafkaConfigError, match=r"'isolation\.levl' is unknown.*isolation\.level"):
        parse(kafka_isolation_levl="x")
    assert "'kafka.bootstrap.servers' of the data source kstream is missing" in str(refused({"subscribe": "a"}))


def test_the_pause_between_requests_for_offsets_is_that_of_the_client() -> None:
    assert parse(fetchOffset_retryIntervalMs="10").params.leader_backoff_ms == 10
    assert parse().params.leader_backoff_ms == 200


def test_options_go_to_the_planner_pickled_and_show_no_secret() -> None:
    options = parse(kafka_sasl_password="s3cret-word", startingOffsets='{"orders":{"0":-2}}')
    assert pickle.loads(pickle.dumps(options)) == options
    assert "s3cret-word" not in repr(options)


def test_the_page_has_the_tables_of_the_code() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "structured.md").read_text()
    tables = re.search(r"<!-- options -->\n(.*?)\n<!-- /options -->", page, re.DOTALL)
    assert tables is not None and tables[1] == markdown_tables(OPTIONS, REFUSED | of_kafka(REFUSED_PARAMETERS))
