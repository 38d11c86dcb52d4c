"""A job whose Kafka password is known to us: it is found in nothing the job leaves behind, however much it is made to say."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from integration.secure_broker import SecureBroker, running_secure_broker

PLANTED = "pl4nt3d-s3cr3t"
JOB = """
import logging, os, sys
from kstream import StreamingContext
from kstream_kafka import KafkaUtils
from pyspark import SparkConf

logging.basicConfig(level=logging.WARNING, stream=sys.stdout)
for name in ("kstream", "kstream.kafka.librdkafka"):
    logging.getLogger(name).setLevel(logging.DEBUG)
    logging.getLogger(name).addHandler(logging.StreamHandler(sys.stdout))
PASSWORD = os.environ["KAFKA_PASSWORD"]
KAFKA = {
    "bootstrap.servers": os.environ["KAFKA"], "auto.offset.reset": "earliest", "security.protocol": "SASL_SSL",
    "ssl.ca.location": os.environ["KAFKA_CA"], "sasl.mechanism": "SCRAM-SHA-512", "debug": "all",
    "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="alice" password="{PASSWORD}";',
}


def setup():
    conf = SparkConf().setMaster("local[2]").setAppName("planted").set("spark.ui.enabled", "false")
    conf = conf.set("spark.eventLog.enabled", "true").set("spark.eventLog.dir", os.environ["EVENTS"])
    ssc = StreamingContext(conf.set("spark.streaming.kafka.sasl.password", PASSWORD + "-in-a-setting-of-no-meaning"), 1)
    stream = KafkaUtils.createDirectStream(ssc, ["orders"], KAFKA, untilOffsets="latest")
    print("made", stream, stream.spec, KAFKA.keys())
    stream.map(lambda kv: (kv[1], KAFKA["bootstrap.servers"])).foreachRDD(lambda rdd: print("read", len(rdd.collect()), len(KAFKA)))
    return ssc


ssc = StreamingContext.getOrCreate(sys.argv[1], setup)
ssc.start()
ssc.awaitTermination()
print(ssc.lastProgress)
"""


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with running_secure_broker(tmp_path_factory.mktemp("secure"), {}) as broker:
        broker.add_scram_user("alice", PLANTED)
        broker.allow("alice", "READ", topic="orders")
        broker.create_topic("orders", 2)
        broker.produce("orders", [(str(i), f"value {i}", i % 2) for i in range(40)])
        yield broker


def run(secure: SecureBroker, directory: Path, name: str, password: str, *command: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the password in its environment; what it says is kept in the directory, too."""
    told = {
        "KAFKA": secure.at("SASL"),
        "KAFKA_CA": str(secure.authority.ca),
        "KAFKA_PASSWORD": password,
        "EVENTS": str(directory / "events"),
    }
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **told, "PYTHONUNBUFFERED": "1"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=240, check=False, cwd=directory,
    )  # fmt: skip
    (directory / f"{name}.output").write_text(done.stdout)
    return done


@pytest.mark.timeout(600)
def test_a_password_is_found_nowhere_in_what_a_job_stores_and_says(secure: SecureBroker, tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "job.py").write_text(JOB)
    checkpoint = tmp_path / "checkpoint"
    done = run(secure, tmp_path, "first", PLANTED, "job.py", str(checkpoint))
    assert done.returncode == 0 and "made" in done.stdout and "read 40" in done.stdout, done.stdout[-4000:]
    refused = run(secure, tmp_path, "restarted", PLANTED + "-wrong", "job.py", str(checkpoint))
    assert refused.returncode != 0 and "AuthenticationFailedError" in refused.stdout, refused.stdout[-4000:]
    (tmp_path.parent / "kafka.properties").write_text(
        f"bootstrap.servers={secure.at('SASL')}\nsecurity.protocol=sasl_ssl\nssl.ca.location={secure.authority.ca}\ndebug=all\n"
        f"sasl.mechanism=SCRAM-SHA-512\nsasl.username=alice\nsasl.password={PLANTED}\n"
    )
    lag = ["-m", "kstream.cli", "lag", str(checkpoint), "--params-file", str(tmp_path.parent / "kafka.properties")]
    assert "no lag" in run(secure, tmp_path, "lag", "", *lag).stdout
    assert run(secure, tmp_path, "lag refused", "", *lag, "--param", f"sasl.password={PLANTED}-wrong").returncode == 3
    assert run(secure, tmp_path, "lag unknown", "", *lag, "--param", f"sasl.pasword={PLANTED}").returncode == 3
    assert "SCRAM-SHA-512" in (tmp_path / "first.output").read_text(), "librdkafka said nothing"
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"connections"} < {path.name for path in files} and any("events" in path.parts for path in files)
    leaks = [str(path.relative_to(tmp_path)) for path in files if holds(path, PLANTED)]
    assert not leaks


def holds(path: Path, secret: str) -> bool:
    """Whether the file has it, plain or as base64 at any of its three alignments."""
    data = path.read_bytes()
    encoded = [base64.b64encode(b" " * shift + secret.encode())[(shift * 4 + 2) // 3 + 1 : -4] for shift in range(3)]
    return any(form in data for form in (secret.encode(), *encoded))
