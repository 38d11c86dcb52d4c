"""Checks of a dead-letter topic on the driver, before the first batch."""

from __future__ import annotations

from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import KafkaConfigError, UnknownTopicError, create_command
from kstream_kafka.planning.subscription import Subscribed, Topics


def check_apart(topic: str | None, read: Subscribed) -> None:
    """Check that a stream does not read its own dead letters. KafkaConfigError if it does. None is no topic.

    Args:
        topic: the dead-letter topic.
        read: the topics that the stream reads.
    """
    if topic is not None and read.wants(topic):
        raise KafkaConfigError("deadLetterTopic", f"is {topic!r}, which the stream itself reads", "Name another topic.")


def check_exists(topic: str | None, client: DriverClient, bootstrap: str) -> None:
    """Check that the dead-letter topic exists. Blocks on the brokers. None is no topic.

    Raises:
        KafkaConfigError: there is no such topic.
        KafkaError: another error of the client.
    """
    if topic is None:
        return
    try:
        client.partitions(Topics((topic,)))
    except UnknownTopicError as e:
        hint = f"Create it: {create_command(topic, bootstrap)}"
        raise KafkaConfigError("deadLetterTopic", f"is {topic!r}, a topic that Kafka does not have", hint) from e
