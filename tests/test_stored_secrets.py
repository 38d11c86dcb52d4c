"""What is stored beside a checkpoint holds no secret: settings, functions, and the parameters of inputs."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import AvroDeserializer, AvroSerializer, KafkaUtils, SchemaRegistry, kafka_output
from pyspark import SparkContext

from kstream import StreamingContext, secret
from kstream.context import recovery as restore
from kstream.errors import NotSerializableError
from kstream.secret import harmless, looks_secret
from kstream.storage import LocalFileStore
from tests.kstream_kafka.stream import FakeHost

PLANTED = "pl4nt3d-s3cr3t"


def test_a_setting_with_a_user_in_its_url_is_not_stored() -> None:
    url = {"spark.streaming.checkpoint.directory": f"s3://key:{PLANTED}@bucket/x"}
    assert restore.storable_conf({**url, "spark.streaming.kstream.recovery": "graph"}) == (
        {"spark.streaming.kstream.recovery": "graph"},
        list(url),
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.ssl.keyPassword", "x"),
        ("fs.s3a.session.token", "x"),
        ("fs.azure.account.key.x.dfs.core.windows.net", "x"),
        ("spark.executorEnv.API_KEY", "x"),
        ("spark.x.jaas.config", "x"),
        ("spark.x", "jdbc:postgresql://db/orders?user=me&password=x"),
        ("spark.x", "-Dapi.key=x"),
        ("spark.x", "https://me:x@proxy"),
        ("spark.executorEnv.DB_PASS", "x"),
        ("spark.executorEnv.MYSQL_PWD", "x"),
        ("pass", "x"),
        ("spark.app.name", "password=x"),
        ("spark.x", "password: x"),
        ("spark.x", "password:x"),
        ("spark.x", "password: 12345"),
        ("spark.x", '{"user": "me", "password": "x"}'),
        ("spark.x", '{"user":"me","db.token":"12345"}'),
        ("spark.x", r"{\"password\": \"x\"}"),
        ("spark.x", '{"token":12345,"user":"me"}'),
        ("spark.x", "X-Auth-Token: x"),
        ("spark.x", "user: me\npassphrase: x"),
        ("spark.x", "hdfs://token-svc:8020/?secret=x"),
        ("spark.x", "-----BEGIN PRIVATE KEY-----"),
        ("spark.x", "UID=app;PWD=x;SERVER=db"),
        ("spark.x", "https://acct.blob.core.windows.net/c/x?sv=2020&sig=x"),
        ("spark.x", "https://b.s3.amazonaws.com/k?X-Amz-Signature=x"),
        ("spark.x", '{"signature": "x"}'),
        ("spark.x", "Authorization: Bearer x"),
        ("spark.x", "{'Authorization': 'Basic x'}"),
        ("spark.x", '{"Proxy-Authorization":"Bearer x"}'),
        ("spark.x", "sasl_plain_username=u sasl_plain_pass=x"),
        ("spark.x", "{'ssl.key.pass': 'x'}"),
        ("spark.x", "db_pass: x"),
        ("spark.x", "dbPass=x"),
        ("spark.x", "postgresql://u:p/w@host/db"),
        ("spark.x", "postgresql://u:p:/w@host/db"),
        ("spark.x", "redis://:1234,x@host"),
        ("spark.x", "hdfs://nn:8020/x https://u:x@host"),
        ("spark.x", "https://ghp_x@github.com/acme/jobs"),
        ("spark.x", "password 'x' rejected"),
        ("spark.x", 'user u with password "x"'),
    ],
)
def test_what_looks_like_a_secret(name: str, value: str) -> None:
    assert looks_secret(name, value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("spark.app.name", "tokens of the day"),
        ("dfs.block.access.token.enable", "true"),
        ("fs.s3a.aws.credentials.provider", "com.example.Provider"),
        ("spark.eventLog.dir", "abfss://container@account.dfs.core.windows.net/events"),
        ("spark.redaction.string.regex", "x"),
        ("fs.defaultFS", "hdfs://token-svc:8020"),
        ("fs.defaultFS", "hdfs://secret:8020/logs"),
        ("spark.master", "spark://secrets-host:7077"),
        ("spark.master", "spark://secrets-1:7077,secrets-2:7077"),
        ("dfs.namenode.rpc-address", "token-svc:8020"),
        ("spark.app.name", "token: counter"),
        ("spark.job.description", "secrets: a count"),
        ("spark.driver.extraClassPath", "/opt/secrets:/opt/jars"),
        ("spark.driver.extraClassPath", "secrets:/opt/jars"),
        ("spark.jars.packages", "com.acme:token-lib:1.0"),
        ("spark.jars.packages", "com.acme.secrets:lib:1.0,com.acme:token-lib:1.0"),
        ("spark.x.bypass", "true"),
        ("spark.x", "bypass=true"),
        ("spark.x", "byPass=true"),
        ("spark.x", "compass: north"),
        ("spark.x", "passed: 3, failed: 0"),
        ("spark.x", "passenger=7"),
        ("spark.x", "significant=3"),
        ("spark.x", "design: new"),
        ("spark.x", "no matching signature: expected one of three"),
        ("spark.x", "Authorization: denied"),
        ("spark.x", "the authorization basic check"),
        ("spark.x", "missing argument 'password'"),
        ("spark.x", "hdfs://nn:8020/user/me@acme"),
        ("spark.x", "see https://medium.com/@acme/jobs"),
        ("spark.x", '{"url":"http://localhost","dir":"/data","mail":"me@acme"}'),
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    assert not looks_secret(name, value)


PIECES = (
    "passw", "PASSWORD", "Pass", "pass", "pwd", "token", "tokens", "credential", "api_key", "access.key", "private-key", "secret", "sig",
    "signature", "authorization", "Basic ", "://", "https://", "@", ":", "=", '"', "'", " ", "/", "-----BEGIN", "a", "1",
    "\u017f", "\u0131", "\u212a", "\u0130",
)  # fmt: skip


def test_a_value_without_a_sign_is_no_secret() -> None:
    """The fast answer for most texts is that of the expressions."""
    chance, secrets = random.Random(5), 0
    for _ in range(20_000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 7)))
        is_secret = secret._is_secret("", text)
        secrets += is_secret
        assert not is_secret or secret._has_sign(text), text
    assert secrets > 1_000
    assert not secret._has_sign("Expecting property name enclosed in double quotes: line 1 column 2 (char 1)")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("end", ["", "x"])
@pytest.mark.parametrize(
    ("begin", "again"),
    [
        ("", "token"), ("", "token'"), ("", "token:"), ("token", "'"), ("token", " "), ("token", "\\"), ("token:", "a."), ("", "token 'a:"),
        ("", "secret."), ("", "access."), ("", "pass "), ("", "Pass"), ("", "sig-"), ("", "a"), ("", "a:"), ("", "a="), ("a", " "),
        ("://", ":"), ("", "://"), ("", "://a:"), ("", "://a:b/"), ("https://", "a"), ("", "https://a"),
        ("", "authorization "), ("authorization", " "), ("authorization", "'"), ("", "authorization: basic"), ("password", " "),
    ],
)  # fmt: skip
def test_a_long_hostile_text_is_searched_in_time(begin: str, again: str, end: str) -> None:
    """It takes a tenth of a second, and a minute with an expression that is quadratic. No other thread runs meanwhile."""
    looks_secret("", begin + again * (100_000 // len(again)) + end)
    looks_secret(begin + again * (100_000 // len(again)) + end, "")


@pytest.mark.parametrize("text", ["token" * 200_000, "x " * 500_000, " " * 1_000_000 + "x" * 5000, "x" + " " * 1_000_000 + "token=x"])
def test_of_a_long_error_only_the_beginning_is_searched(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[str] = []

    def search(name: str, value: str) -> bool:
        searched.append(value)
        return looks_secret(name, value)

    monkeypatch.setattr(secret, "looks_secret", search)
    assert len(harmless(text)) <= 500
    assert [len(value) <= 2000 for value in searched] == [True] * len(searched) and searched


@pytest.mark.parametrize("gap", [" ", " " * 5000], ids=["one space", "many"])
def test_a_secret_that_is_cut_is_not_shown(gap: str) -> None:
    assert PLANTED not in harmless(f"OSError: {'x' * 400}{gap}https://u:{PLANTED}{'x' * 5000}@host")
    assert PLANTED not in harmless(f"OSError: {'x ' * 200}{gap}password{gap}= {PLANTED}")


def test_a_decoder_or_an_encoder_whose_registry_has_a_secret_is_never_stored() -> None:
    registry = SchemaRegistry({"url": "http://h", "basic.auth.user.info": f"u:{PLANTED}"})
    host: Any = FakeHost()
    stream = KafkaUtils.createDirectStream(host, ["a"], {"bootstrap.servers": "h:1"}, valueDecoder=AvroDeserializer(registry))
    assert stream.spec.recipe() is None
    assert "schema.registry.basic.auth.user.info" in stream.spec.why_no_recipe() and PLANTED not in stream.spec.why_no_recipe()
    functions = {"value": AvroSerializer(registry, '"string"', "b-value")}
    *_, secrets = kafka_output("b", {"bootstrap.servers": "h:1"}, functions, "exactly-once", None, "kstream", "fail", True)
    assert secrets == ["schema.registry.basic.auth.user.info"]
    open_to_all = AvroDeserializer(SchemaRegistry("http://h"))
    stream = KafkaUtils.createDirectStream(host, ["b"], {"bootstrap.servers": "h:1"}, valueDecoder=open_to_all)
    assert stream.spec.recipe() is not None


def test_only_parameters_that_are_no_secrets_are_in_the_connections(tmp_path: Path) -> None:
    host: Any = FakeHost()
    KafkaUtils.createDirectStream(host, ["a"], {"bootstrap.servers": "h:1", "sasl.password": PLANTED})
    KafkaUtils.createDirectStream(host, ["b"], {"bootstrap.servers": "h:2"})
    restore.store_connections(LocalFileStore(tmp_path), host.graph)
    stored = (tmp_path / "connections").read_text()
    assert PLANTED not in stored
    assert {number: given["params"]["bootstrap.servers"] for number, given in json.loads(stored)["streams"].items()} == {"1": "h:2"}


def test_a_stream_with_a_secret_is_refused_where_the_graph_is_to_be_stored_and_nothing_is_written(
    sc: SparkContext, tmp_path: Path, setting: Any
) -> None:
    """Its functions may hold the very secret: a dict of Kafka parameters at the top of a module is pickled with what uses it."""
    setting("spark.streaming.kstream.recovery", "graph")
    ssc, params = StreamingContext(sc, 1), {"bootstrap.servers": "h:1", "sasl.password": PLANTED}
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    KafkaUtils.createDirectStream(ssc, ["a"], params).foreachRDD(lambda rdd: print(params))
    with pytest.raises(NotSerializableError, match=r"sasl\.password") as caught:
        ssc.start()
    assert PLANTED not in str(caught.value) and list(tmp_path.rglob("*")) == [tmp_path / "checkpoint"]


def test_an_output_with_a_secret_is_refused_where_the_graph_is_to_be_stored(sc: SparkContext, tmp_path: Path, setting: Any) -> None:
    setting("spark.streaming.kstream.recovery", "graph")
    ssc = StreamingContext(sc, 1)
    ssc.checkpoint(str(tmp_path / "checkpoint"))
    stream = KafkaUtils.createDirectStream(ssc, ["a"], {"bootstrap.servers": "h:1"})
    stream.saveToKafka("b", {"bootstrap.servers": "h:1", "sasl.password": PLANTED})
    with pytest.raises(NotSerializableError, match=r"never stored, and saveToKafka has sasl\.password") as caught:
        ssc.start()
    assert PLANTED not in str(caught.value) and list(tmp_path.rglob("*")) == [tmp_path / "checkpoint"]
