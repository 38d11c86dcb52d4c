"""KafkaParams: the user's Kafka parameters, by the Java client's names or librdkafka's, translated to librdkafka's.

`KafkaParams.parse` reads the user's dict once, on the driver. `driver()` and `executor()` are the properties of the two kinds of client.
Executors get the settings that Spark gives them (kafka-0-10, `KafkaUtils.fixKafkaParams`): reset policy none ("error"), no auto-commit,
group "spark-executor-…", a receive buffer of at least 65536 if one is set. Values that may hold a secret are in no `repr` and in no
stored form.

COMMON, CONSUMER and PRODUCER are the names of librdkafka's properties (2.16), from `rd_kafka_conf_properties_show`. librdkafka rejects an
unknown name too, but only when a client is created, one name at a time, and without a suggestion. With the tables the driver finds a wrong
parameter before it does anything else. A name of a later librdkafka passes with the prefix `librdkafka.`, which skips the tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kstream.nearest_name import did_you_mean, nearest_names
from kstream.public_call import refused
from kstream_kafka.client import java_security
from kstream_kafka.client.redaction import Properties, is_public, property_names, redacted
from kstream_kafka.client.secrets import is_source, source_of
from kstream_kafka.errors import KafkaConfigError

COMMON = property_names(
    """
    allow.auto.create.topics api.version.fallback.ms api.version.request api.version.request.timeout.ms
    bootstrap.servers broker.address.family broker.address.ttl broker.version.fallback client.dns.lookup client.id
    client.rack connections.max.idle.ms debug enable.metrics.push enable.random.seed
    enable.sasl.oauthbearer.unsecure.jwt enable.ssl.certificate.verification error_cb https.ca.location https.ca.pem
    internal.termination.signal log.connection.close log.thread.name log_level max.in.flight
    max.in.flight.requests.per.connection message.copy.max.bytes message.max.bytes metadata.broker.list
    metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy oauth_cb
    plugin.library.paths receive.message.max.bytes reconnect.backoff.jitter.ms reconnect.backoff.max.ms
    reconnect.backoff.ms retry.backoff.max.ms retry.backoff.ms sasl.kerberos.keytab sasl.kerberos.kinit.cmd
    sasl.kerberos.min.time.before.relogin sasl.kerberos.principal sasl.kerberos.service.name sasl.mechanism
    sasl.mechanisms sasl.oauthbearer.assertion.algorithm sasl.oauthbearer.assertion.claim.aud
    sasl.oauthbearer.assertion.claim.exp.seconds sasl.oauthbearer.assertion.claim.iss
    sasl.oauthbearer.assertion.claim.jti.include sasl.oauthbearer.assertion.claim.nbf.seconds
    sasl.oauthbearer.assertion.claim.sub sasl.oauthbearer.assertion.file
    sasl.oauthbearer.assertion.jwt.template.file sasl.oauthbearer.assertion.private.key.file
    sasl.oauthbearer.assertion.private.key.passphrase sasl.oauthbearer.assertion.private.key.pem
    sasl.oauthbearer.client.credentials.client.id sasl.oauthbearer.client.credentials.client.secret
    sasl.oauthbearer.client.id sasl.oauthbearer.client.secret sasl.oauthbearer.config sasl.oauthbearer.extensions
    sasl.oauthbearer.grant.type sasl.oauthbearer.metadata.authentication.type sasl.oauthbearer.method
    sasl.oauthbearer.scope sasl.oauthbearer.sub.claim.name sasl.oauthbearer.token.endpoint.url sasl.password
    sasl.username security.protocol socket.blocking.max.ms socket.connection.setup.timeout.ms
    socket.keepalive.enable socket.max.fails socket.nagle.disable socket.receive.buffer.bytes
    socket.send.buffer.bytes socket.timeout.ms ssl.ca.certificate.stores ssl.ca.location ssl.ca.pem
    ssl.certificate.location ssl.certificate.pem ssl.cipher.suites ssl.crl.location ssl.curves.list
    ssl.endpoint.identification.algorithm ssl.engine.id ssl.engine.location ssl.key.location ssl.key.password
    ssl.key.pem ssl.keystore.location ssl.keystore.password ssl.providers ssl.sigalgs.list statistics.interval.ms
    stats_cb throttle_cb topic.blacklist topic.metadata.propagation.max.ms topic.metadata.refresh.fast.cnt
    topic.metadata.refresh.fast.interval.ms topic.metadata.refresh.interval.ms topic.metadata.refresh.sparse
    """
)
"""Properties of every kind of client, and the callbacks of confluent_kafka."""

CONSUMER = property_names(
    """
    auto.commit.enable auto.commit.interval.ms auto.offset.reset check.crcs consume.callback.max.messages
    coordinator.query.interval.ms enable.auto.commit enable.auto.offset.store enable.partition.eof
    fetch.error.backoff.ms fetch.max.bytes fetch.message.max.bytes fetch.min.bytes fetch.queue.backoff.ms
    fetch.wait.max.ms group.id group.instance.id group.protocol group.protocol.type group.remote.assignor
    heartbeat.interval.ms isolation.level max.partition.fetch.bytes max.poll.interval.ms max.poll.records
    offset.store.method offset.store.path offset.store.sync.interval.ms partition.assignment.strategy
    queued.max.messages.kbytes queued.min.messages session.timeout.ms share.acknowledgement.mode
    """
)
"""Properties of consumers only: not for the driver's admin client."""

