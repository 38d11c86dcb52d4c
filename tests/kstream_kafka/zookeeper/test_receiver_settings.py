"""What createStream is given is checked on the driver, before anything is asked."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings

BROKERS = {"bootstrap.servers": "k:9092"}


def parse(quorum: Any = "z:2181", group: Any = "g", topics: Any = None, given: Any = BROKERS) -> ReceiverSettings:
    return ReceiverSettings.parse(quorum, group, {"t": 1} if topics is None else topics, given)


def test_the_old_consumers_parameters_and_their_defaults() -> None:
    plain = parse()
    assert (plain.session_timeout_ms, plain.connection_timeout_ms, plain.commit_interval_ms) == (6000, 10000, 60000)
    assert (plain.rebalance_retries, plain.rebalance_backoff_ms, plain.commits_on_timer) == (4, 2000, True)
    assert plain.params.reset == "latest"
    given = {
        "metadata.broker.list": "k:9092", "zookeeper.session.timeout.ms": "400", "zookeeper.connection.timeout.ms": 500,
        "auto.commit.interval.ms": "1000", "auto.commit.enable": "false", "rebalance.max.retries": 0, "rebalance.backoff.ms": 7,
        "auto.offset.reset": "smallest", "fetch.message.max.bytes": "1048576", "zookeeper.sync.time.ms": "200", "group.id": "another",
        "zookeeper.connect": "another:2181",
    }  # fmt: skip
    found = parse(given=given)
    assert (found.session_timeout_ms, found.connection_timeout_ms, found.commit_interval_ms) == (400, 500, 1000)
    assert (found.rebalance_retries, found.rebalance_backoff_ms, found.commits_on_timer) == (0, 7, False)
    assert found.params.reset == "earliest" and found.params.settings["max.partition.fetch.bytes"] == "1048576"
    assert (found.quorum, found.group, found.params.group) == ("z:2181", "g", "g"), "the arguments win, as in Spark"


@pytest.mark.parametrize("given", [None, {}, {"zookeeper.session.timeout.ms": "400"}, {"bootstrap.servers": ""}])
def test_without_brokers_it_says_why_they_are_needed(given: Any) -> None:
    with pytest.raises(KafkaConfigError, match=r"'bootstrap.servers' is missing.*Kafka 4 registers none there.*kafkaParams"):
        parse(given=given)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"quorum": ""}, "zookeeper.connect"),
        ({"group": " "}, "group.id"),
        ({"group": "a/b"}, "without a slash"),
        ({"topics": {}}, "at least one topic"),
        ({"topics": {"t": 0}}, "number of consumer threads"),
        ({"given": {**BROKERS, "offsets.storage": "kafka"}}, "A receiver's offsets are in ZooKeeper"),
        ({"given": {**BROKERS, "zookeeper.session.timeout.ms": "soon"}}, "not a positive whole number"),
        ({"given": {**BROKERS, "auto.commit.interval.ms": 0}}, "not a positive whole number"),
        ({"given": {**BROKERS, "auto.commit.enable": "perhaps"}}, "One of: true, false"),
        ({"given": {**BROKERS, "zookeeper.conect": "z"}}, "unknown"),
    ],
)
def test_what_cannot_work_is_one_error(wrong: dict[str, Any], said: str) -> None:
    with pytest.raises(KafkaConfigError, match=said):
        parse(**wrong)


def test_topics_and_parameters_are_dicts() -> None:
    with pytest.raises(TypeError, match="topics should be dict"):
        parse(topics=["t"])
    with pytest.raises(TypeError, match="kafkaParams should be dict"):
        parse(given=[("bootstrap.servers", "k")])


def test_a_password_shows_in_no_text() -> None:
    found = parse(given={**BROKERS, "sasl.password": "s3cr3t-of-ours"})
    assert "s3cr3t-of-ours" not in repr(found) + str(found) + found.as_text()
