"""When a wait for the brokers is ended early, by what librdkafka said, and when it must not be."""

from __future__ import annotations

from typing import Any

import pytest
from kstream_kafka.client.connection_watch import GRACE_S, LOOK_AGAIN_S, ConnectionDiagnosis, ConnectionWatch
from kstream_kafka.errors import AuthenticationFailedError, BrokerUnreachableError, TlsFailedError

SETTINGS = {"bootstrap.servers": "a:1,b:2", "security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}
PASSWORD = "sasl_ssl://a:1/bootstrap: SASL authentication error: Authentication failed (after 305ms in state AUTH_REQ)"
HUNG_UP = "sasl_ssl://a:1/bootstrap: SSL handshake failed: Disconnected: connecting to a PLAINTEXT broker listener? (after 0ms in state X)"
REFUSED = "sasl_ssl://a:1/bootstrap: Connect to ipv4#127.0.0.1:1 failed: Connection refused (after 0ms in state CONNECT)"
TOKEN = "Failed to acquire SASL OAUTHBEARER token: "
DOWN = ("_ALL_BROKERS_DOWN", "2/2 brokers are down")


class Scene:
    """A watch, the time, and what a look at a listener finds."""

    def __init__(self, diagnosis: ConnectionDiagnosis | None = None, **settings: str) -> None:
        self.now = 100.0
        self.looks: list[str] = []
        self._diagnosis = diagnosis
        self.watch = ConnectionWatch(
            {**SETTINGS, **{k.replace("_", "."): v for k, v in settings.items()}}, self._diagnose, lambda: self.now
        )
        self.watch.on_request()

    def _diagnose(self, address: str, _settings: Any) -> ConnectionDiagnosis | None:
        self.looks.append(address)
        return self._diagnosis

    def after(self, seconds: float) -> Any:
        self.now += seconds
        return self.watch.fatal_error()


def test_a_refusal_by_the_last_broker_ends_the_wait_after_a_moment_of_grace():
    scene = Scene()
    scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    scene.watch.on_error(*DOWN)
    assert scene.after(GRACE_S / 2) is None
    error = scene.after(GRACE_S)
    assert isinstance(error, AuthenticationFailedError)
    assert error.facts["broker"] == "a:1" and error.facts["reason"] == "SASL authentication error: Authentication failed"
    assert error.facts["mechanism"] == "SCRAM-SHA-512" and "sasl.password" in error.facts["hint"]


def test_while_other_brokers_may_answer_one_refusal_ends_no_wait():
    scene = Scene()
    scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    assert scene.after(10) is None


def test_a_broker_that_refuses_again_and_again_ends_it_though_others_are_up():
    scene = Scene()
    for _ in range(3):
        scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    assert isinstance(scene.after(GRACE_S), AuthenticationFailedError)


def test_an_answer_makes_what_was_heard_before_it_nothing():
    scene = Scene()
    scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    scene.watch.on_error(*DOWN)
    scene.watch.on_response()
    assert not scene.watch.has_errors and scene.after(10) is None


def test_a_broker_that_went_down_after_it_refused_is_waited_for():
    scene = Scene()
    scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    scene.watch.on_error(*DOWN)
    scene.watch.on_error("_TRANSPORT", REFUSED)
    assert scene.after(10) is None and not scene.looks
    assert isinstance(scene.watch.timeout_error(15_000), BrokerUnreachableError)


def test_every_question_has_its_own_grace():
    scene = Scene()
    scene.watch.on_error("_AUTHENTICATION", PASSWORD)
    scene.watch.on_error(*DOWN)
    scene.now += 60
    scene.watch.on_request()
    assert scene.watch.fatal_error() is None
    assert scene.after(GRACE_S) is not None


def test_a_handshake_that_broke_off_ends_the_wait_only_if_the_listener_is_of_another_kind():
    restarting = Scene(diagnosis=None)
    restarting.watch.on_error("_SSL", HUNG_UP)
    restarting.watch.on_error(*DOWN)
    assert restarting.after(GRACE_S) is None and restarting.looks
    plain = Scene(ConnectionDiagnosis("tls", "the listener speaks plain text", "Use another port."))
    plain.watch.on_error("_TRANSPORT", HUNG_UP)
    plain.watch.on_error(*DOWN)
    error = plain.after(GRACE_S)
    assert isinstance(error, TlsFailedError) and "speaks plain text" in str(error) and plain.looks == ["a:1"]


def test_brokers_that_hang_up_without_a_word_are_looked_at_now_and_then():
    scene = Scene()
    scene.watch.on_error(*DOWN)
    for _ in range(4):
        assert scene.after(GRACE_S) is None
    assert scene.looks == ["a:1", "b:2"]
    scene.after(LOOK_AGAIN_S)
    assert scene.looks == ["a:1", "b:2"] * 2


@pytest.mark.parametrize(
    ("alert", "settings", "hint"),
    [(42, {}, "asks for a client certificate"), (46, {"ssl_certificate_location": "/c"}, "is it still valid"), (40, {}, "no cipher")],
)
def test_a_certificate_that_the_broker_refuses_is_told_from_one_that_was_not_given(alert: int, settings: dict[str, str], hint: str):
    scene = Scene(**settings)
    scene.watch.on_error(
        "_TRANSPORT", f"ssl://a:1/bootstrap: Receive failed: SSL routines::ssl/tls alert: SSL alert number {alert} (after 1ms in state U)"
    )
    scene.watch.on_error(*DOWN)
    assert hint in str(scene.after(GRACE_S))


def test_a_token_server_that_says_no_ends_the_wait_and_one_that_is_away_does_not():
    no, away = Scene(sasl_mechanism="OAUTHBEARER"), Scene(sasl_mechanism="OAUTHBEARER")
    no.watch.on_error("_AUTHENTICATION", TOKEN + '{"error": "invalid_client"}')
    away.watch.on_error("_AUTHENTICATION", TOKEN + "Failed to connect to 127.0.0.1:1 after 0 ms")
    assert isinstance(no.after(GRACE_S), AuthenticationFailedError)
    assert away.after(10) is None
    assert isinstance(away.watch.timeout_error(15_000), AuthenticationFailedError)


def test_a_mechanism_that_the_listener_lacks_comes_with_those_it_has():
    scene = Scene()
    words = "SASL mechanism handshake failed: Broker: Unsupported SASL mechanism: broker's supported mechanisms: PLAIN,OAUTHBEARER"
    scene.watch.on_error("_AUTHENTICATION", f"sasl_ssl://a:1/1: {words} (after 3ms in state AUTH_HANDSHAKE)")
    scene.watch.on_error(*DOWN)
    assert "Set sasl.mechanism to one that the listener has: PLAIN,OAUTHBEARER." in str(scene.after(GRACE_S))