PRODUCER = property_names(
    """
    acks batch.num.messages batch.size compression.codec compression.level compression.type
    delivery.report.only.error delivery.timeout.ms enable.gapless.guarantee enable.idempotence linger.ms
    message.send.max.retries message.timeout.ms produce.offset.report queue.buffering.backpressure.threshold
    queue.buffering.max.kbytes queue.buffering.max.messages queue.buffering.max.ms queuing.strategy
    request.required.acks request.timeout.ms retries sticky.partitioning.linger.ms transaction.timeout.ms
    transactional.id
    """
)
"""Properties of producers only. Streams accept and ignore them, because people share one dict between producer and consumer."""

RENAMED = {
    "metadata.broker.list": "bootstrap.servers",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "request.timeout.ms": "socket.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "ssl.truststore.certificates": "ssl.ca.pem",
    "ssl.keystore.certificate.chain": "ssl.certificate.pem",
    "ssl.keystore.key": "ssl.key.pem",
    "auto.commit.enable": "enable.auto.commit",
}
"""Java's name, 0.8's name or librdkafka's alias → librdkafka's name."""

DROPPED = property_names(
    """
    key.deserializer value.deserializer max.poll.records interceptor.classes metric.reporters metrics.num.samples
    metrics.recording.level metrics.sample.window.ms exclude.internal.topics partition.assignment.strategy
    zookeeper.connect zookeeper.session.timeout.ms zookeeper.connection.timeout.ms consumer.timeout.ms
    rebalance.max.retries rebalance.backoff.ms offsets.storage dual.commit.enabled num.consumer.fetchers
    queued.max.message.chunks enable.auto.commit auto.commit.interval.ms socket.connection.setup.timeout.max.ms
    """
)
"""Known names of Java classes, ZooKeeper, group membership and commits. They are accepted and dropped: reads use no consumer group."""

OWN = frozenset({"refresh.leader.backoff.ms", "default.api.timeout.ms", "max.request.size"})
"""Parameters of kstream itself. `default.api.timeout.ms` is the timeout of each request of the driver."""

_RESET = {
    "smallest": "earliest",
    "earliest": "earliest",
    "beginning": "earliest",
    "largest": "latest",
    "latest": "latest",
    "end": "latest",
    "none": "error",
    "error": "error",
}
_ISOLATION = ("read_uncommitted", "read_committed")
_RAW = "librdkafka."

SMALL_FETCH = {
    "fetch.wait.max.ms": 10,
    "fetch.queue.backoff.ms": 0,
    "max.partition.fetch.bytes": 65536,
    "queued.min.messages": 1000,
}
"""Fetch sizes for ranges of few records. The first record comes in about 1 ms, and little is fetched past the end of the range."""

