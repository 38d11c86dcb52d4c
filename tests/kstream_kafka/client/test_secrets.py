"""No secret of the Kafka parameters shows anywhere: each shape of credential that librdkafka or the Java client knows, in each place."""

from __future__ import annotations

import copy
import json
import logging
import pickle
import re
from collections.abc import Iterator
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, OffsetRange
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.librdkafka import client_log
from kstream_kafka.client.params import COMMON, CONSUMER, PRODUCER, KafkaParams, bulk, small
from kstream_kafka.client.redaction import NOT_SECRET, is_public
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.packing import RangeSplit
from kstream_kafka.planning.subscription import ConsumerStrategies, subscription
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.reader.range_reads import RangeReads
from kstream_kafka.source.stream_spec import StreamSpec

from kstream.secret import add_secrets, redact
from tests.kstream_kafka.stream import FakeHost

PLANTED = "pl4nt3d-s3cr3t"
BROKERS = {"bootstrap.servers": "127.0.0.1:1"}
LOOKS_SECRET = re.compile(
    r"password|secret|\.key(\.|$)|pem|assertion|token|passphrase|extensions|oauthbearer\.config|username|client\.id|_cb|kinit"
)
HARMLESS = {"client.id", "enable.sasl.oauthbearer.unsecure.jwt"}
"""Names of that look that hold no credential: what a client calls itself in the broker's log, and a yes or no."""
NAMES = COMMON | CONSUMER | PRODUCER
SECRET_NAMES = sorted(n for n in NAMES - HARMLESS if LOOKS_SECRET.search(n) and not n.endswith(".location"))
CALLBACKS = {name for name in SECRET_NAMES if name.endswith("_cb")}
MODULES = "org.apache.kafka.common.security"
WHOLE: dict[str, dict[str, Any]] = {
    "jaas plain": {"sasl.jaas.config": f'{MODULES}.plain.PlainLoginModule required username="u" password="{PLANTED}";'},
    "jaas scram": {"sasl.jaas.config": f'{MODULES}.scram.ScramLoginModule required\n username="{PLANTED}"\n password="p";'},
    "jaas oauth": {
        "sasl.jaas.config": f'{MODULES}.oauthbearer.OAuthBearerLoginModule required clientId="c" clientSecret="{PLANTED}";',
        "sasl.oauthbearer.token.endpoint.url": "https://idp/token",
    },
    "url": {"sasl.oauthbearer.token.endpoint.url": f"https://user:{PLANTED}@idp/token"},
    "pem": {"ssl.keystore.key": f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n-----END PRIVATE KEY-----"},
    "pem where a path belongs": {"ssl.key.location": f"-----BEGIN PRIVATE KEY-----\n{PLANTED}\n"},
    "raw": {"librdkafka.sasl.password": PLANTED},
    "unknown to the tables": {"librdkafka.brand.new": PLANTED},
    "java key store": {"ssl.keystore.location": "/k.p12", "ssl.keystore.password": PLANTED},
    "config": {"sasl.oauthbearer.config": f'principal=me scope="{PLANTED}"'},
}
SHAPES = {**{name: {name: PLANTED} for name in SECRET_NAMES if name not in CALLBACKS}, **WHOLE}


def shapes() -> Any:
    return pytest.mark.parametrize("given", SHAPES.values(), ids=SHAPES.keys())


def test_every_name_of_librdkafka_that_looks_like_a_credential_is_off_the_list_of_what_may_be_shown():
    assert len(SECRET_NAMES) > 30
    assert not {name for name in SECRET_NAMES if is_public(name, "x")}
    assert not CALLBACKS & NOT_SECRET


@shapes()
def test_parameters_show_and_store_no_secret_wherever_they_travel(given: dict[str, Any]):
    params = KafkaParams.parse({**BROKERS, **given})
    reads = RangeReads.of([RangeSplit(OffsetRange("t", 0, 0, 1))], params.executor(), 1000)
    strategy = ConsumerStrategies.Subscribe(["t"], {**BROKERS, **given})
    spec = StreamSpec(subscription(["t"]), params)
    things = [params, params.driver(), params.executor(), small(params.executor()), bulk(params.executor()), reads, strategy, spec]
    things += [pickle.loads(pickle.dumps(reads)), copy.deepcopy(params.executor())]
    things += [KafkaUtils.createDirectStream(FakeHost(), ["t"], {**BROKERS, **given})]
    for thing in things:
        assert PLANTED not in f"{thing} {thing!r} {thing:}", type(thing)
    assert (PLANTED not in json.dumps(params.storable()) and spec.recipe() is None) or given.keys() <= PRODUCER


@shapes()
def test_what_is_refused_beside_a_secret_does_not_show_it(given: dict[str, Any]):
    for wrong in ({"no.such.name": 1}, {"client.id": object()}, {"bootstrap.servers": ""}, {"security.protocol": "?"}):
        with pytest.raises(KafkaConfigError) as caught:
            KafkaParams.parse({**BROKERS, **given, **wrong})
        assert PLANTED not in said(caught.value)


@pytest.mark.parametrize("wrong", [[PLANTED], {"a": PLANTED}, b"pl4nt3d-s3cr3t", None])
@pytest.mark.parametrize("name", ["sasl.password", "ssl.key.pem", "librdkafka.sasl.password", "oauth_cb", "sasl.jaas.config"])
def test_a_secret_of_a_wrong_type_is_refused_without_its_value(name: str, wrong: Any):
    with pytest.raises(KafkaConfigError) as caught:
        KafkaParams.parse({**BROKERS, name: wrong})
    assert PLANTED not in said(caught.value)


def said(error: BaseException | None) -> str:
    return "" if error is None else f"{error} {error!r} {vars(error)} {said(error.__cause__)} {said(error.__context__)}"


def test_a_callback_is_no_plain_value_and_shows_nothing_of_what_it_closes_over():
    secret = PLANTED
    params = KafkaParams.parse({**BROKERS, "oauth_cb": lambda config, token=secret: (token, 0)})
    assert PLANTED not in f"{params} {params.executor()}" and params.storable() is None


# -- librdkafka itself


class Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def log() -> Iterator[Kept]:
    """Everything librdkafka and we log, at DEBUG."""
    handler, ours = Kept(), logging.getLogger("kstream")
    before = client_log.level, ours.level
    for one in (client_log, ours):
        one.addHandler(handler)
        one.setLevel(logging.DEBUG)
    yield handler
    for one, level in zip((client_log, ours), before, strict=True):
        one.removeHandler(handler)
        one.setLevel(level)


MADE: list[dict[str, Any]] = [
    {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "user", "sasl.password": PLANTED},
    {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-256", "sasl.username": PLANTED, "sasl.password": "word"},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc",
     "sasl.oauthbearer.client.id": "c", "sasl.oauthbearer.client.secret": PLANTED,
     "sasl.oauthbearer.token.endpoint.url": f"http://user:{PLANTED}@127.0.0.1:1/"},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "enable.sasl.oauthbearer.unsecure.jwt": True,
     "sasl.oauthbearer.config": f"principal={PLANTED}", "sasl.oauthbearer.extensions": f"key={PLANTED}"},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.config": PLANTED + "=no config",
     "enable.sasl.oauthbearer.unsecure.jwt": True},
    {"security.protocol": "SSL", "ssl.key.pem": PLANTED, "ssl.key.password": PLANTED},
    {"security.protocol": "SSL", "ssl.certificate.pem": PLANTED},
    {"security.protocol": "SSL", "ssl.ca.pem": PLANTED},
    {"security.protocol": "SSL", "ssl.keystore.location": "/no/such/file", "ssl.keystore.password": PLANTED},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "GSSAPI", "sasl.kerberos.kinit.cmd": f"kinit {PLANTED}"},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config: (PLANTED, 9e9)},
    {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER", "oauth_cb": lambda config: 1 / len([])},
    {"socket.timeout.ms": "not a number", "sasl.password": PLANTED},
]  # fmt: skip


