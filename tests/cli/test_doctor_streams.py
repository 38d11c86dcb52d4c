"""`kstream doctor` on the streams of a checkpoint, against librdkafka's mock cluster: what would hurt a stream's next read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from kstream_kafka.client.ports import LogEnd
from kstream_kafka.demo.embedded_broker import MockCluster
from kstream_kafka.errors import NotAuthorizedError
from kstream_kafka.tools import examination
from kstream_kafka.tools.examination import judge_ids, judge_offsets

from kstream.cli import main
from kstream.cli.exit_codes import ReadingCode
from tests.cli.streams_to_check import checkpoint, plan


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster with 10 records in partition 0 of `orders`."""
    cluster = MockCluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for i in range(10):
        producer.produce("orders", str(i), partition=0)
    assert producer.flush(10) == 0
    yield cluster.bootstrap
    del cluster


def told(folder: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    result = CliRunner().invoke(main, ["doctor", str(folder), "--json", *options])
    rows = json.loads(result.stdout)["checks"]
    return result.exit_code, {row["name"]: row for row in rows if row["name"].startswith("stream")}


def test_a_stream_that_can_read_on_is_well(tmp_path: Path, bootstrap: str) -> None:
    checkpoint(tmp_path, 10)
    code, rows = told(tmp_path, "--bootstrap", bootstrap, "--param", "group.id=mine")
    assert code == ReadingCode.WELL, rows
    assert {name.partition(", ")[2]: row["verdict"] for name, row in rows.items()} == dict.fromkeys(
        ["brokers", "topics", "offsets", "read", "group"], "ok"
    )


def test_a_log_that_is_shorter_than_what_was_read_fails_with_the_way_out(tmp_path: Path, bootstrap: str) -> None:
    checkpoint(tmp_path, 17)
    code, rows = told(tmp_path, "--bootstrap", bootstrap)
    offsets = rows["stream 0, offsets"]
    assert code == ReadingCode.BEHIND and offsets["verdict"] == "failed"
    assert offsets["seen"] == "orders/0 ends at 10, before the next offset 17" and "kstream offsets reset" in offsets["remedy"]


def test_brokers_that_do_not_answer_are_a_failed_check(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    code, rows = told(tmp_path, "--bootstrap", "127.0.0.1:1", "--param", "default.api.timeout.ms=1000")
    assert code == ReadingCode.BEHIND and list(rows) == ["stream 0, brokers"]
    assert (
        rows["stream 0, brokers"]["verdict"] == "failed" and "No Kafka broker of 127.0.0.1:1 answered" in rows["stream 0, brokers"]["seen"]
    )


def test_parameters_that_are_not_stored_are_asked_for_and_nothing_is_judged(tmp_path: Path) -> None:
    checkpoint(tmp_path, 10)
    code, rows = told(tmp_path)
    assert code == ReadingCode.WELL and rows["stream 0"]["verdict"] == "not checked" and "--params-file" in rows["stream 0"]["seen"]


def test_a_topic_that_a_worker_may_not_read_fails_with_its_acl(tmp_path: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise NotAuthorizedError(bootstrap, "READ", "topic", "orders", "denied")

    monkeypatch.setattr(examination.KafkaRangeConsumer, "consume", refuse)
    checkpoint(tmp_path, 10)
    code, rows = told(tmp_path, "--bootstrap", bootstrap)
    read = rows["stream 0, read"]
    assert code == ReadingCode.BEHIND and read["verdict"] == "failed" and "kafka-acls.sh" in read["seen"] and "READ" in read["remedy"]


def test_a_topic_that_was_made_anew_fails_by_its_id() -> None:
    assert judge_ids({"orders": "a"}, {"orders": "a", "other": "b"}).verdict == "ok"
    assert judge_ids({}, {"orders": "a"}).verdict == "ok"
    found = judge_ids({"orders": "a"}, {"orders": "b"})
    assert found.verdict == "failed" and "orders (its id was a, is b)" in found.seen and "kstream offsets reset" in found.remedy


def test_records_that_have_expired_unread_fail() -> None:
    begins, ends = {("orders", 0): LogEnd(12)}, {("orders", 0): LogEnd(20)}
    found = judge_offsets(plan(10), begins, ends)
    assert found.verdict == "failed" and found.seen == "orders/0 begins at 12, after the next offset 10" and "retention.ms" in found.remedy
    assert judge_offsets(plan(12), begins, ends).verdict == "ok"
