"""Reading Kafka over every kind of secure listener: what works, and that each thing that is wrong is one clear error, soon."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, LocationStrategies, OffsetRange, value_only
from kstream_kafka.client.driver_client import KafkaDriverClient
from kstream_kafka.client.params import KafkaParams, small
from kstream_kafka.errors import AuthenticationFailedError, KafkaError, NotAuthorizedError, TlsFailedError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer
from kstream_kafka.reader.range_reader import read_range
from kstream_kafka.tools.examination import examine

from integration.certificates import Authority
from integration.secure_broker import REAUTHENTICATION_MS, SecureBroker, running_secure_broker
from kstream import StreamingContext

RECORDS = 40
SOON_S = 25
"""On a busy machine; alone it takes 1 to 4 s. It must stay below the 30 s and 120 s of a question and a read that nobody answers."""
WAIT_S = 120
COMMON = "org.apache.kafka.common.security"
Params = dict[str, Any]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """The node, with `orders` for everybody, `seen` to be described only, `hidden` for nobody; no ACL on the workers' groups."""
    with running_secure_broker(tmp_path_factory.mktemp("secure"), {"paula": "paula-secret"}) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            broker.add_scram_user("alice", "alice-secret", mechanism)
        broker.tokens.clients["service"] = "service-secret"
        for topic in ("orders", "seen", "hidden"):
            broker.create_topic(topic, 2)
            broker.produce(topic, [(str(i), f"value {i}", i % 2) for i in range(RECORDS)])
        for principal in ("alice", "paula", "service", "subject", "CN=alice", "CN=carla"):
            broker.allow(principal, "READ", topic="orders")
        broker.allow("alice", "DESCRIBE", topic="seen")
        broker.allow("alice", "READ", group="allowed")
        broker.authority.identity("alice")
        broker.authority.identity("carla", password="carla-secret")
        broker.authority.identity("late", expired=True)
        Authority(broker.directory / "stranger", "another CA").identity("alice")
        (broker.directory / "token").write_text(broker.tokens.token("service"))
        yield broker


def given(secure: SecureBroker, listener: str, protocol: str, **other: Any) -> Params:
    """Names with `_` for the dots."""
    params = {"bootstrap.servers": secure.at(listener), "security.protocol": protocol, "auto.offset.reset": "earliest"}
    if protocol.upper().endswith("SSL"):
        params["ssl.ca.location"] = str(secure.authority.ca)
    return {k: v for k, v in {**params, **{name.replace("_", "."): v for name, v in other.items()}}.items() if v is not None}


def scram(secure: SecureBroker, listener: str = "SASL", **other: Any) -> Params:
    credentials = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": "alice", "sasl_password": "alice-secret"}
    return given(secure, listener, **{"protocol": "SASL_SSL", **credentials, **other})


def tls(secure: SecureBroker, who: str = "alice", where: str = "ca", **other: Any) -> Params:
    files = {
        f"ssl_{kind}_location": str(secure.directory / where / f"{who}.{end}") for kind, end in (("certificate", "crt"), ("key", "key"))
    }
    return given(secure, "MTLS", "SSL", **files, **other)


def oauth(secure: SecureBroker, listener: str = "OIDC", **other: Any) -> Params:
    return given(secure, listener, "SASL_SSL", sasl_mechanism="OAUTHBEARER", **other)


def oidc(secure: SecureBroker, secret: str = "service-secret") -> Params:
    endpoint = {"sasl_oauthbearer_token_endpoint_url": secure.tokens.token_url, "sasl_oauthbearer_method": "oidc"}
    return oauth(secure, **endpoint, sasl_oauthbearer_client_id="service", sasl_oauthbearer_client_secret=secret)


def callback(secure: SecureBroker, seconds: int = 300) -> Params:
    token, expires = secure.tokens.token("service", seconds), time.time() + 300
    return oauth(secure, oauth_cb=None) | {"oauth_cb": lambda _config: (token, expires)}