BULK_FETCH = {"fetch.wait.max.ms": 10, "fetch.queue.backoff.ms": 10, "max.partition.fetch.bytes": 4_194_304}
"""Fetch sizes for long ranges. The short wait matters here too: a consumer that has fetched past its range waits at the log's end, and can
begin the next range only after the broker's response."""

CONTINUOUS_FETCH = {"fetch.wait.max.ms": 100, "fetch.queue.backoff.ms": 5, "queued.max.messages.kbytes": 16_384}
"""Fetches without an end, of records as they come. An idle partition costs ten requests a second, and 16 MB wait in the client at most."""

DEAD_LETTER_PRODUCER = {
    "allow.auto.create.topics": "false",
    "enable.idempotence": "true",
    "acks": "all",
    "linger.ms": 5,
    "message.timeout.ms": 60_000,
    "message.max.bytes": 1_000_000_000,
    "queue.buffering.max.messages": 10_000,
    "partitioner": "murmur2_random",
}
"""Properties of the producer of dead letters. They win over the user's. The queue is short, because its records' headers are kept twice."""

SINK_PRODUCER = {
    "allow.auto.create.topics": "false",
    "enable.idempotence": "true",
    "acks": "all",
    "message.max.bytes": 1_000_000_000,
    "partitioner": "murmur2_random",
}
"""Properties of the producers that write records of a stream. They win over the user's."""

OF_THE_SINK = frozenset({"transactional.id", "transaction.timeout.ms", "delivery.report.only.error", "request.required.acks"})
"""Properties of producers that the sink sets itself, or that are another name of one in SINK_PRODUCER."""

_SMALLEST_MESSAGE = 1000
"""The smallest message.max.bytes that librdkafka accepts."""


