"""Kafka parameters in both dialects."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kstream_kafka.client.params import BULK_FETCH, SMALL_FETCH, KafkaParams, bulk, small
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer

BROKERS = {"bootstrap.servers": "h:1"}
JAAS = 'org.apache.kafka.common.security.%s required username="al\\"ice" password="a;b=c";'


def parse(**given: Any) -> KafkaParams:
    return KafkaParams.parse({**BROKERS, **{k.replace("_", "."): v for k, v in given.items()}})


def test_the_parameters_of_0_8_mean_what_they_meant():
    params = KafkaParams.parse(
        {"metadata.broker.list": "h:1,i:2", "auto.offset.reset": "smallest", "fetch.message.max.bytes": "1000",
         "refresh.leader.backoff.ms": "50", "zookeeper.connect": "z:2181", "auto.commit.enable": False}
    )  # fmt: skip
    assert params.bootstrap == "h:1,i:2" and params.reset == "earliest" and params.leader_backoff_ms == 50
    assert params.executor()["max.partition.fetch.bytes"] == "1000"
    assert not {"zookeeper.connect", "auto.commit.enable", "metadata.broker.list"} & params.driver().keys()


@pytest.mark.parametrize(
    ("word", "meaning"),
    [("smallest", "earliest"), ("earliest", "earliest"), ("largest", "latest"), ("LATEST", "latest"), ("none", "error")],
)
def test_every_word_for_the_reset_policy_is_understood(word: str, meaning: str):
    assert parse(auto_offset_reset=word).reset == meaning


def test_the_defaults_are_sparks_not_librdkafkas():
    params = KafkaParams.parse(BROKERS)
    assert params.reset == "latest"
    assert params.settings["isolation.level"] == "read_uncommitted" and not params.read_committed
    assert params.metadata_max_age_ms == 300_000


def test_classes_of_the_java_client_are_dropped():
    params = parse(key_deserializer="org.apache.kafka.common.serialization.StringDeserializer", max_poll_records=500)
    assert params.settings.keys() == {"bootstrap.servers", "auto.offset.reset", "isolation.level"}


def test_java_names_become_librdkafkas():
    executor = parse(fetch_max_wait_ms=7, receive_buffer_bytes=131072, request_timeout_ms=9000).executor()
    assert (executor["fetch.wait.max.ms"], executor["socket.receive.buffer.bytes"], executor["socket.timeout.ms"]) == (7, 131072, 9000)


@pytest.mark.parametrize("module", ["plain.PlainLoginModule", "scram.ScramLoginModule"])
def test_a_jaas_line_becomes_user_and_password(module: str):
    params = KafkaParams.parse({**BROKERS, "sasl.jaas.config": JAAS % module})
    assert params.settings["sasl.username"] == 'al"ice' and params.settings["sasl.password"] == "a;b=c"


def test_a_jaas_line_of_another_module_is_refused_without_showing_it():
    line = 'com.example.VaultLoginModule required path="/secret" principal="p";'
    with pytest.raises(KafkaConfigError, match=r"VaultLoginModule.*sasl.username") as caught:
        KafkaParams.parse({**BROKERS, "sasl.jaas.config": line})
    assert "/secret" not in str(caught.value)


def test_a_pem_trust_store_is_taken_and_a_jks_one_refused_with_a_way_out():
    pem = KafkaParams.parse({**BROKERS, "ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"})
    assert pem.settings["ssl.ca.location"] == "/ca.pem"
    with pytest.raises(KafkaConfigError, match=r"ssl.ca.location"):
        KafkaParams.parse({**BROKERS, "ssl.truststore.location": "/ca.jks"})


def test_an_unknown_parameter_is_named_with_its_nearest_neighbour():
    with pytest.raises(KafkaConfigError, match=r"'auto.ofset.reset' is unknown.*Did you mean 'auto.offset.reset'\?") as caught:
        KafkaParams.parse({**BROKERS, "auto.ofset.reset": "latest"})
    assert caught.value.facts["key"] == "auto.ofset.reset"


def test_a_property_newer_than_the_table_passes_with_a_prefix():
    assert KafkaParams.parse({**BROKERS, "librdkafka.brand.new": 1}).driver()["brand.new"] == 1


@pytest.mark.parametrize(
    "given",
    [{}, {"bootstrap.servers": ""}, {**BROKERS, "auto.offset.reset": "tomorrow"}, {**BROKERS, "isolation.level": "x"},
     {**BROKERS, "refresh.leader.backoff.ms": "soon"}, {**BROKERS, "client.id": object()},
     {**BROKERS, "metadata.broker.list": "other:1"}],
)  # fmt: skip
def test_what_cannot_work_is_refused_on_the_driver(given: dict[str, Any]):
    with pytest.raises(KafkaConfigError):
        KafkaParams.parse(given)


def test_both_names_with_the_same_value_are_one_parameter():
    assert KafkaParams.parse({**BROKERS, "metadata.broker.list": "h:1"}).bootstrap == "h:1"


def test_KC2_executors_never_reset_never_commit_and_have_a_group_of_their_own():
    executor = parse(group_id="g", auto_offset_reset="earliest", enable_auto_commit=True, receive_buffer_bytes=1000).executor()
    assert executor["auto.offset.reset"] == "error"
    assert executor["enable.auto.commit"] == "false"
    assert executor["group.id"] == "spark-executor-g"
    assert executor["socket.receive.buffer.bytes"] == 65536
    assert executor["enable.partition.eof"] == "true"


def test_the_driver_has_no_consumer_properties_and_no_producer_ones():
    driver = parse(group_id="g", linger_ms=5, acks="all").driver()
    assert driver == BROKERS


def test_small_ranges_win_over_the_users_fetch_sizes_and_bulk_ones_do_not():
    executor = parse(max_partition_fetch_bytes=777).executor()
    assert small(executor)["max.partition.fetch.bytes"] == SMALL_FETCH["max.partition.fetch.bytes"]
    assert bulk(executor)["max.partition.fetch.bytes"] == 777
    assert bulk(KafkaParams.parse(BROKERS).executor()).items() >= BULK_FETCH.items()


def test_secrets_are_neither_shown_nor_stored():
    params = parse(sasl_username="alice", sasl_password="hunter2", ssl_key_pem="-----BEGIN")
    assert "hunter2" not in repr(params) and "BEGIN" not in repr(params) and "alice" not in repr(params)
    assert "h:1" in repr(params)
    assert params.storable() is None


def test_what_is_stored_is_json_and_means_the_same_again():
    params = parse(auto_offset_reset="smallest", group_id="g", refresh_leader_backoff_ms=9, metadata_max_age_ms=1000)
    assert KafkaParams.parse(json.loads(json.dumps(params.storable()))) == params


@pytest.mark.parametrize("given, expected", [(65536, (65536, 65536)), ("10", (1000, 1000)), (2_000_000, (2_000_000, 1_000_000))])
def test_a_fetch_smaller_than_the_largest_message_is_taken_as_in_java(given: Any, expected: tuple[int, int]) -> None:
    """librdkafka refuses such a consumer; a record larger than a fetch is read all the same."""
    executor = parse(fetch_max_bytes=given).executor()
    assert (executor["fetch.max.bytes"], executor["message.max.bytes"]) == expected
    KafkaRangeConsumer(executor).close()