def java(secure: SecureBroker, listener: str, protocol: str, mechanism: str, jaas: str, **other: str) -> Params:
    """As a Java client is given it: a trust store, a JAAS string."""
    trust = {"ssl_truststore_type": "PEM", "ssl_truststore_location": str(secure.authority.ca), "ssl_ca_location": None}
    return given(secure, listener, protocol, sasl_mechanism=mechanism, sasl_jaas_config=f"{COMMON}.{jaas}", **trust, **other)


def pem(secure: SecureBroker, name: str) -> str:
    return (secure.directory / "ca" / name).read_text()


WORKS: dict[str, Callable[[SecureBroker], Params]] = {
    "SCRAM-SHA-256": lambda s: scram(s, sasl_mechanism="SCRAM-SHA-256"),
    "SCRAM-SHA-512": scram,
    "PLAIN": lambda s: scram(s, sasl_mechanism="PLAIN", sasl_username="paula", sasl_password="paula-secret"),
    "PLAIN, no TLS": lambda s: scram(
        s, "BARE", protocol="SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username="paula", sasl_password="paula-secret"
    ),
    "another host's certificate, not checked": lambda s: scram(
        s, "ELSEWHERE", sasl_mechanism="PLAIN", sasl_username="paula", sasl_password="paula-secret",
        ssl_endpoint_identification_algorithm="",
    ),
    "Java's SCRAM": lambda s: java(
        s, "SASL", "sasl_ssl", "SCRAM-SHA-512", 'scram.ScramLoginModule required\n username="alice"\n password="alice-secret";'
    ),
    "client certificate": tls,
    "client certificate, its key encrypted": lambda s: tls(s, "carla", ssl_key_password="carla-secret"),
    "client certificate, in place": lambda s: given(
        s, "MTLS", "SSL", ssl_ca_location=None, ssl_ca_pem=pem(s, "ca.pem"), ssl_keystore_type="PEM",
        ssl_keystore_certificate_chain=pem(s, "alice.crt"), ssl_keystore_key=pem(s, "alice.key"),
    ),
    "Java's PEM key store": lambda s: given(
        s, "MTLS", "SSL", ssl_keystore_type="PEM", ssl_keystore_location=str(s.directory / "ca" / "alice.pem")
    ),
    "Java's PKCS12 key store": lambda s: given(
        s, "MTLS", "SSL", ssl_keystore_type="PKCS12", ssl_keystore_location=str(s.directory / "ca" / "carla.p12"),
        ssl_keystore_password="carla-secret",
    ),
    "unsecured token": lambda s: oauth(
        s, "SASL", enable_sasl_oauthbearer_unsecure_jwt=True, sasl_oauthbearer_config="principal=subject"
    ),
    "Java's unsecured token": lambda s: java(
        s, "SASL", "SASL_SSL", "OAUTHBEARER", 'oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="subject";'
    ),
    "OIDC": oidc,
    "Java's OIDC": lambda s: java(
        s, "OIDC", "SASL_SSL", "OAUTHBEARER",
        'oauthbearer.OAuthBearerLoginModule required clientId="service" clientSecret="service-secret";',
        sasl_oauthbearer_token_endpoint_url=s.tokens.token_url,
    ),
    "oauth_cb": callback,
    "oauth_cb by import path": lambda s: oauth(s, sasl_oauthbearer_config=str(s.directory / "token"))
    | {"oauth_cb": "integration.token_server:from_file"},
}  # fmt: skip


