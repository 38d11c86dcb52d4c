"""What is stored beside a checkpoint holds no secret: settings, functions, and the parameters of inputs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from pyspark import SparkContext

from kstream import StreamingContext
from kstream.context import recovery as restore
from kstream.errors import NotSerializableError
from kstream.secret import looks_secret
from kstream.storage import LocalFileStore
from tests.kstream_kafka.fakes import FakeHost

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
    ],
)
def test_what_does_not(name: str, value: str) -> None:
    assert not looks_secret(name, value)


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
