"""The creation of librdkafka's clients and the meaning of its errors, for the driver's client and the workers' consumer.

Of the connector only this module, the two clients and the demo's broker import confluent_kafka. This module and the clients turn the
exceptions of confluent_kafka into errors of the connector, with `from`.

librdkafka's log goes to the logger `kstream.kafka.librdkafka`. It is silent unless the application adds a handler to it: an unreachable
broker is one error of the connector, not a screen of lines. The connector's warnings go to `kstream.kafka`. Both loggers redact secrets,
whatever the value of librdkafka's `debug` is.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection
from typing import Any

from confluent_kafka import KafkaError as ClientError
from confluent_kafka import KafkaException, TopicCollection

from kstream.secret import redact
from kstream_kafka.client.oauth import TokenCallback
from kstream_kafka.client.ports import Settings
from kstream_kafka.client.redaction import RedactionFilter
from kstream_kafka.client.secrets import read_secrets
from kstream_kafka.errors import AuthenticationFailedError, GroupNotEmptyError, KafkaConfigError, KafkaError, NotAuthorizedError

client_log = logging.getLogger("kstream.kafka.librdkafka")
client_log.addHandler(logging.NullHandler())
client_log.addFilter(RedactionFilter())
client_log.propagate = False

logging.getLogger("kstream.kafka").addFilter(RedactionFilter())

_MOCK = "mockCluster"
"""Begins the cluster id of librdkafka's mock cluster."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""The zero topic id, of brokers before 2.8."""

UNREACHABLE = frozenset({ClientError._TRANSPORT, ClientError._TIMED_OUT, ClientError._ALL_BROKERS_DOWN, ClientError._RESOLVE})
"""Errors that mean: no broker answers."""
UNKNOWN_TOPIC = frozenset(
    {
        ClientError.UNKNOWN_TOPIC_OR_PART,
        ClientError._UNKNOWN_TOPIC,
        ClientError._UNKNOWN_PARTITION,
        ClientError._NOENT,
    }
)
"""Errors that mean: the topic or the partition does not exist."""
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
"""Errors of a leader election, or of a leader that is not ready. A retry helps."""
_REPEATS = frozenset({"FAIL", "REQTMOUT", "RETRY"})
"""The names of librdkafka's lines about a connection that was lost, a request without an answer in time, one that is sent again."""
GROUP_ERRORS = frozenset({ClientError.GROUP_AUTHORIZATION_FAILED, ClientError._MAX_POLL_EXCEEDED, ClientError.COORDINATOR_NOT_AVAILABLE})
"""Errors of consumer groups. The consumers join no group, but librdkafka looks for a coordinator nevertheless."""


def text_of(error: ClientError | KafkaException) -> str:
    """Return the text of an error of librdkafka without secrets. No other function asks such an error for its text. Any thread."""
    return redact(error.str() if isinstance(error, ClientError) else str(error))


class ConnectionLog:
    """The log of a client, which tells whether any of its requests may be on its way twice. One client.

    The other callbacks do not tell of each lost connection. A line comes before the request is sent again, within a later call of the
    client. So who polls after an answer knows of all that has happened before the answer.
    """

    def __init__(self, debug: object = None) -> None:
        """`debug`: what the user wants to have in the log."""
        contexts = f"{debug},broker" if debug else "broker"
        self.settings: Settings = {"log_level": 7, "log.connection.close": True, "debug": contexts}
        """The properties without which the log does not tell it. They win over the user's."""
        self._least = logging.DEBUG if debug else logging.INFO
        self.is_live = False
        """Whether a line has come. Without one the log says nothing."""
        self.has_repeats = False
        """Whether a connection was lost, or a request has had no answer in time, or was sent again."""

    def log(self, level: int, text: str, facility: str, *more: object) -> None:
        """Note a line. confluent_kafka calls it, as it would a logger."""
        self.is_live = True
        self.has_repeats = self.has_repeats or facility in _REPEATS
        if level >= self._least:
            client_log.log(level, text, facility, *more)


class LastClientError:
    """The last error of a client's connections. librdkafka goes on after it, so it is only the reason of what comes of it."""

    def __init__(self) -> None:
        self.text = ""
        """Empty if there was none."""

    def note(self, error: ClientError) -> None:
        """Note an error that is not of GROUP_ERRORS. The `error_cb` of a client: confluent_kafka calls it within other calls."""
        if error.code() not in GROUP_ERRORS:
            self.text = text_of(error)

    @property
    def because(self) -> str:
        """The clause for an error message; empty if there was none."""
        return f" ({self.text})" if self.text else ""


