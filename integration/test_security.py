"""Reading Kafka over every kind of secure listener: what works, and that each thing that is wrong is one clear error, soon."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from kstream_kafka import KafkaUtils, OffsetRange, value_only
from kstream_kafka.errors import AuthenticationFailedError

from integration.secure_broker import SecureBroker, running_secure_broker

RECORDS = 40
SOON_S = 20
"""On a busy machine; alone it takes 1 to 4 s. What it must stay below are 30 s on the driver and 120 s in a worker."""
WHOLE = [OffsetRange("orders", p, 0, RECORDS // 2) for p in range(2)]
Params = dict[str, Any]


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """The node, with `orders` for everybody, `seen` to be described only, `hidden` for nobody."""
    with running_secure_broker(tmp_path_factory.mktemp("secure"), {"paula": "paula-secret"}) as broker:
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
            broker.add_scram_user("alice", "alice-secret", mechanism)
        broker.tokens.clients["service"] = "service-secret"
        for topic in ("orders", "seen", "hidden"):
            broker.create_topic(topic, 2)
            broker.produce(topic, [(str(i), f"value {i}", i % 2) for i in range(RECORDS)])
        for principal in ("alice", "paula", "service", "subject", "CN=alice"):
            broker.allow(principal, "READ", topic="orders")
        broker.allow("alice", "DESCRIBE", topic="seen")
        broker.allow("alice", "READ", group="allowed")
        yield broker


def scram(secure: SecureBroker, **other: str) -> Params:
    given = {"bootstrap.servers": secure.at("SASL"), "security.protocol": "SASL_SSL", "ssl.ca.location": str(secure.authority.ca)}
    given |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "alice-secret"}
    return given | {name.replace("_", "."): value for name, value in other.items()}


def values(sc: Any, params: Params) -> list[str]:
    return sorted(KafkaUtils.createRDD(sc, params, WHOLE, messageHandler=value_only).collect())


def test_an_rdd_of_records_over_sasl_and_tls(sc: Any, secure: SecureBroker):
    assert values(sc, scram(secure)) == sorted(f"value {i}" for i in range(RECORDS))


def said(error: BaseException | None) -> str:
    """All that the error and its causes say, by any means."""
    return "" if error is None else f"{error} {error!r} {vars(error)} {said(error.__cause__)} {said(error.__context__)}"


def test_a_wrong_password_is_one_clear_error_soon(sc: Any, secure: SecureBroker):
    began = time.monotonic()
    with pytest.raises(AuthenticationFailedError, match=r"invalid credentials.*Check sasl.username and sasl.password") as caught:
        values(sc, scram(secure, sasl_password="not-the-secret"))
    assert time.monotonic() - began < SOON_S
    assert "not-the-secret" not in said(caught.value)
