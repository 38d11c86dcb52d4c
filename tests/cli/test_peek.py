"""`kstream peek` on checkpoints written as a driver writes them, against librdkafka's mock cluster."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import ConsumerGroupTopicPartitions, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.demo.embedded_broker import MockCluster
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.source.stream_spec import StreamSpec
from kstream_kafka.tools import record_reading

from kstream.batch import BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.history import PastBatch, write_segment
from kstream.checkpoint.input_records import write_connections
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.cli.exit_codes import ReadingCode
from kstream.connectors import PlannedRange
from kstream.offsets.offset_range import OffsetRange
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000
BATCH = ZERO + 1000


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A cluster with 10 records in partitions 0 and 1 of `orders-eu`."""
    cluster = MockCluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for partition in (0, 1):
        for i in range(10):
            value = b"\x1b[2J not JSON" if i == 7 else b'{"n": %d}' % i
            producer.produce("orders-eu", value, f"k{i}", partition, headers=[("trace", b"t"), ("api-key", b"swordfish")])
    assert producer.flush(10) == 0
    yield cluster.bootstrap
    del cluster


def encoded(*ranges: tuple[int, int, int], epochs: Sequence[int | None] = (), topic: str = "orders-eu") -> Mapping[str, Any]:
    unknown = epochs or [None] * len(ranges)
    return KafkaPlan([OffsetRange(topic, *r) for r in ranges], unknown, unknown).encode()


def checkpoint(folder: Path, bootstrap: str | None, *streams: Mapping[str, Any]) -> PlanLog:
    """A checkpoint with one pending batch of these streams, and the parameters of their connections."""
    store = LocalFileStore(folder)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    if bootstrap is not None:
        recipe = StreamSpec(subscription(["orders-eu"]), KafkaParams.parse({"bootstrap.servers": bootstrap})).recipe()
        assert recipe is not None
        write_connections(store, dict.fromkeys(range(len(streams)), (recipe.kind, recipe.args["params"])))
    log = PlanLog(store, take_epoch(store, ZERO))
    log.write_plan(BatchPlan(Time(BATCH), log.epoch, "n", dict(enumerate(streams)), {}, Time(BATCH)))
    return log


def peek(folder: Path, *options: object) -> Result:
    return CliRunner().invoke(main, ["peek", str(folder), *map(str, options)])


def offsets(result: Result) -> list[tuple[int, int]]:
    """The partition and the offset of each record that was shown as JSON."""
    return [(row["partition"], row["offset"]) for row in map(json.loads, result.stdout.splitlines())]


def refused(result: Result) -> str:
    """What it said on standard error, which is one line."""
    assert result.exit_code == ReadingCode.UNREADABLE and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr.removesuffix("\n")


def test_a_batch_is_shown_by_the_exact_ranges_of_its_plan(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 3, 5), (1, 8, 10)))
    result = peek(tmp_path, "--batch", BATCH, "--format", "json", "-n", 100)
    assert (result.exit_code, offsets(result)) == (0, [(0, 3), (0, 4), (1, 8), (1, 9)])
    assert offsets(peek(tmp_path, "--batch", BATCH, "--format", "json", "-n", 3)) == [(0, 3), (0, 4), (1, 8)]


def test_a_record_is_shown_by_the_place_that_an_error_names(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 3, 5), (1, 0, 1)))
    for place in ("orders-eu-0@7", "orders-eu/0@7"):
        result = peek(tmp_path, "--offset", place, "-n", 1)
        assert result.exit_code == 0 and result.stderr == ""
        first, *rest = result.stdout.splitlines()
        assert first.startswith("orders-eu-0@7  20") and first.endswith(" UTC (CreateTime)")
        assert rest == [
            "  key     2 bytes: k7",
            "  header  trace: 1 byte: t",
            "  header  api-key: [hidden], 9 bytes",
            r"  value   13 bytes: \x1b[2J not JSON",
        ]
    assert offsets(peek(tmp_path, "--offset", "orders-eu-1@7", "--format", "json")) == [(1, 7), (1, 8), (1, 9)]


def test_hex_shows_each_byte_and_max_bytes_cuts(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 3, 5)))
    result = peek(tmp_path, "--offset", "orders-eu-0@7", "-n", 1, "--format", "hex", "--max-bytes", 4)
    assert "  value   13 bytes, the first 4\n    00000000  1b 5b 32 4a " in result.stdout


def test_a_batch_of_the_history_is_shown_and_one_that_is_gone_is_a_sentence(bootstrap: str, tmp_path: Path) -> None:
    log = checkpoint(tmp_path, bootstrap, encoded((0, 3, 5)))
    old = BatchPlan(Time(ZERO - 5000), 1, "n", {0: encoded((1, 0, 1))}, {}, Time(ZERO))
    write_segment(LocalFileStore(tmp_path), log.epoch, [PastBatch(old, None)])
    assert offsets(peek(tmp_path, "--batch", ZERO - 5000, "--format", "json")) == [(1, 0)]
    said = refused(peek(tmp_path, "--batch", ZERO - 9000))
    assert said.startswith(f"kstream: {tmp_path} has no plan of batch {ZERO - 9000} ms: its log has batches {BATCH} ms to {BATCH} ms")


def test_offsets_that_are_not_in_the_log_are_named_after_the_records_that_are(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 8, 12), (1, 9, 12)))
    result = peek(tmp_path, "--batch", BATCH, "--format", "json")
    assert refused(result) == "kstream: orders-eu-0 [10, 12) cannot be shown: the log ends at 10, and 1 other range too"
    assert offsets(result) == [(0, 8), (0, 9), (1, 9)]
    assert refused(peek(tmp_path, "--offset", "orders-eu-0@10")) == "kstream: orders-eu-0 ends at 10: there is no offset 10 yet"


