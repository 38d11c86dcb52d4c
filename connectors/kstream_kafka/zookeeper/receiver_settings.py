"""ReceiverSettings: the arguments of `createStream`, checked on the driver, with the parameters of Kafka's old consumer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kstream.public_call import refused
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.errors import KafkaConfigError

_NUMBERS = {
    "zookeeper.session.timeout.ms": 6_000,
    "zookeeper.connection.timeout.ms": 10_000,  # as pyspark's createStream set it
    "auto.commit.interval.ms": 60_000,
    "rebalance.max.retries": 4,
    "rebalance.backoff.ms": 2_000,
}
"""The parameters of the old consumer that have an effect here, with their defaults."""

_WITHOUT_MEANING = frozenset({"zookeeper.sync.time.ms", "consumer.id"})
_SWITCH = ("auto.commit.enable", "enable.auto.commit")


@dataclass(frozen=True)
class ReceiverSettings:
    """The settings of a Kafka receiver, pickled with it. `repr` shows no secret.

    Attributes:
        quorum: ZooKeeper's servers, `host:port,host:port/chroot`.
        group: the consumer group.
        topics: topic → number of consumer threads: this receiver's share of the partitions among all consumers of the group.
        params: the Kafka parameters.
        session_timeout_ms: `zookeeper.session.timeout.ms`.
        connection_timeout_ms: `zookeeper.connection.timeout.ms`.
        commit_interval_ms: `auto.commit.interval.ms`.
        commits_on_timer: `auto.commit.enable`; without it the plain receiver writes no offsets.
        rebalance_retries: `rebalance.max.retries`.
        rebalance_backoff_ms: `rebalance.backoff.ms`.
    """

    quorum: str
    group: str
    topics: Mapping[str, int]
    params: KafkaParams
    session_timeout_ms: int
    connection_timeout_ms: int
    commit_interval_ms: int
    commits_on_timer: bool
    rebalance_retries: int
    rebalance_backoff_ms: int

    @staticmethod
    def parse(quorum: str, group: str, topics: Mapping[str, int], given: Mapping[str, Any] | None) -> ReceiverSettings:
        """Check the arguments of `createStream`, and return the settings. Sends no request.

        A parameter that is not given has the default of _NUMBERS. One that means nothing here is ignored.

        Raises:
            KafkaConfigError: an argument or parameter cannot work.
            TypeError: an argument is of the wrong type.
        """
        if not isinstance(topics, dict):
            raise refused(TypeError("topics should be dict"))
        if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused(TypeError("kafkaParams should be dict"))
        _check_names(quorum, group)
        params = {**(given or {}), "group.id": group}
        _check_brokers(params)
        _check_storage(params)
        rest = {k: v for k, v in params.items() if k not in _WITHOUT_MEANING}

        def number(key: str) -> int:
            return _number(key, params.get(key, _NUMBERS[key]))

        return ReceiverSettings(
            quorum=quorum.strip(),
            group=group,
            topics=_checked_topics(topics),
            params=KafkaParams.parse(rest),
            session_timeout_ms=number("zookeeper.session.timeout.ms"),
            connection_timeout_ms=number("zookeeper.connection.timeout.ms"),
            commit_interval_ms=number("auto.commit.interval.ms"),
            commits_on_timer=next((_switch(key, params[key]) for key in _SWITCH if key in params), True),
            rebalance_retries=number("rebalance.max.retries"),
            rebalance_backoff_ms=number("rebalance.backoff.ms"),
        )

    def as_text(self) -> str:
        """Return a text about group and servers for log lines."""
        return f"group {self.group!r} at ZooKeeper {self.quorum}"


def _check_names(quorum: str, group: str) -> None:
    """Raise KafkaConfigError unless the quorum and the group are usable names."""
    for key, name in (("zookeeper.connect", quorum), ("group.id", group)):
        if not isinstance(name, str) or not name.strip():  # pyright: ignore[reportUnnecessaryIsInstance]
            raise KafkaConfigError(key, f"is {name!r}", "createStream needs ZooKeeper's host:port, and the name of a consumer group.")
    if "/" in group:
        raise KafkaConfigError("group.id", f"is {group!r}", "It names a node of ZooKeeper: without a slash.")


def _check_brokers(params: Mapping[str, Any]) -> None:
    """Raise KafkaConfigError if the parameters name no broker."""
    if not any(params.get(key) for key in ("bootstrap.servers", "metadata.broker.list")):
        hint = (
            "createStream finds partitions' owners and offsets in ZooKeeper, but no brokers: Kafka 4 registers none there. Add "
            "'bootstrap.servers': 'host:9092' (or 'metadata.broker.list') to kafkaParams."
        )
        raise KafkaConfigError("bootstrap.servers", "is missing", hint)


def _check_storage(params: Mapping[str, Any]) -> None:
    """Raise KafkaConfigError if `offsets.storage` is not ZooKeeper."""
    if str(params.get("offsets.storage", "zookeeper")).lower() != "zookeeper":
        hint = "A receiver's offsets are in ZooKeeper. To continue a group's commits in Kafka use createDirectStream: docs/migration.md."
        raise KafkaConfigError("offsets.storage", f"is {params['offsets.storage']!r}", hint)


def _checked_topics(topics: Mapping[str, int]) -> dict[str, int]:
    """Return the topics. Raises KafkaConfigError if there are none, or if a number of threads is less than 1."""
    for topic, threads in topics.items():
        if not isinstance(topic, str) or not isinstance(threads, int) or threads < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise KafkaConfigError("topics", f"has {topic!r}: {threads!r}", "Give a number of consumer threads, 1 or more, for each topic.")
    if not topics:
        raise KafkaConfigError("topics", "is empty", "Give at least one topic, with its number of consumer threads: {'orders': 1}.")
    return dict(topics)


def _number(key: str, value: Any) -> int:
    """Return the value of a parameter as a positive number; only `rebalance.max.retries` may be 0. Raises KafkaConfigError."""
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if number < 0 or (number == 0 and key != "rebalance.max.retries"):
        raise KafkaConfigError(key, f"is {value!r}, not a positive whole number")
    return number


def _switch(key: str, value: Any) -> bool:
    """Return the value of a parameter that is true or false. Raises KafkaConfigError if it is neither."""
    text = str(value).lower()
    if text not in ("true", "false"):
        raise KafkaConfigError(key, f"is {value!r}", "One of: true, false.")
    return text == "true"
