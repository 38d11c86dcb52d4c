"""Shared by the driver's client and the workers' consumer: their creation, and the meaning of librdkafka's errors.

Of the connector only this module, the two clients and the demo's broker import confluent_kafka. Its exceptions become errors of the
connector here and in the clients, with `from`.

librdkafka's log goes to the logger `kstream.kafka.librdkafka`. It is silent unless the application adds a handler to it: an unreachable
broker is one error of the connector, not a screen of lines. The connector's warnings go to `kstream.kafka`. Both redact secrets,
whatever librdkafka's `debug` is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from kstream_kafka.client.oauth import TokenCallback
from kstream_kafka.client.ports import Settings
from kstream_kafka.client.redaction import RedactionFilter, add_secrets, redact
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError, KafkaError, NotAuthorizedError

client_log = logging.getLogger("kstream.kafka.librdkafka")
client_log.addHandler(logging.NullHandler())
client_log.addFilter(RedactionFilter())
client_log.propagate = False

logging.getLogger("kstream.kafka").addFilter(RedactionFilter())

_MOCK = "mockCluster"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero topic id, of brokers before 2.8."""

UNREACHABLE = frozenset({ClientError._TRANSPORT, ClientError._TIMED_OUT, ClientError._ALL_BROKERS_DOWN, ClientError._RESOLVE})
"""No broker answers."""
UNKNOWN_TOPIC = frozenset(
    {
        ClientError.UNKNOWN_TOPIC_OR_PART,
        ClientError._UNKNOWN_TOPIC,
        ClientError._UNKNOWN_PARTITION,
        ClientError._NOENT,
    }
)
LEADER_CHANGING = frozenset(
    {
        ClientError.NOT_LEADER_FOR_PARTITION,
        ClientError.LEADER_NOT_AVAILABLE,
        ClientError.REPLICA_NOT_AVAILABLE,
        ClientError.OFFSET_NOT_AVAILABLE,
        ClientError.FENCED_LEADER_EPOCH,
        ClientError.UNKNOWN_LEADER_EPOCH,
        ClientError.KAFKA_STORAGE_ERROR,
        ClientError.REQUEST_TIMED_OUT,
        ClientError.NETWORK_EXCEPTION,
        ClientError._WAIT_CACHE,
        ClientError.UNKNOWN_TOPIC_ID,
    }
)
"""A leader election, or a leader that is not ready: a retry helps."""
GROUP_ERRORS = frozenset({ClientError.GROUP_AUTHORIZATION_FAILED, ClientError._MAX_POLL_EXCEEDED, ClientError.COORDINATOR_NOT_AVAILABLE})
"""Errors of consumer groups. The connector uses none, but librdkafka looks for a coordinator all the same."""


def map_error(error: ClientError, bootstrap: str, operation: str, topic: str, group: str) -> KafkaError:
    """Return the connector's error for a broker's answer that a retry cannot change.

    Args:
        error: the broker's answer.
        bootstrap: the value of `bootstrap.servers`.
        operation: the operation on the topic, as READ or DESCRIBE.
        topic: the topic, if the request named one.
        group: the consumer group, if the request named one.
    """
    code, reason = error.code(), redact(error.str())
    if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ" if group else operation, "topic", topic, reason)
    if code == ClientError.GROUP_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ", "group", group, reason)
    if code == ClientError.CLUSTER_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, operation, "cluster", "", reason)
    return KafkaError(f"Kafka at {bootstrap} refused: {reason}", reason=reason)


def request_topic_ids(admin: Any, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """Return the ids of the topics that exist. Blocks up to `timeout_s`; KafkaException if nobody answers.

    librdkafka's mock cluster has no ids, and the request would time out there. Unlike a metadata request that names a topic,
    DescribeTopics never creates it.
    """
    if not topics or str(admin.cluster_id(timeout=timeout_s)).startswith(_MOCK):
        return {}
    ids: dict[str, str] = {}
    for topic, future in admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s).items():
        try:
            topic_id = str(future.result().topic_id)
        except KafkaException as e:
            if e.args[0].code() not in UNKNOWN_TOPIC | LEADER_CHANGING:
                raise
        else:
            if topic_id != NO_ID:
                ids[topic] = topic_id
    return ids


def new_client(kind: Callable[..., Any], settings: Settings) -> Any:
    """Create a client. With an `oauth_cb` it blocks for the first token.

    Args:
        kind: the class of confluent_kafka.
        settings: librdkafka properties. They are secrets from now on, unless they are public.

    Raises:
        KafkaConfigError: librdkafka refuses a property. The text shows no secret.
        AuthenticationFailedError: `oauth_cb` returned no token.
    """
    add_secrets(settings)
    token, bootstrap = settings.get("oauth_cb"), str(settings.get("bootstrap.servers", ""))
    if isinstance(token, TokenCallback):
        token.fetch_first(str(settings.get("sasl.oauthbearer.config", "")), bootstrap)
    try:
        return kind(dict(settings), logger=client_log)
    except KafkaException as e:
        error: ClientError = e.args[0]
        reason = redact(error.str())
    if error.code() == ClientError.SASL_AUTHENTICATION_FAILED:
        raise AuthenticationFailedError(bootstrap, "SASL", "OAUTHBEARER", reason, "Check what oauth_cb does.")
    if "No provider for SASL mechanism" in reason:
        hint = "The wheels of confluent-kafka have no Kerberos: pip install --no-binary confluent-kafka, against a librdkafka with GSSAPI."
        raise KafkaConfigError("sasl.mechanism", f"cannot be served by this librdkafka ({reason})", hint)
    named = [key for key in settings if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", reason)]
    raise KafkaConfigError(named[0] if named else "kafkaParams", "was refused by librdkafka", reason)