@dataclass(frozen=True, repr=False)
class KafkaParams:
    """The user's Kafka parameters, validated and translated. Immutable. `repr` shows no secret.

    Attributes:
        settings: librdkafka's properties, without the dropped parameters.
        own: the parameters of kstream itself, see OWN.
        producing: properties of producers only, as the user gave them. Only the sink uses them.
    """

    settings: Mapping[str, Any]
    own: Mapping[str, int]
    producing: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @staticmethod
    def parse(given: Mapping[str, Any]) -> KafkaParams:
        """Validate and translate the user's dict. Sends no request.

        Args:
            given: the parameters, by the Java client's or librdkafka's names.

        Returns:
            The parameters.

        Raises:
            KafkaConfigError: a parameter is unknown, unsupported or malformed, or `bootstrap.servers` is missing.
            TypeError: `given` is no mapping.
        """
        if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused(TypeError("kafkaParams should be dict"))
        own: dict[str, int] = {}
        producing: dict[str, Any] = {}
        settings, rest = java_security.translate(given)
        for key, value in rest.items():
            for name, translated in _translate(key, value, given):
                if name in OWN:
                    own[name] = _whole_number(name, translated)
                elif name in PRODUCER:
                    producing[name] = translated
                else:
                    settings[name] = translated
        if not settings.get("bootstrap.servers"):
            raise KafkaConfigError("bootstrap.servers", "is missing", "Give host:port of a broker, also accepted as metadata.broker.list.")
        java_security.checked(settings)
        settings["isolation.level"] = _one_of("isolation.level", settings.get("isolation.level", _ISOLATION[0]), _ISOLATION)
        settings["auto.offset.reset"] = _reset(settings.get("auto.offset.reset", "latest"))
        return KafkaParams(settings, own, producing)

    @property
    def bootstrap(self) -> str:
        """The brokers' addresses, from `bootstrap.servers`."""
        return str(self.settings["bootstrap.servers"])

    @property
    def reset(self) -> str:
        """The start of partitions without an offset: "earliest", "latest" (the default, as in Spark 2.4) or "error"."""
        return str(self.settings["auto.offset.reset"])

    @property
    def group(self) -> str | None:
        """The consumer group of commits; None if `group.id` is missing."""
        group = self.settings.get("group.id")
        return None if group in (None, "") else str(group)

    @property
    def read_committed(self) -> bool:
        """Whether only records of committed transactions are read."""
        return self.settings["isolation.level"] == "read_committed"

    @property
    def metadata_max_age_ms(self) -> int:
        """The time in ms between two looks of the driver for new partitions. KafkaConfigError if it is no whole number."""
        return _whole_number("metadata.max.age.ms", self.settings.get("metadata.max.age.ms", 300_000))

    @property
    def leader_backoff_ms(self) -> int:
        """The pause in ms before a request is retried for partitions without an answer."""
        return self.own.get("refresh.leader.backoff.ms", 200)

    @property
    def api_timeout_ms(self) -> int:
        """The timeout in ms of one request of the driver."""
        return self.own.get("default.api.timeout.ms", 15_000)

    def from_leaders(self) -> dict[str, Any]:
        """Return the properties of a consumer that reads from leaders: a follower may be late."""
        return Properties({key: value for key, value in self.executor().items() if key != "client.rack"})

    def uncommitted(self) -> KafkaParams:
        """Return the same parameters with reads of uncommitted records. Ends of logs are high watermarks then."""
        return replace(self, settings={**self.settings, "isolation.level": _ISOLATION[0]})

    @property
    def max_record_bytes(self) -> int:
        """The most bytes of a record that is written, with its headers: `max.request.size`. The default is that of the Java client."""
        return self.own.get("max.request.size", 1_048_576)

    def driver(self) -> dict[str, Any]:
        """Return the properties of the driver's admin client: all settings except those of consumers only."""
        return Properties({k: v for k, v in self.settings.items() if k not in CONSUMER})

    def executor(self) -> dict[str, Any]:
        """Return the properties of the workers' consumers, without fetch sizes. `small` and `bulk` add those.

        Raises:
            KafkaConfigError: a size is no whole number.
        """
        settings = Properties(self.settings)
        settings["group.id"] = "spark-executor-" + str(settings.get("group.id", "kstream"))
        settings.update(
            {"auto.offset.reset": "error", "enable.auto.commit": "false", "enable.auto.offset.store": "false"},
        )
        settings["enable.partition.eof"] = "true"
        settings.pop("group.instance.id", None)  # workers with one static member id would fence each other
        buffer = "socket.receive.buffer.bytes"
        if buffer in settings and 0 < _whole_number(buffer, settings[buffer]) < 65536:
            settings[buffer] = 65536  # 0 means the system's default, which grows by itself
        fetch, message = "fetch.max.bytes", "message.max.bytes"
        if fetch in settings:  # librdkafka refuses a value below message.max.bytes, which has no other use for a consumer
            settings[fetch] = max(_SMALLEST_MESSAGE, _whole_number(fetch, settings[fetch]))
            settings[message] = min(settings[fetch], _whole_number(message, settings.get(message, 1_000_000)))
        return settings

    def producer(self) -> dict[str, Any]:
        """Return the properties of the workers' producer of dead letters: idempotent, with acks of all replicas.

        A record that a consumer could read is never too large for it. Records of one key go to one partition, as those of the Java client.
        """
        settings = {k: v for k, v in self.settings.items() if k not in CONSUMER}
        return Properties({**settings, **DEAD_LETTER_PRODUCER})

    @property
    def transaction_ms(self) -> int:
        """The time-out in ms of a transaction of the sink. KafkaConfigError if it is no whole number."""
        return _whole_number("transaction.timeout.ms", self.producing.get("transaction.timeout.ms", 60_000))

    def sink(self) -> dict[str, Any]:
        """Return the properties of the producers that write records of a stream: idempotent, with acks of all replicas.

        The user's own properties of producers count, such as `compression.type` and `linger.ms`, except those in SINK_PRODUCER and those
        that the sink sets itself.
        """
        settings = {k: v for k, v in self.settings.items() if k not in CONSUMER}
        producing = {k: _plain(k, v) for k, v in self.producing.items() if k not in OF_THE_SINK}
        return Properties({**settings, **producing, **SINK_PRODUCER})

    def storable(self) -> dict[str, Any] | None:
        """Return all parameters as JSON values, from which `parse` makes equal ones; None if `not_storable` names any."""
        return None if self.not_storable() else {**self.settings, **self.own}

    def not_storable(self) -> list[str]:
        """Return the names of the parameters that could hold a secret or have no plain value, sorted."""
        return sorted(key for key, value in {**self.settings, **self.own}.items() if not is_public(key, value))

    def __repr__(self) -> str:
        return f"KafkaParams({redacted({**self.settings, **self.own})})"


