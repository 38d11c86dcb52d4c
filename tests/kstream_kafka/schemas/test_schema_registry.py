"""SchemaRegistry: one client in a process, one request for a schema, errors with their remedy, secrets that nobody sees."""

from __future__ import annotations

import json
import pickle
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka.client import schema_registry, unknown_ids
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.client.unknown_ids import AGAIN_AFTER_S, PATIENT_FOR
from kstream_kafka.errors import KafkaConfigError, SchemaRegistryRefusedError, SchemaRegistryUnreachableError

from kstream.secret import redact
from tests.kstream_kafka.schemas.registry_server import RegistryServer, registry_server

ORDER = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}'
AT_ONCE = {"max.retries": 2, "retries.wait.ms": 1, "retries.max.wait.ms": 1}


@pytest.fixture
def server() -> Generator[RegistryServer]:
    with registry_server() as running:
        yield running


def test_a_schema_is_asked_for_once_in_a_process_also_by_pickled_copies(server: RegistryServer):
    number = server.register("orders-value", ORDER)
    registry = SchemaRegistry(server.url)
    found = [pickle.loads(pickle.dumps(registry)).schema(number) for _ in range(3)]
    assert {schema.text for schema in found if schema is not None} == {ORDER}
    assert server.asked_for(number) == 1


def test_an_id_that_the_registry_does_not_know_is_asked_for_no_more_after_the_first_moment(server: RegistryServer):
    registry = SchemaRegistry(server.url)
    assert [registry.schema(77), registry.schema(77)] == [None, None]
    assert server.asked_for(77) == 1 + len(AGAIN_AFTER_S)


def test_a_schema_that_a_follower_does_not_have_yet_is_asked_for_again(server: RegistryServer):
    number = server.register("orders-value", ORDER)
    server.lag = len(AGAIN_AFTER_S)
    assert SchemaRegistry(server.url).schema(number) is not None
    assert server.asked_for(number) == 1 + len(AGAIN_AFTER_S)


