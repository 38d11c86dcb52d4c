"""Secrets from files and functions: read by each client, read again after a refusal, and a refused client is replaced once."""

from __future__ import annotations

import logging
import os
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError
from kstream_kafka import KafkaUtils
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import FetchErrorKind, LogEnd
from kstream_kafka.client.renewing_client import RenewingDriverClient
from kstream_kafka.client.secrets import ClientSecrets, SecretSource, read_secrets
from kstream_kafka.errors import AuthenticationFailedError, KafkaConfigError
from kstream_kafka.reader import range_consumer
from kstream_kafka.reader.consumer_cache import settings_key
from kstream_kafka.reader.range_consumer import KafkaRangeConsumer

from kstream.context.recovery import check_functions
from kstream.errors import NotSerializableError
from kstream.secret import redact
from kstream.spark.spark_context import dump_functions, load_functions
from tests.kstream_kafka.fakes import FakeClient, Message
from tests.kstream_kafka.stream import FakeHost

SCRAM = {"bootstrap.servers": "127.0.0.1:1", "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}


def params(password: Any, **other: Any) -> KafkaParams:
    return KafkaParams.parse({**SCRAM, "sasl.username": "orders", "sasl.password": password, **other})


def refused() -> AuthenticationFailedError:
    return AuthenticationFailedError("h:1", "SASL_PLAINTEXT", "SCRAM-SHA-512", "invalid credentials", "Check them.")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "password"
    path.write_text("first-secret\n")
    return path


def test_a_password_comes_from_a_file_or_a_function_and_is_hidden(file: Path) -> None:
    for password in (file, lambda: "first-secret"):
        given = params(password)
        assert read_secrets(given.executor())["sasl.password"] == "first-secret"
        assert redact("first-secret") == "[hidden]"
        assert "first-secret" not in f"{given} {given.executor()}" and given.storable() is None
        assert given.not_storable() == ["sasl.password", "sasl.username"]
        (again,) = load_functions(dump_functions([given.executor()]))
        assert read_secrets(again)["sasl.password"] == "first-secret" and settings_key(again) == settings_key(given.executor())
    assert b"first-secret" not in pickle.dumps(params(file).executor())


def test_a_file_counts_only_where_a_secret_belongs(file: Path) -> None:
    with pytest.raises(KafkaConfigError, match=r"'group\.id' is of type PosixPath"):
        params("x", **{"group.id": file})


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_file_without_a_password_is_a_parameter_error_that_names_it(content: str | None, file: Path) -> None:
    file.unlink() if content is None else file.write_text(content)
    with pytest.raises(KafkaConfigError, match=f"'sasl.password' names the file {file}"):
        ClientSecrets(params(file).settings)


def test_a_function_without_a_password_is_a_parameter_error() -> None:
    def fails() -> str:
        raise OSError("the vault is sealed")

    for function, words in ((fails, "raised OSError: the vault is sealed"), (lambda: None, "returned NoneType")):
        with pytest.raises(KafkaConfigError, match=words):
            SecretSource("sasl.password", function).read()


def test_after_a_refusal_a_changed_secret_is_worth_one_new_client_until_a_broker_answers(file: Path) -> None:
    secrets = ClientSecrets(params(file).settings)
    assert not secrets.renew(), "nothing has changed"
    file.write_text("second-secret")
    assert secrets.renew() and secrets.values["sasl.password"] == "second-secret"
    secrets.on_replaced()
    file.write_text("third-secret")
    assert not secrets.renew(), "no broker has answered since"
    secrets.on_response()
    assert secrets.renew() and secrets.values["sasl.password"] == "third-secret"


def test_a_certificate_that_was_replaced_and_a_function_for_tokens_are_worth_a_new_client(tmp_path: Path) -> None:
    certificate = tmp_path / "orders.crt"
    certificate.write_text("one")
    settings = {"ssl.certificate.location": str(certificate)}
    secrets = ClientSecrets(settings)
    assert not secrets.renew()
    certificate.write_text("another")
    assert secrets.renew()
    assert ClientSecrets({"oauth_cb": object()}).renew()


def test_a_certificate_of_the_same_size_and_date_in_the_place_of_the_old_one_is_worth_a_new_client(tmp_path: Path) -> None:
    """Kubernetes and `cp -p` put another file there. Its date may be that of the old one."""
    certificate, newer = tmp_path / "orders.crt", tmp_path / "newer.crt"
    for path, text in ((certificate, "one"), (newer, "two")):
        path.write_text(text)
        os.utime(path, ns=(1_000_000_000, 1_000_000_000))
    secrets = ClientSecrets({"ssl.certificate.location": str(certificate)})
    newer.replace(certificate)
    assert secrets.renew() and not secrets.renew()


def test_a_source_that_fails_after_a_refusal_leaves_the_refusal_to_be_raised(file: Path) -> None:
    secrets = ClientSecrets(params(file).settings)
    file.unlink()
    assert not secrets.renew() and secrets.values["sasl.password"] == "first-secret"


def test_a_function_that_gives_a_password_is_checked_at_the_start_as_every_function_of_the_workers() -> None:
    lock, host = threading.Lock(), FakeHost()

    def password() -> str:
        with lock:
            return "first-secret"

    given: Any = host
    KafkaUtils.createDirectStream(given, ["t"], {**SCRAM, "sasl.username": "orders", "sasl.password": password}).pprint()
    with pytest.raises(NotSerializableError, match=r"runs on the workers and cannot be pickled: .*lock") as caught:
        check_functions(host.graph.recorder)
    (site,) = caught.value.sites
    assert site.startswith(f"createDirectStream at {__file__}:")


# -- the driver


class Guarded(FakeClient):
    """A client that the broker answers if its password is that of the broker."""

    broker = "first-secret"

    def __init__(self, given: KafkaParams) -> None:
        super().__init__({("t", 0): (0, 7)})
        self.password = given.settings["sasl.password"]

    def latest(self, partitions: Any) -> dict[Any, LogEnd]:
        if self.password != Guarded.broker:
            raise refused()
        return super().latest(partitions)


class Maker:
    refuses = False
    """Whether librdkafka refuses the parameters, as with a new certificate beside its old key."""

    def __init__(self) -> None:
        self.made: list[Guarded] = []

    def __call__(self, given: KafkaParams) -> Guarded:
        if self.refuses:
            raise KafkaConfigError("ssl.key.location", "was refused by librdkafka", "key values mismatch")
        self.made.append(Guarded(given))
        return self.made[-1]


def test_the_driver_asks_again_with_the_newer_password_and_warns(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    maker = Maker()
    client = RenewingDriverClient(params(file), maker)
    assert client.latest([("t", 0)])[("t", 0)].offset == 7
    file.write_text("second-secret")
    assert client.latest([("t", 0)]) and len(maker.made) == 1, "a client that works is kept"
    monkeypatch.setattr(Guarded, "broker", "second-secret")
    with caplog.at_level(logging.WARNING, "kstream.kafka"):
        assert client.latest([("t", 0)])[("t", 0)].offset == 7
    assert len(maker.made) == 2 and maker.made[0].closed and not maker.made[1].closed
    assert "replaced by one with newer secrets" in caplog.text and "second-secret" not in caplog.text


def test_the_driver_survives_every_change_of_its_password(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker()
    client = RenewingDriverClient(params(file), maker)
    for password in ("second-secret", "third-secret", "fourth-secret"):
        file.write_text(password)
        monkeypatch.setattr(Guarded, "broker", password)
        assert client.latest([("t", 0)])[("t", 0)].offset == 7
    assert len(maker.made) == 4 and [made.closed for made in maker.made] == [True, True, True, False]


def test_a_password_that_is_wrong_stays_an_error_of_one_request(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = Maker()
    client = RenewingDriverClient(params(file), maker)
    monkeypatch.setattr(Guarded, "broker", "another")
    with pytest.raises(AuthenticationFailedError):
        client.latest([("t", 0)])
    assert len(maker.made) == 1
    file.write_text("wrong, too")
    for _ in range(3):
        with pytest.raises(AuthenticationFailedError):
            client.latest([("t", 0)])
    assert len(maker.made) == 2


def test_a_client_that_could_not_be_replaced_yet_is_replaced_once_it_can_be(
    file: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    maker = Maker()
    client = RenewingDriverClient(params(file), maker)
    monkeypatch.setattr(Guarded, "broker", "third-secret")
    file.write_text("second-secret")
    maker.refuses = True
    with pytest.raises(AuthenticationFailedError, match="invalid credentials"):
        client.latest([("t", 0)])
    assert not maker.made[0].closed and not caplog.records
    maker.refuses = False
    file.write_text("third-secret")
    assert client.latest([("t", 0)])[("t", 0)].offset == 7
    assert len(maker.made) == 2 and maker.made[0].closed


# -- a worker


class Client:
    """Stands in for the Consumer of confluent_kafka: it reads up to offset 5. It has messages if its password is that of the broker.

    Attributes:
        assigned: the (offset, leader epoch) pairs of its assignments.
    """

    made: list[Client]
    broker = "none"
    refuses_key = False

    def __init__(self, _kind: Any, settings: dict[str, Any]) -> None:
        if Client.refuses_key:
            raise KafkaConfigError("ssl.key.location", "was refused by librdkafka", "key values mismatch")
        self.password = settings["sasl.password"]
        self.assigned: list[tuple[int, int | None]] = []
        self.closed = False
        Client.made.append(self)

    def list_topics(self, *_: Any, **__: Any) -> Any:
        return type("Metadata", (), {"topics": {}})

    def assign(self, partitions: list[Any]) -> None:
        self.assigned += [(at.offset, at.leader_epoch) for at in partitions]

    def position(self, partitions: list[Any]) -> list[Any]:
        for at in partitions:
            at.offset = 5 if at.partition == 0 else -1001
        return partitions

    def consume(self, *_: Any) -> list[Any]:
        return [Message(5)] if self.password == Client.broker else []

    def close(self) -> None:
        self.closed = True


class Refusing:
    """A watch of a client that is refused unless its password is that of the broker."""

    def __init__(self, settings: Any) -> None:
        self._password = settings["sasl.password"]

    @property
    def has_errors(self) -> bool:
        return self._password != Client.broker

    def on_request(self) -> None:
        pass

    def on_response(self) -> None:
        pass

    def fatal_error(self) -> AuthenticationFailedError | None:
        return refused() if self.has_errors else None


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> type[Client]:
    """Workers' clients whose broker has no password that they know."""
    monkeypatch.setattr(Client, "made", [], raising=False)
    monkeypatch.setattr(Client, "broker", "none")
    monkeypatch.setattr(Client, "refuses_key", False)
    monkeypatch.setattr(range_consumer, "new_client", Client)
    monkeypatch.setattr(range_consumer, "ConnectionWatch", Refusing)
    return Client


def test_a_worker_goes_on_where_it_was_refused_with_one_new_client(file: Path, clients: type[Client]) -> None:
    consumer = KafkaRangeConsumer(params(file).executor())
    consumer.assign([("t", 0, 3, 1), ("t", 1, 8, None)])
    file.write_text("second-secret")
    assert consumer.consume(1, 0.1) == []
    old, new = clients.made
    assert old.closed and (old.password, new.password) == ("first-secret", "second-secret")
    assert old.assigned == [(3, 1), (8, None)]
    assert new.assigned == [(5, None), (8, None)], "an epoch belongs to the first offset"
    with pytest.raises(AuthenticationFailedError):
        consumer.consume(1, 0.1)
    assert len(clients.made) == 2


def test_a_worker_that_has_read_nothing_yet_begins_again_under_the_planned_epoch(file: Path, clients: type[Client]) -> None:
    consumer = KafkaRangeConsumer(params(file).executor())
    consumer.assign([("t", 0, 5, 1), ("t", 1, 8, 2)])
    file.write_text("second-secret")
    consumer.consume(1, 0.1)
    assert clients.made[-1].assigned == [(5, 1), (8, 2)]


def test_a_worker_survives_every_change_of_its_secrets(file: Path, clients: type[Client]) -> None:
    consumer = KafkaRangeConsumer(params(file).executor())
    consumer.assign([("t", 0, 5, None)])
    for password in ("second-secret", "third-secret", "fourth-secret"):
        file.write_text(password)
        clients.broker = password
        assert consumer.consume(1, 0.1) == [], "refused, and replaced"
        assert [message.offset() for message in consumer.consume(1, 0.1)] == [5]
    assert len(clients.made) == 4


def test_a_worker_whose_client_could_not_be_replaced_yet_keeps_it_and_tells_the_refusal(file: Path, clients: type[Client]) -> None:
    consumer = KafkaRangeConsumer(params(file).executor())
    consumer.assign([("t", 0, 5, None)])
    file.write_text("second-secret")
    clients.refuses_key = True
    with pytest.raises(AuthenticationFailedError):
        consumer.consume(1, 0.1)
    assert not clients.made[0].closed, "its lender closes it"
    clients.refuses_key, clients.broker = False, "third-secret"
    file.write_text("third-secret")
    assert consumer.consume(1, 0.1) == []
    assert [message.offset() for message in consumer.consume(1, 0.1)] == [5]


@pytest.mark.usefixtures("clients")
def test_the_refusal_of_a_request_is_left_to_the_watch_of_the_connection(file: Path) -> None:
    """librdkafka's look for a coordinator fails with the connection, and comes as an event of the read."""
    consumer = KafkaRangeConsumer(params(file).executor())
    refusal = KafkaError(KafkaError._AUTHENTICATION, "FindCoordinator response error: Local: Authentication failure")
    assert consumer.classify_error(refusal) is FetchErrorKind.RETRIABLE