def map_error(error: ClientError, bootstrap: str, operation: str, topic: str, group: str) -> KafkaError:
    """Return the connector's error for a broker's answer that a retry cannot change. Pure.

    Args:
        error: the broker's answer.
        bootstrap: the value of `bootstrap.servers`.
        operation: the operation on the topic: "READ", "DESCRIBE" or "CREATE".
        topic: the topic; empty if the request named none.
        group: the consumer group; empty if the request named none.

    Returns:
        NotAuthorizedError for a missing ACL, GroupNotEmptyError for a commit that only members of the group may send, otherwise a
        KafkaError with the redacted reason.
    """
    code, reason = error.code(), text_of(error)
    if code == ClientError.TOPIC_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ" if group else operation, "topic", topic, reason)
    if code == ClientError.GROUP_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, "READ", "group", group, reason)
    if code == ClientError.UNKNOWN_MEMBER_ID and group:
        return GroupNotEmptyError(bootstrap, group, reason)
    if code == ClientError.CLUSTER_AUTHORIZATION_FAILED:
        return NotAuthorizedError(bootstrap, operation, "cluster", "", reason)
    return KafkaError(f"Kafka at {bootstrap} refused: {reason}", reason=reason)


def is_mock_cluster(admin: Any, timeout_s: float) -> bool:
    """Return whether the brokers are librdkafka's mock cluster, which leaves some requests without an answer. Blocks up to `timeout_s`.

    Raises KafkaException if no broker answers.
    """
    return is_mock_id(admin.cluster_id(timeout=timeout_s))


def is_mock_id(cluster_id: str | None) -> bool:
    """Return whether this is the cluster id of librdkafka's mock cluster, which is the embedded broker. Pure."""
    return (cluster_id or "").startswith(_MOCK)


def request_topic_ids(admin: Any, topics: Collection[str], timeout_s: float) -> dict[str, str]:
    """Return the ids of the topics that exist. Asks for the cluster id, then sends a DescribeTopics. Blocks up to `timeout_s` for each.

    DescribeTopics never creates a topic, unlike a metadata request that names one. librdkafka's mock cluster would not answer it. The
    cluster id tells the mock cluster, and then the result is empty.

    Args:
        admin: the AdminClient of confluent_kafka.
        topics: the names of the topics.
        timeout_s: the timeout of a request, in seconds.

    Returns:
        topic → topic id. Missing topics, topics in a leader election, and topics of brokers without ids are left out.

    Raises:
        KafkaException: no broker answers, or the broker refuses the request.
    """
    if not topics or is_mock_cluster(admin, timeout_s):
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


def new_client(kind: Callable[..., Any], settings: Settings, log: ConnectionLog | None = None) -> Any:
    """Create a client of confluent_kafka. With an `oauth_cb` the call blocks until the user's function has returned the first token.

    Args:
        kind: the class of the client.
        settings: librdkafka properties. Sources of secrets are read. From now on all texts are redacted by the values, except public ones.
        log: gets the lines of the client's log, and hands them on; None for the logger itself.

    Returns:
        The client. It logs to `kstream.kafka.librdkafka`.

    Raises:
        KafkaConfigError: librdkafka refuses a property, or the source of a secret cannot be read. The text shows no secret.
        AuthenticationFailedError: `oauth_cb` returned no token.
    """
    settings = read_secrets(settings)
    token, bootstrap = settings.get("oauth_cb"), str(settings.get("bootstrap.servers", ""))
    if isinstance(token, TokenCallback):
        token.fetch_first(str(settings.get("sasl.oauthbearer.config", "")), bootstrap)
    try:
        return kind(dict(settings), logger=log or client_log)
    except KafkaException as e:
        error: ClientError = e.args[0]
        reason = text_of(error)
    if error.code() == ClientError.SASL_AUTHENTICATION_FAILED:
        raise AuthenticationFailedError(bootstrap, "SASL", "OAUTHBEARER", reason, "Check your function oauth_cb.")
    if "No provider for SASL mechanism" in reason:
        hint = "The wheels of confluent-kafka have no Kerberos: pip install --no-binary confluent-kafka, against a librdkafka with GSSAPI."
        raise KafkaConfigError("sasl.mechanism", f"cannot be served by this librdkafka ({reason})", hint)
    named = [key for key in settings if re.search(rf"(?<![\w.]){re.escape(key)}(?![\w.])", reason)]
    raise KafkaConfigError(named[0] if named else "kafkaParams", "was refused by librdkafka", reason)