@pytest.mark.parametrize("given", MADE, ids=range(len(MADE)))
@pytest.mark.parametrize("side", ["driver", "executor"])
def test_librdkafka_at_its_most_talkative_shows_no_secret_in_logs_and_errors(given: dict[str, Any], side: str, log: Kept):
    params = KafkaParams.parse({**BROKERS, **given, "debug": "all", "default.api.timeout.ms": 300})
    words: list[str] = []
    try:
        if side == "driver":
            KafkaDriverClient(params, max_retries=0).latest([("t", 0)])
        else:
            consumer = KafkaRangeConsumer(params.executor())
            consumer.consume(1, 0.2)
            words.append(consumer.last_error())
            consumer.close()
    except Exception as e:
        words.append(said(e))
    assert words or side == "executor"
    assert PLANTED not in "\n".join([*words, *log.lines])


def test_a_secret_is_hidden_whole_by_line_and_as_part():
    add_secrets(
        {"ssl.key.pem": "-----BEGIN X-----\nbase64line1\nbase64line2\n", "sasl.oauthbearer.config": "principal=him lifeSeconds=3600"},
        NOT_SECRET,
    )
    assert redact("got base64line2 and 3600 and -----BEGIN X-----") == "got [hidden] and [hidden] and -----BEGIN X-----"
    assert redact("http://me:word@host/x?y") == "http://[hidden]@host/x?y"


def test_a_secret_that_begins_with_another_one_is_hidden_to_its_end():
    """A password made of the user's name: were the shorter one redacted first, the rest of the password would stay."""
    add_secrets({"sasl.username": "kafkauser", "sasl.password": "kafkauser-9f3a1c77"}, NOT_SECRET)
    assert redact("<kafkauser> <kafkauser-9f3a1c77>") == "<[hidden]> <[hidden]>"


def test_the_password_of_a_url_is_hidden_as_it_is_written_there_and_as_it_is_read():
    add_secrets({"sasl.oauthbearer.token.endpoint.url": "https://me:p%40ss%2Fw0rd9@idp/token"}, NOT_SECRET)
    assert redact("p%40ss%2Fw0rd9 is sent as p@ss/w0rd9") == "[hidden] is sent as [hidden]"


def test_words_that_say_nothing_of_a_person_stay_readable():
    params = {"security.protocol": "SASL_SSL", "ssl.ca.location": "/etc/ca.pem", "enable.partition.eof": "true", "sasl.password": "abc"}
    add_secrets(params, NOT_SECRET)
    add_secrets({"sasl.username": "kafka"}, NOT_SECRET)
    assert redact("SASL_SSL /etc/ca.pem true abc kafka-1.example.org") == "SASL_SSL /etc/ca.pem true abc kafka-1.example.org"
    add_secrets({"sasl.password": "hidden"}, NOT_SECRET)
    assert redact(redact("http://me:word@host")) == "http://[hidden]@host"
    assert redact('got "kafka", kafka.') == 'got "[hidden]", [hidden].'