def test_offsets_that_have_expired_are_named(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock cluster cannot remove records, so its answer about the begin of a log is replaced."""
    client = record_reading.KafkaDriverClient
    earliest = client.earliest
    monkeypatch.setattr(client, "earliest", lambda self, p: {k: type(end)(4) for k, end in earliest(self, p).items()})
    checkpoint(tmp_path, bootstrap, encoded((0, 2, 6), (1, 0, 2)))
    result = peek(tmp_path, "--batch", BATCH, "--format", "json")
    said = "orders-eu-0 [2, 4) cannot be shown: retention has removed the records, the log begins at 4, and 1 other range too"
    assert (refused(result), offsets(result)) == (f"kstream: {said}", [(0, 4), (0, 5)])
    assert refused(peek(tmp_path, "--offset", "orders-eu-0@2", "-n", 1)).startswith(
        "kstream: orders-eu-0 [2, 4) cannot be shown: retention"
    )


def test_records_that_took_the_place_of_planned_ones_are_not_shown_as_the_batch(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 3, 5), epochs=[-5]))
    result = peek(tmp_path, "--batch", BATCH, "--format", "json")
    assert "orders-eu-0 [3, 5) cannot be shown: the log was cut, the planned records are gone" in refused(result)


def test_an_unknown_topic_is_a_sentence_before_and_after_the_broker_is_asked(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 0, 1), topic="orders-eu"))
    assert refused(peek(tmp_path, "--offset", "clicks-0@3")) == f"kstream: no stream of {tmp_path} reads clicks-0: they read orders-eu"
    assert "names no record: give TOPIC-PARTITION@OFFSET" in refused(peek(tmp_path, "--offset", "orders"))


def test_a_partition_that_the_broker_does_not_know_is_a_sentence(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((77, 0, 1)))
    assert "orders-eu" in refused(peek(tmp_path, "--batch", BATCH, "--param", "default.api.timeout.ms=1500"))


def test_a_dead_broker_and_brokers_that_are_not_stored_are_sentences(tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        dead = f"127.0.0.1:{free.getsockname()[1]}"
    checkpoint(tmp_path, None, encoded((0, 0, 1)))
    assert "stores no Kafka parameters of stream 0" in refused(peek(tmp_path, "--batch", BATCH))
    secret = ("--param", "default.api.timeout.ms=800", "--param", "sasl.password=swordfish", "--param", "sasl.username=me-myself")
    said = refused(peek(tmp_path, "--batch", BATCH, "--bootstrap", dead, *secret))
    assert said.startswith(f"kstream: No Kafka broker of {dead} answered within") and "swordfish" not in said


def test_a_stream_whose_connector_cannot_show_records_is_a_sentence(tmp_path: Path) -> None:
    checkpoint(tmp_path, None, {"log": "sqlite", "ranges": [["events", 0, 0, 5]]})
    assert refused(peek(tmp_path, "--batch", BATCH)).startswith("kstream: no installed connector offers ")
    other = tmp_path / "other"
    checkpoint(other, None, {"files": ["a"]})
    assert "has no stream of a" in refused(peek(other, "--batch", BATCH))


def test_an_empty_batch_no_checkpoint_and_no_question_are_sentences(tmp_path: Path) -> None:
    checkpoint(tmp_path, None, encoded((0, 3, 3)))
    assert refused(peek(tmp_path, "--batch", BATCH)) == f"kstream: batch {BATCH} ms of {tmp_path} has no offsets: its ranges are empty"
    assert "there is no checkpoint in" in refused(peek(tmp_path / "nothing", "--batch", BATCH))
    assert peek(tmp_path).exit_code == 2 and peek(tmp_path, "--batch", BATCH, "--offset", "t-0@1").exit_code == 2


def test_gaps_are_said(bootstrap: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mock cluster has no compaction: a reader that leaves out offsets 7 and 9 stands in."""
    read = record_reading.read_splits

    def compacted(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for where, messages in read(*args, **kwargs):
            yield where, [m for m in messages if m.offset() not in (7, 9)]

    monkeypatch.setattr(record_reading, "read_splits", compacted)
    checkpoint(tmp_path, bootstrap, encoded((0, 7, 8)))
    result = peek(tmp_path, "--offset", "orders-eu-0@7", "--format", "json")
    assert result.exit_code == 0 and result.stderr.startswith("no record at offset 7: compaction") and offsets(result) == [(0, 8)]
    nothing = peek(tmp_path, "--offset", "orders-eu-0@9")
    assert nothing.exit_code == 0 and nothing.stdout == "" and nothing.stderr.startswith("no record: compaction")


def test_a_look_commits_nothing(bootstrap: str, tmp_path: Path) -> None:
    checkpoint(tmp_path, bootstrap, encoded((0, 3, 5)))
    assert peek(tmp_path, "--batch", BATCH, "--param", "group.id=mine").exit_code == 0
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for group in ("mine", "spark-executor-mine"):
        asked = ConsumerGroupTopicPartitions(group, [TopicPartition("orders-eu", 0)])
        answer = admin.list_consumer_group_offsets([asked])[group].result(10)
        assert [p.offset for p in answer.topic_partitions] == [-1001]


def test_a_range_without_a_plan_is_read_whatever_its_leader_epoch(bootstrap: str) -> None:
    plan = encoded((0, 3, 5), epochs=[-5])
    found = list(record_reading.read_records({"bootstrap.servers": bootstrap}, plan, [PlannedRange("orders-eu", 0, 3, 4)]))
    assert [getattr(record, "value", None) for record in found] == [b'{"n": 3}']