def small(executor: Mapping[str, Any]) -> dict[str, Any]:
    """Return consumer properties for ranges of few records. SMALL_FETCH replaces the user's fetch sizes, because latency matters here.

    Args:
        executor: the properties from `KafkaParams.executor`.
    """
    return Properties({**executor, **SMALL_FETCH})


def bulk(executor: Mapping[str, Any]) -> dict[str, Any]:
    """Return consumer properties for a long range. The user's fetch sizes win over BULK_FETCH.

    Args:
        executor: the properties from `KafkaParams.executor`.
    """
    return Properties({**BULK_FETCH, **executor})


def continuous(executor: Mapping[str, Any]) -> dict[str, Any]:
    """Return consumer properties for a read without an end. CONTINUOUS_FETCH replaces the user's, because latency matters here.

    Args:
        executor: the properties from `KafkaParams.executor`.
    """
    return Properties({**executor, **CONTINUOUS_FETCH})


def _translate(key: str, value: Any, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the librdkafka properties of one parameter; none if the parameter is dropped.

    Raises:
        KafkaConfigError: the parameter is unknown, its value is of a wrong type, or another name of it has another value.
    """
    if key.startswith(_RAW):
        return [(key.removeprefix(_RAW), _plain(key, value))]
    name = RENAMED.get(key, key)
    if name != key and name in given and name != "enable.auto.commit":
        if str(given[name]) != str(value):
            raise KafkaConfigError(key, f"and {name!r} are the same parameter and have different values", "Give one of them.")
        return []
    if key in DROPPED or name in DROPPED:
        return []
    if name in OWN or name in COMMON or name in CONSUMER:
        return [(name, _plain(key, value))]
    if name in PRODUCER:
        return [(name, value)]
    raise KafkaConfigError(key, "is unknown to the Java client and to librdkafka", _nearest(key))


def _plain(key: str, value: Any) -> Any:
    """Return the value in the form that librdkafka accepts. KafkaConfigError unless it is a string, a number, a boolean or a callback."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if is_source(RENAMED.get(key, key), value):
        return source_of(key, value)
    if isinstance(value, str | int | float) or (callable(value) and key.endswith("_cb")):
        return value
    raise KafkaConfigError(key, f"is of type {type(value).__name__}", "Give a string, a number or a boolean.")


def _nearest(key: str) -> str:
    """Return the hint for an unknown parameter: the known names most like it, if there are any."""
    names = COMMON | CONSUMER | RENAMED.keys() | DROPPED | OWN | {java_security.JAAS_KEY, "ssl.truststore.location"} | java_security.DROPPED
    return did_you_mean(nearest_names(key, names)) or "A property of a newer librdkafka passes as 'librdkafka.<name>'."


def _whole_number(key: str, value: Any) -> int:
    """Return the value as an int. KafkaConfigError if it is none."""
    try:
        return int(value)
    except (TypeError, ValueError) as e:
        raise KafkaConfigError(key, f"is {value!r}, not a whole number") from e


def _one_of(key: str, value: Any, allowed: tuple[str, ...]) -> str:
    """Return the value in lower case. KafkaConfigError if it is not an allowed one."""
    text = str(value).lower()
    if text not in allowed:
        raise KafkaConfigError(key, f"is {value!r}", f"One of: {', '.join(allowed)}.")
    return text


def _reset(value: Any) -> str:
    """Return the reset policy by librdkafka's name. KafkaConfigError for an unknown one."""
    return _RESET[_one_of("auto.offset.reset", value, tuple(_RESET))]