def test_damaged_ids_become_a_few_requests_and_one_warning(
    server: RegistryServer, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    most = 10
    for module in (unknown_ids, schema_registry):
        monkeypatch.setattr(module, "MOST", most)
    number = server.register("orders-value", ORDER)
    registry = SchemaRegistry(server.url)
    assert registry.schema(number) is not None
    before = len(server.requests)
    assert {registry.schema(damaged) for damaged in range(1000, 2000)} == {None}
    assert len(server.requests) - before == most + PATIENT_FOR * len(AGAIN_AFTER_S)
    assert [record.getMessage() for record in caplog.records if record.name == "kstream.kafka"] == [
        f"the schema registry {server.url} did not know 10 schema ids within a minute: until one is a minute old no new id is asked for"
    ]
    assert registry.schema(number) is not None
    other = server.register("users-value", ORDER.replace("Order", "User"))
    assert (registry.schema(other), registry.schema(other, is_given=True) is None) == (None, False)


def test_the_references_of_a_schema_come_with_it_before_those_that_need_them(server: RegistryServer):
    server.register("money", '{"type": "enum", "name": "Money", "symbols": ["EUR"]}')
    price = '{"type": "record", "name": "Price", "fields": [{"name": "in", "type": "Money"}]}'
    server.register("price", price, references=[{"name": "Money", "subject": "money", "version": 1}])
    both = [{"name": "Price", "subject": "price", "version": 1}, {"name": "Money", "subject": "money", "version": 1}]
    number = server.register("orders-value", ORDER.replace('"long"', '"Price"'), references=both)
    found = SchemaRegistry(server.url).schema(number)
    assert found is not None and [name for name, _ in found.references] == ["Money", "Price"]


def test_the_newest_schema_of_a_subject_and_none_of_a_subject_that_is_not_there(server: RegistryServer):
    server.register("orders-value", ORDER)
    newest = server.register("orders-value", ORDER.replace("long", "int"))
    registry = SchemaRegistry(server.url)
    found = registry.latest("orders-value")
    assert found is not None and (found.id, "int" in found.text) == (newest, True)
    assert registry.latest("users-value") is None


def test_a_registry_that_is_not_ready_is_asked_again_as_often_as_its_client_does(server: RegistryServer):
    number = server.register("orders-value", ORDER)
    server.failures = 2
    assert SchemaRegistry({"url": server.url, **AT_ONCE}).schema(number) is not None
    assert server.asked_for(number) == 3


def test_no_answer_is_one_error_that_names_the_registry_and_may_be_tried_again():
    with registry_server() as closed:
        url = closed.url
    with pytest.raises(SchemaRegistryUnreachableError, match=url) as caught:
        SchemaRegistry({"url": url, **AT_ONCE}).schema(1)
    assert caught.value.retriable


def test_a_refused_schema_is_the_error_of_the_registry(server: RegistryServer):
    with pytest.raises(SchemaRegistryRefusedError, match=r"HTTP 422.*Invalid schema"):
        SchemaRegistry(server.url).register("orders-value", "AVRO", "{")


def test_a_wrong_path_of_the_url_is_no_schema_that_the_registry_does_not_know(server: RegistryServer):
    registry = SchemaRegistry(server.url + "/api")
    with pytest.raises(SchemaRegistryRefusedError, match=r"HTTP 404.*Check the path of the URL"):
        registry.schema(1)
    with pytest.raises(SchemaRegistryRefusedError, match="HTTP 404"):
        registry.latest("orders-value")


@pytest.mark.parametrize("body", [[], "ok", None, {}, {"status": "ok"}], ids=json.dumps)
def test_an_answer_that_is_none_of_a_registry_is_no_answer_and_is_not_kept(server: RegistryServer, body: Any):
    number = server.register("orders-value", ORDER)
    registry = SchemaRegistry(server.url)
    server.instead = (200, body)
    for ask in (lambda: registry.schema(number), lambda: registry.latest("orders-value"), lambda: registry.register("x", "AVRO", ORDER)):
        with pytest.raises(SchemaRegistryUnreachableError, match="what answers is no schema registry"):
            ask()
    server.instead = None
    assert registry.schema(number) is not None
    assert registry.register("x", "AVRO", ORDER) == number


def test_a_wrong_password_is_refused_with_the_remedy_and_without_the_password(server: RegistryServer):
    server.login = "orders:letmein-please"
    registry = SchemaRegistry({"url": server.url, "basic.auth.user.info": "orders:wrong-password"})
    with pytest.raises(SchemaRegistryRefusedError, match=r"HTTP 401.*basic\.auth\.user\.info") as caught:
        registry.schema(1)
    assert "wrong-password" not in f"{caught.value} {registry!r}"
    assert redact("it is orders:wrong-password") == "it is [hidden]"


def test_a_password_that_was_replaced_in_its_file_is_read_again_when_the_older_one_is_refused(server: RegistryServer, tmp_path: Path):
    number = server.register("orders-value", ORDER)
    other = server.register("users-value", ORDER.replace("Order", "User"))
    secret = tmp_path / "registry"
    secret.write_text("orders:first-password\n")
    server.login = "orders:first-password"
    registry = SchemaRegistry({"url": server.url, "basic.auth.user.info": secret})
    assert registry.schema(number) is not None
    server.login = "orders:second-password"
    secret.write_text("orders:second-password\n")
    assert registry.schema(other) is not None


def test_who_is_refused_while_another_one_replaces_the_client_goes_on_with_the_new_one(server: RegistryServer):
    first, other, third = (server.register(f"{name}-value", ORDER.replace("Order", name)) for name in ("A", "B", "C"))
    found: list[object] = []
    server.login = "orders:first-password"

    def secret() -> str:
        if server.login == "orders:second-password" and not found:
            found.append(None)  # the reading of this very call is not interrupted again
            found.append(registry.schema(other))
        return server.login or ""

    registry = SchemaRegistry({"url": server.url, "basic.auth.user.info": secret})
    assert registry.schema(first) is not None
    server.login = "orders:second-password"
    assert registry.schema(third) is not None
    assert len(found) == 2 and found[1] is not None


def test_an_error_of_the_caller_is_not_called_a_registry_that_does_not_answer(server: RegistryServer):
    with pytest.raises(AttributeError):
        SchemaRegistry(server.url).register("orders-value", "AVRO", ORDER, ("money",))  # pyright: ignore[reportArgumentType]


def test_settings_that_cannot_work_are_refused_at_the_call():
    with pytest.raises(KafkaConfigError, match=r"'schema\.registry\.url' is missing"):
        SchemaRegistry({})
    with pytest.raises(KafkaConfigError, match=r"basic\.auth\.user\.inof.*Did you mean 'basic\.auth\.user\.info'"):
        SchemaRegistry({"url": "http://h", "basic.auth.user.inof": "u:p"})
    with pytest.raises(KafkaConfigError, match=r"max\.retries.*must be a number"):
        SchemaRegistry({"url": "http://h", "max.retries": "three"})


def test_only_settings_that_can_hold_no_secret_may_be_stored():
    assert SchemaRegistry({"url": "http://h", "max.retries": "3"}).not_storable() == []
    assert SchemaRegistry({"url": "http://u:pass@h"}).not_storable() == ["schema.registry.url"]
    assert SchemaRegistry({"url": "http://h", "basic.auth.user.info": "u:p"}).not_storable() == ["schema.registry.basic.auth.user.info"]
