"""One function decides what may be a secret: of settings, headers and parameters of a connector. And errors of a client have one door."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from kstream_kafka.client.redaction import NOT_SECRET, property_names

from kstream.secret import SPARKS_NAMES, looks_secret

KAFKA = Path(__file__).resolve().parent.parent / "connectors" / "kstream_kafka"
OF_SPARK = ("spark.my.token.of.mine", "spark.MySecret.x", "my.accesskey", "x.access.key.id", "spark.passwordless", "spark.tokenizer")
OF_HEADERS = ("authorization", "Authorization", "cookie", "Cookie", "api-key", "x-auth-token", "session_token")
OF_KAFKA = property_names("""
    sasl.password sasl.username sasl.jaas.config ssl.key.password ssl.key.pem ssl.certificate.pem ssl.keystore.password ssl.keystore.key
    sasl.oauthbearer.config sasl.oauthbearer.client.secret sasl.oauthbearer.assertion.private.key.pem a.new.one
""")
VALUES_OF_KAFKA = ("https://user@idp/token", "ssl://u:p@b:9092", "-----BEGIN PRIVATE KEY-----", "a\nb")
HARMLESS = ("spark.sql.cookie.path", "hadoop.security.authorization", "spark.app.name", "cookie2", "trace", "dfs.block.access.token.enable")


@pytest.mark.parametrize("name", OF_SPARK)
def test_a_setting_that_spark_does_not_show_is_not_stored(name: str) -> None:
    assert looks_secret(name, "x", also=re.compile(SPARKS_NAMES))


@pytest.mark.parametrize("name", OF_HEADERS)
def test_a_header_of_that_name_is_hidden(name: str) -> None:
    assert looks_secret(name, "")


@pytest.mark.parametrize("name", sorted(OF_KAFKA))
def test_a_parameter_that_is_not_known_to_be_harmless_is_a_secret(name: str) -> None:
    assert looks_secret(name, "x", public=NOT_SECRET)


@pytest.mark.parametrize("value", VALUES_OF_KAFKA)
def test_a_harmless_parameter_with_the_value_of_a_secret_is_one(value: str) -> None:
    assert looks_secret("bootstrap.servers", value, public=NOT_SECRET)


def test_other_names_are_shown() -> None:
    assert [name for name in HARMLESS if looks_secret(name, "true")] == []
    assert not looks_secret("ssl.key.location", "/etc/key.pem", public=NOT_SECRET)
    assert not looks_secret("spark.app.name", "true", also=re.compile(SPARKS_NAMES))


def test_the_text_of_an_error_of_librdkafka_is_asked_for_at_one_door() -> None:
    """`text_of` hides secrets. Only the watch of the connections needs the text as it is, and hides them itself."""
    asked: dict[str, list[str]] = {}
    for path in sorted(KAFKA.rglob("*.py")):
        text = path.read_text()
        calls = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call)]
        lines = {call.lineno - 1 for call in calls if isinstance(call.func, ast.Attribute) and call.func.attr == "str"}
        found = {text.splitlines()[line].strip() for line in lines}
        asked.update({str(path.relative_to(KAFKA)): sorted(found)} if found else {})
    of_the_watch = "watch.on_error(error.name(), error.str())"
    assert asked == {
        "client/driver_client.py": [f"self._{of_the_watch}"],
        "client/librdkafka.py": ["return redact(error.str() if isinstance(error, ClientError) else str(error))"],
        "demo/embedded_broker.py": ["reason = e.args[0].str()", "self.refused.append(error.str())"],
        "reader/range_consumer.py": [of_the_watch],
    }