@pytest.mark.parametrize("method", WORKS)
def test_a_direct_stream_and_an_rdd_read_it_all_over(method: str, sc: Any, secure: SecureBroker):
    params = WORKS[method](secure)
    ranges = [OffsetRange("orders", p, 0, RECORDS // 2) for p in range(2)]
    rdd = KafkaUtils.createRDD(sc, params, ranges, messageHandler=value_only)
    assert sorted(rdd.collect()) == sorted(f"value {i}" for i in range(RECORDS))
    ssc, counts = StreamingContext(sc, 0.5), []
    stream = KafkaUtils.createDirectStream(ssc, ["orders"], params, untilOffsets="latest")
    stream.map(lambda kv: kv[1]).foreachRDD(lambda rdd: counts.append(len(rdd.collect())))
    ssc.start()
    assert ssc.awaitTerminationOrTimeout(WAIT_S), "the bounded run did not end"
    assert sum(counts) == RECORDS


# -- what changes


def test_a_password_that_changes_twice_while_a_stream_runs_reaches_driver_and_workers(
    sc: Any, secure: SecureBroker, tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """The broker closes connections whose password has changed: with this mechanism after REAUTHENTICATION_MS."""
    password = tmp_path / "password"
    password.write_text("first-secret\n")
    secure.add_scram_user("rosa", "first-secret", "SCRAM-SHA-256")
    secure.create_topic("rotated", 1)
    secure.allow("rosa", "READ", topic="rotated")
    params = scram(secure, sasl_mechanism="SCRAM-SHA-256", sasl_username="rosa", sasl_password=password)
    ssc, counts = StreamingContext(sc, 0.5), list[int]()
    KafkaUtils.createDirectStream(ssc, ["rotated"], params).foreachRDD(lambda rdd: counts.append(len(rdd.collect())))
    ssc.start()
    produced = 0

    def produce_until(reached: Callable[[], bool], more: int = 1) -> None:
        nonlocal produced
        deadline = time.monotonic() + WAIT_S
        while not reached():
            assert time.monotonic() < deadline, f"{produced} records, batches of {counts}"
            secure.produce("rotated", [("k", str(produced), 0)] * more)
            produced += more
            assert not ssc.awaitTerminationOrTimeout(0.2)

    try:
        produce_until(lambda: sum(counts) >= 3)
        for changes, secret in enumerate(("second-secret", "third-secret"), 1):
            password.write_text(f"{secret}\n")
            secure.add_scram_user("rosa", secret, "SCRAM-SHA-256")
            changed = time.monotonic()
            produce_until(lambda changes=changes: caplog.text.count("replaced by one with newer secrets") >= changes)
            produce_until(lambda changed=changed: time.monotonic() - changed > 2 * REAUTHENTICATION_MS / 1000)
        wanted = produced
        produce_until(lambda: sum(counts) >= wanted + 3)
        produce_until(lambda: sum(counts) >= produced, more=0)
    finally:
        ssc.stop(stopSparkContext=False)
    assert sum(counts) == produced


# -- what kstream doctor says


def test_doctor_names_the_permission_that_is_missing(secure: SecureBroker):
    def seen(topic: str, **other: Any) -> dict[str, tuple[str, str]]:
        plan = KafkaPlan([OffsetRange(topic, p, 0, RECORDS // 2) for p in range(2)], [None] * 2, [None] * 2, {}, frozenset())
        return {found.name: (found.verdict, found.seen) for found in examine(scram(secure, **other), plan.encode())}

    well = seen("orders", group_id="allowed")
    assert {name: verdict for name, (verdict, _) in well.items()} == dict.fromkeys(["brokers", "topics", "offsets", "read", "group"], "ok")
    refused = seen("orders", group_id="forbidden")["group"]
    assert refused[0] == "warning" and "--operation READ --group 'forbidden'" in refused[1]
    described = seen("seen")
    assert described["brokers"][0] == "ok" and described["read"][0] == "failed"
    assert "--operation READ --topic 'seen'" in described["read"][1]
    assert seen("hidden")["brokers"][0] == "failed"
    assert "Check sasl.username and sasl.password" in seen("orders", sasl_password="no")["brokers"][1]


# -- what is wrong


FAILS: dict[str, tuple[Callable[[SecureBroker], Params], type[KafkaError], str]] = {
    "wrong password": (lambda s: scram(s, sasl_password="no"), AuthenticationFailedError, "Check sasl.username and sasl.password"),
    "unknown user": (lambda s: scram(s, sasl_username="nobody"), AuthenticationFailedError, "invalid credentials"),
    "wrong password, PLAIN": (lambda s: scram(s, sasl_mechanism="PLAIN"), AuthenticationFailedError, "Invalid username or password"),
    "mechanism not enabled": (
        lambda s: scram(s, "ELSEWHERE", ssl_endpoint_identification_algorithm=""), AuthenticationFailedError,
        "Set sasl.mechanism to one that the listener has: PLAIN",
    ),
    "wrong CA": (
        lambda s: scram(s, ssl_ca_location=str(s.directory / "stranger" / "ca.pem")), TlsFailedError,
        "certificate was refused: .*Set ssl.ca.location",
    ),
    "no CA": (lambda s: scram(s, ssl_ca_location=None), TlsFailedError, "certificate was refused: .*Set ssl.ca.location"),
    "another host": (lambda s: scram(s, "ELSEWHERE", sasl_mechanism="PLAIN"), TlsFailedError, "not valid for '127.0.0.1'"),
    "no client certificate": (lambda s: given(s, "MTLS", "SSL"), TlsFailedError, "asks for a client certificate"),
    "expired client certificate": (lambda s: tls(s, "late"), TlsFailedError, "is it still valid"),
    "client certificate of another CA": (lambda s: tls(s, where="stranger"), TlsFailedError, "authority in the broker's trust store"),
    "plain text to TLS": (lambda s: given(s, "MTLS", "PLAINTEXT"), TlsFailedError, "speaks TLS .*security.protocol=SSL"),
    "SASL without TLS to TLS": (lambda s: scram(s, protocol="SASL_PLAINTEXT"), TlsFailedError, "security.protocol=SASL_SSL"),
    "TLS to plain text": (
        lambda s: given(s, "MTLS", "SSL", bootstrap_servers=s.bootstrap), TlsFailedError, "plain text .*set security.protocol=PLAINTEXT"
    ),
    "SASL to a listener without": (
        lambda s: scram(s, protocol="SASL_PLAINTEXT", bootstrap_servers=s.bootstrap), AuthenticationFailedError, "takes no SASL"
    ),
    "no SASL to a listener with": (lambda s: given(s, "BARE", "PLAINTEXT"), AuthenticationFailedError, r"asks for SASL \(PLAIN\)"),
    "expired token": (lambda s: callback(s, -100), AuthenticationFailedError, "broker refuses the token: has it expired"),
    "token refused by its server": (lambda s: oidc(s, "no"), AuthenticationFailedError, "invalid_client"),
}  # fmt: skip


@pytest.mark.parametrize("case", FAILS)
def test_it_is_one_clear_error_soon_on_the_driver_and_in_a_worker(case: str, secure: SecureBroker):
    make, kind, words = FAILS[case]
    params = KafkaParams.parse(make(secure))

    def outcome(side: Callable[[KafkaParams], object]) -> tuple[BaseException | None, float]:
        began = time.monotonic()
        try:
            side(params)
        except Exception as e:
            return e, time.monotonic() - began
        return None, 0.0

    with ThreadPoolExecutor() as pool:
        for error, seconds in pool.map(outcome, (plan, read)):
            with pytest.raises(kind, match=words):
                raise error or AssertionError("it worked")
            assert seconds < SOON_S


def plan(params: KafkaParams, topic: str = "orders") -> object:
    client = KafkaDriverClient(params)
    return client.latest(client.partitions(subscription([topic])))


def read(params: KafkaParams, topic: str = "orders") -> int:
    consumer = KafkaRangeConsumer(small(params.executor()))
    try:
        return sum(map(len, read_range(consumer, OffsetRange(topic, 0, 0, RECORDS // 2), 120_000)))
    finally:
        consumer.close()


def test_a_stream_that_may_not_connect_fails_at_its_start(sc: Any, secure: SecureBroker):
    ssc = StreamingContext(sc, 1)
    KafkaUtils.createDirectStream(ssc, ["orders"], scram(secure, sasl_password="no")).pprint()
    try:
        with pytest.raises(AuthenticationFailedError, match="SCRAM-SHA-512"):
            ssc.start()
    finally:
        ssc.stop(stopSparkContext=False)


def test_a_task_that_may_not_connect_says_so_and_not_that_nothing_came(sc: Any, secure: SecureBroker):
    params, began = scram(secure, sasl_password="no-secret-of-hers"), time.monotonic()
    rdd = KafkaUtils.createRDD(sc, params, [OffsetRange("orders", 0, 0, 3)], LocationStrategies.PreferConsistent)
    with pytest.raises(Exception, match=r"AuthenticationFailedError: Kafka at .*Check sasl.username and sasl.password") as caught:
        rdd.collect()
    assert time.monotonic() - began < SOON_S
    assert "no-secret-of-hers" not in f"{caught.value} {caught.value!r}"


# -- ACLs


def test_a_topic_that_may_not_be_described_is_not_taken_for_one_that_is_not_there(secure: SecureBroker):
    params = KafkaParams.parse(scram(secure))
    for ask in (plan, read, lambda p, topic: KafkaDriverClient(p).latest([(topic, 0)])):
        with pytest.raises(NotAuthorizedError, match=r"DESCRIBE the topic 'hidden'.*kafka-acls.sh") as caught:
            ask(params, "hidden")
        assert (caught.value.facts["resource"], caught.value.facts["name"]) == ("topic", "hidden")


def test_a_topic_that_may_be_described_and_not_read_is_refused_by_the_first_read(secure: SecureBroker):
    params, began = KafkaParams.parse(scram(secure)), time.monotonic()
    assert plan(params, "seen")
    with pytest.raises(NotAuthorizedError, match=r"READ the topic 'seen'.*--operation READ --topic 'seen'"):
        read(params, "seen")
    assert time.monotonic() - began < SOON_S


def test_a_group_that_may_not_be_read_is_named_and_matters_only_to_who_names_it(secure: SecureBroker):
    params = KafkaParams.parse(scram(secure, group_id="forbidden"))
    client, told = KafkaDriverClient(params), []
    with pytest.raises(NotAuthorizedError, match=r"READ the group 'forbidden'.*--operation READ --group 'forbidden'"):
        client.committed("forbidden", [("orders", 0)])
    end = time.monotonic() + WAIT_S
    for group, wanted in (("forbidden", NotAuthorizedError), ("allowed", type(None))):
        while not (told and isinstance(told[-1], wanted)):  # a coordinator that is only just loading says no, too
            assert time.monotonic() < end, told
            client.commit(group, {("orders", 0): 1}, told.append)
            time.sleep(0.2)
    assert read(params) == RECORDS // 2


def test_a_password_that_is_changed_back_is_taken_up_by_the_same_client(secure: SecureBroker):
    """What was refused once is not refused for good: the client goes on trying behind the error."""
    secure.add_scram_user("ferdinand", "first-secret")
    secure.allow("ferdinand", "READ", topic="orders")
    client = KafkaDriverClient(KafkaParams.parse(scram(secure, sasl_username="ferdinand", sasl_password="second-secret")))
    with pytest.raises(AuthenticationFailedError):
        client.latest([("orders", 0)])
    secure.add_scram_user("ferdinand", "second-secret")
    end = time.monotonic() + WAIT_S
    while time.monotonic() < end:
        try:
            assert client.latest([("orders", 0)])[("orders", 0)].offset == RECORDS // 2
            return
        except AuthenticationFailedError:
            time.sleep(0.5)
    pytest.fail("the new password was never taken")
