"""Where librdkafka's own log lines go: to a logger that is silent unless the application gives it a handler of its own.

An unreachable broker is one error of ours, not a screen of lines. Our own warnings go to `kstream.kafka` and are seen. Neither shows a
secret, whatever librdkafka's `debug` is set to.

What the driver's client and the workers' have in common: making them, and what a broker's answer means.

Of the connector only this module, the two clients and `embedded_broker.py` import confluent_kafka; exceptions are mapped here and in
the clients, `from` kept. librdkafka's log goes to the logger `kstream.kafka.librdkafka`, which is silent unless the application gives it a
handler of its own: an unreachable broker is one error of ours, not a screen of lines.
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
from kstream_kafka.client.redaction import HidingFilter, hidden, remember
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError, KafkaError, NotAuthorizedError

client_log = logging.getLogger("kstream.kafka.librdkafka")
client_log.addHandler(logging.NullHandler())
client_log.addFilter(HidingFilter())
client_log.propagate = False

logging.getLogger("kstream.kafka").addFilter(HidingFilter())


_MOCK = "mockCluster"
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero id, of brokers before 2.8."""

AWAY = frozenset({ClientError._TRANSPORT, ClientError._TIMED_OUT, ClientError._ALL_BROKERS_DOWN, ClientError._RESOLVE})
UNKNOWN = frozenset({ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_TOPIC, ClientError._UNKNOWN_PARTITION, ClientError._NOENT})
MOVING = frozenset(
    {
        ClientError.NOT_LEADER_FOR_PARTITION, ClientError.LEADER_NOT_AVAILABLE, ClientError.REPLICA_NOT_AVAILABLE,
        ClientError.OFFSET_NOT_AVAILABLE, ClientError.FENCED_LEADER_EPOCH, ClientError.UNKNOWN_LEADER_EPOCH,
        ClientError.KAFKA_STORAGE_ERROR, ClientError.REQUEST_TIMED_OUT, ClientError.NETWORK_EXCEPTION,
        ClientError._WAIT_CACHE, ClientError.UNKNOWN_TOPIC_ID,
    }
)  # fmt: skip
NOT_OURS = frozenset({ClientError.GROUP_AUTHORIZATION_FAILED, ClientError._MAX_POLL_EXCEEDED, ClientError.COORDINATOR_NOT_AVAILABLE})
"""About consumer groups, which are not used: librdkafka looks for a coordinator all the same."""


def refused(error: ClientError, bootstrap: str, operation: str, topic: str, group: str) -> KafkaError:
    """What a broker's answer means that is no passing one; `operation` is what the topic was asked for."""
    code, reason = error.code(), hidden(error.str())
    if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ" if group else operation, "topic", topic, reason)
    if code == ClientError.GROUP_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ", "group", group, reason)
    if code == ClientError.CLUSTER_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, operation, "cluster", "", reason)
    return KafkaError(f"Kafka at {bootstrap} refused: {reason}", reason=reason)


def ask_topic_ids(admin: Any, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """The ids of those topics that are there; KafkaException when nobody answers.

    librdkafka's mock cluster has none, and would let the question time out. DescribeTopics, unlike a metadata request that names a
    topic, never creates it.
    """
    if not topics or str(admin.cluster_id(timeout=timeout_s)).startswith(_MOCK):
        return {}
    ids: dict[str, str] = {}
    for topic, future in admin.describe_topics(TopicCollection(list(topics)), request_timeout=timeout_s).items():
        try:
            found = str(future.result().topic_id)
        except KafkaException as e:
            if e.args[0].code() not in UNKNOWN | MOVING:
                raise
        else:
            if found != NO_ID:
                ids[topic] = found
    return ids


def made(kind: Callable[..., Any], settings: Settings) -> Any:
    """A client object; a property the library refuses becomes a KafkaConfigError without a secret.

    Blocks for a first token where there is an oauth_cb; AuthenticationFailedError if that gives none.
    """
    remember(settings)
    token, at = settings.get("oauth_cb"), str(settings.get("bootstrap.servers", ""))
    if isinstance(token, TokenCallback):
        token.fetch_first(str(settings.get("sasl.oauthbearer.config", "")), at)
    try:
        return kind(dict(settings), logger=client_log)
    except KafkaException as e:
        error: ClientError = e.args[0]
        said = hidden(error.str())
    if error.code() == ClientError.SASL_AUTHENTICATION_FAILED:
        raise AuthenticationFailedError(at, "SASL", "OAUTHBEARER", said, "Check what oauth_cb does.")
    if "No provider for SASL mechanism" in said:
        hint = "The wheels of confluent-kafka have no Kerberos: pip install --no-binary confluent-kafka, against a librdkafka with GSSAPI."
        raise KafkaConfigError("sasl.mechanism", f"cannot be served by this librdkafka ({said})", hint)
    named = [key for key in settings if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", said)]
    raise KafkaConfigError(named[0] if named else "kafkaParams", "was refused by librdkafka", said)
