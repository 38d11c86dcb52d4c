"""`kstream offsets`: as a person types it, against a broker, and as the next driver finds it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from confluent_kafka import Producer
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.demo.embedded_broker import MockCluster
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.source.stream_spec import StreamSpec

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, history, read_log, take_epoch
from kstream.checkpoint.history import read_ledger
from kstream.checkpoint.input_records import KeptOffsets, write_connections, write_kept
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.errors import FencedError
from kstream.storage import LocalFileStore
from tests.cli.status_records import leave, living

ZERO = 1_700_000_000_000
RECORDS = 30
"""In each partition of topic orders."""


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    cluster = MockCluster()
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for i in range(2 * RECORDS):
        producer.produce("orders", f"{i}", partition=i % 2)
    assert producer.flush(30) == 0
    yield cluster.bootstrap
    del cluster


def at(number: int) -> Time:
    return Time(ZERO + number * 1000)


@pytest.fixture
def log(tmp_path: Path, bootstrap: str) -> PlanLog:
    """Three batches of 5 records a partition; the last is pending."""
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(at(0), Duration(1000)))
    recipe = StreamSpec(subscription(["orders"]), KafkaParams.parse({"bootstrap.servers": bootstrap})).recipe()
    assert recipe is not None
    write_connections(store, {0: (recipe.kind, recipe.args["params"])})
    log = PlanLog(store, take_epoch(store, ZERO))
    for number in (1, 2, 3):
        ranges = [["orders", p, 5 * number, 5 * number + 5] for p in (0, 1)]
        data = {0: {"ranges": ranges, "leader_epochs": [None] * 2, "from_epochs": [None] * 2, "topic_ids": None}}
        log.write_plan(BatchPlan(at(number), log.epoch, "n", data, {0: 10}, at(1)))
    log.complete(at(1), log.epoch, BatchOutcome(ZERO))
    log.complete(at(2), log.epoch, BatchOutcome(ZERO))
    return log


def offsets(*words: object) -> Result:
    return CliRunner().invoke(main, ["offsets", *map(str, words)], env={"COLUMNS": "200"})


def next_of(folder: Path) -> dict[str, int]:
    """What the next driver goes on from, as `show` tells it."""
    shown = json.loads(offsets("show", folder, "--json").output)
    return {f"{row['topic']}/{row['partition']}": row["next"] for row in shown["partitions"]}


def test_show_tells_where_each_partition_goes_on_and_how_far_it_is_done(log: PlanLog, tmp_path: Path) -> None:
    assert next_of(tmp_path) == {"orders/0": 20, "orders/1": 20}
    output = offsets("show", tmp_path).output
    row = [cell.strip() for cell in next(line for line in output.splitlines() if "orders/0" in line).split("│")[1:-1]]
    assert row == ["0", "orders/0", "15", "20", "5"]
    assert f"after batch {at(3).milliseconds} ms" in output and "1 pending batch" in output


def test_reset_moves_every_partition_and_what_is_pending_keeps_its_ranges(log: PlanLog, tmp_path: Path) -> None:
    result = offsets("reset", tmp_path, "--to", "earliest")
    assert result.exit_code == 0, result.output
    assert next_of(tmp_path) == {"orders/0": 0, "orders/1": 0}
    contents = read_log(LocalFileStore(tmp_path))
    assert contents.pending == [at(3)] and at(4) in contents.done
    assert contents.plans[at(3)].inputs[0]["ranges"] == [["orders", 0, 15, 20], ["orders", 1, 15, 20]]
    assert "-20" in result.output and "1 pending batch will run again" in result.output


def test_a_dry_run_shows_the_same_and_changes_nothing(log: PlanLog, tmp_path: Path) -> None:
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    result = offsets("reset", tmp_path, "--to", "latest", "--dry-run")
    assert result.exit_code == 0 and "+10" in result.output and "nothing was changed" in result.output
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_what_is_skipped_is_in_the_ledger(log: PlanLog, tmp_path: Path) -> None:
    offsets("reset", tmp_path, "--to", "latest")
    [entry] = read_ledger(LocalFileStore(tmp_path))
    assert [(e["partition"], e["from"], e["until"], e["cause"]) for e in entry.streams[0]] == [(0, 20, 30, "reset"), (1, 20, 30, "reset")]


def test_a_file_moves_just_the_partitions_it_names(log: PlanLog, tmp_path: Path) -> None:
    file = tmp_path / "to.json"
    file.write_text('{"orders": {"1": 3}}')
    assert offsets("reset", tmp_path, "--to", file).exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 20, "orders/1": 3}


def test_rewind_goes_back_to_the_beginning_of_a_batch_also_one_of_the_history(
    log: PlanLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert offsets("rewind", tmp_path, "--to", at(2).milliseconds).exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 10, "orders/1": 10}
    store = LocalFileStore(tmp_path)
    history.write_segment(store, 1, [history.read_past(store, read_log(store).plans[at(1)])])
    store.delete(f"plans/{at(1).milliseconds:015d}-000001")
    assert offsets("rewind", tmp_path, "--to", at(1).milliseconds).exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 5, "orders/1": 5}


def test_a_driver_that_runs_is_fenced_by_the_change_and_writes_nothing_that_counts(log: PlanLog, tmp_path: Path) -> None:
    assert offsets("reset", tmp_path, "--to", "earliest").exit_code == 0
    data = {0: {"ranges": [["orders", 0, 20, 30], ["orders", 1, 20, 30]]}}
    log.write_plan(BatchPlan(at(4), log.epoch, "late", data, {}, at(3)))
    log.write_plan(BatchPlan(at(5), log.epoch, "later", data, {}, at(3)))
    with pytest.raises(FencedError):
        log.probe()
    assert next_of(tmp_path) == {"orders/0": 0, "orders/1": 0}


def test_where_a_driver_seems_to_run_nothing_is_changed_unless_it_is_to_be_taken_over(log: PlanLog, tmp_path: Path) -> None:
    now = Time(round(time.time() * 1000))
    log.write_plan(BatchPlan(now, log.epoch, "n", {0: {"ranges": [["orders", 0, 20, 20], ["orders", 1, 20, 20]]}}, {}, at(3)))
    result = offsets("reset", tmp_path, "--to", "earliest")
    assert result.exit_code == 1 and "seems to run" in result.output and "--take-over" in result.output
    assert next_of(tmp_path) == {"orders/0": 20, "orders/1": 20}
    assert offsets("reset", tmp_path, "--to", "earliest", "--take-over").exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 0, "orders/1": 0}


def test_while_a_driver_lives_nothing_is_changed_even_if_its_last_plan_is_old(log: PlanLog, tmp_path: Path) -> None:
    leave(tmp_path, living())
    result = offsets("reset", tmp_path, "--to", "earliest")
    assert result.exit_code == 1 and "the driver of epoch 1 runs on" in result.output and "--take-over" in result.output
    assert "kstream stop" in result.output and next_of(tmp_path) == {"orders/0": 20, "orders/1": 20}
    assert log.probe() is None, "it is not fenced"
    assert offsets("reset", tmp_path, "--to", "earliest", "--take-over").exit_code == 0


def test_after_a_driver_has_ended_its_offsets_can_be_set_at_once(log: PlanLog, tmp_path: Path) -> None:
    now = Time(round(time.time() * 1000))
    log.write_plan(BatchPlan(now, log.epoch, "n", {0: {"ranges": [["orders", 0, 20, 20], ["orders", 1, 20, 20]]}}, {}, at(3)))
    leave(tmp_path, living(ended="gracefully"))
    assert offsets("reset", tmp_path, "--to", "earliest").exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 0, "orders/1": 0}


@pytest.mark.parametrize(
    "words, said",
    [
        (("reset", "--to", "sometime"), "Give 'earliest'"),
        (("reset", "--to", "earliest", "--topic", "other"), "no stream of this checkpoint reads 'other'"),
        (("reset", "--to", "earliest", "--stream", "7"), "it has the streams [0]"),
        (("reset", "--to", "gone.json"), "gone.json cannot be read"),
        (("rewind", "--to", "2099-01-01"), "holds no batch of stream 0 at or after"),
        (("rewind", "--to", "yesterday"), "is no time"),
    ],
)
def test_what_cannot_be_done_is_one_line_and_changes_nothing(log: PlanLog, tmp_path: Path, words: Any, said: str) -> None:
    command, *options = words
    result = offsets(command, tmp_path, *options)
    assert result.exit_code == 1 and said in result.output and result.output.count("\n") == 1
    assert LocalFileStore(tmp_path).list("") == ["connections", "epoch-1", "meta"]


def test_in_a_store_for_a_single_writer_changes_are_shown_and_refused(log: PlanLog, tmp_path: Path) -> None:
    reset = ("reset", f"local://{tmp_path}", "--to", "earliest", "--take-over")
    shown = offsets(*reset, "--dry-run")
    assert shown.exit_code == 0 and "dry run" in shown.output, shown.output
    refused = offsets(*reset)
    assert refused.exit_code == 1 and "cannot create a file only if it is absent" in refused.stderr
    assert take_epoch(LocalFileStore(tmp_path), ZERO) == log.epoch + 1, "no driver was fenced"


def test_in_a_store_that_only_hadoop_reaches_offsets_are_set(log: PlanLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kstream.spark.hadoop_file_store.open_hadoop", lambda _url: LocalFileStore(tmp_path))
    assert offsets("rewind", "hdfs://namenode/orders", "--to", at(2).milliseconds).exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 10, "orders/1": 10}


def test_where_nothing_would_change_no_driver_is_disturbed(log: PlanLog, tmp_path: Path) -> None:
    file = tmp_path / "to.json"
    file.write_text('{"orders": {"0": 20}}')
    assert "nothing to change" in offsets("reset", tmp_path, "--to", file).output
    log.probe()


# -- offsets of a topic that has left the list


@pytest.fixture
def away(log: PlanLog, tmp_path: Path) -> Path:
    """Topic returns has left the list of stream 0 at offset 7; orders/1 is in the record, too, and in plans since."""
    rows = [["orders", 1, 3, 3], ["returns", 0, 7, 7]]
    data = {"ranges": rows, "leader_epochs": [None] * 2, "from_epochs": [None] * 2, "topic_ids": None}
    write_kept(LocalFileStore(tmp_path), KeptOffsets(1, {0: None}, {0: data}))
    return tmp_path


def test_show_lists_the_offsets_of_a_topic_that_has_left_the_list(away: Path) -> None:
    shown = json.loads(offsets("show", away, "--json").output)
    assert shown["kept"] == [{"stream": 0, "topic": "returns", "partition": 0, "next": 7}]
    assert {row["topic"] for row in shown["partitions"]} == {"orders"}
    output = offsets("show", away).output
    assert "kept offsets, of topics that are not in the list" in output and "returns/0" in output


@pytest.mark.parametrize("words", [("reset", "--to", "earliest"), ("rewind", "--to", str(ZERO))])
def test_kept_offsets_are_not_set_and_a_command_that_names_them_is_refused(away: Path, words: tuple[str, ...]) -> None:
    command, *options = words
    refused = offsets(command, away, *options, "--topic", "returns")
    assert refused.exit_code == 1 and "the stream does not read returns/0 (kept offset 7) now" in refused.output
    changed = offsets(command, away, *options)
    assert changed.exit_code == 0, changed.output
    assert "the kept offset of returns/0 (stream 0, at 7) stays" in changed.output
    contents = read_log(LocalFileStore(away))
    assert contents.kept_offsets is not None and contents.kept_offsets.epoch == 1  # neither the new plan nor its epoch touched the record
    assert json.loads(offsets("show", away, "--json").output)["kept"][0]["next"] == 7


def test_a_wrong_option_is_called_an_option(log: PlanLog, tmp_path: Path) -> None:
    result = offsets("reset", tmp_path, "--to", "banana")
    assert result.exit_code == 1 and "Option '--to' is 'banana'" in result.output and "Kafka parameter" not in result.output


@pytest.fixture
def query(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of Structured Streaming: batch 7 is committed at 12 and 17, batch 8 has begun and goes to 22 and 27."""
    folder = tmp_path_factory.mktemp("query")
    for name, text in {
        "metadata": '{"id":"6e7382d8-5b02-4b29-9878-ffb86be14819"}',
        "offsets/7": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}\n{"orders":{"1":17,"0":12}}',
        "offsets/8": 'v1\n{"batchWatermarkMs":0,"batchTimestampMs":2,"conf":{}}\n{"orders":{"1":27,"0":22}}',
        "commits/7": 'v1\n{"nextBatchWatermarkMs":0}',
    }.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_import_sets_a_stream_to_the_offsets_after_the_last_committed_batch(log: PlanLog, tmp_path: Path, query: Path) -> None:
    dry = offsets("import", tmp_path, "--from", query, "--dry-run")
    assert dry.exit_code == 0 and "nothing was changed" in dry.output and next_of(tmp_path) == {"orders/0": 20, "orders/1": 20}
    done = offsets("import", tmp_path, "--from", query)
    assert done.exit_code == 0, done.output
    assert next_of(tmp_path) == {"orders/0": 12, "orders/1": 17}
    assert "batch 7 is the last one" in done.stdout and "batch 8 has begun" in done.stdout and "Its records are read again" in done.stdout
    assert offsets("import", tmp_path, "--from", query, "--uncommitted", "skip").exit_code == 0
    assert next_of(tmp_path) == {"orders/0": 22, "orders/1": 27}


def test_import_without_a_checkpoint_prints_the_offsets_or_writes_them_for_reset(log: PlanLog, tmp_path: Path, query: Path) -> None:
    printed = offsets("import", "--from", query)
    assert printed.exit_code == 0 and json.loads(printed.stdout) == {"orders": {"0": 12, "1": 17}} and "batch 8" in printed.stderr
    file = tmp_path / "offsets.json"
    assert offsets("import", "--from", query, "--out", file).stderr == ""
    assert offsets("reset", tmp_path, "--to", file).exit_code == 0 and next_of(tmp_path) == {"orders/0": 12, "orders/1": 17}
    again = offsets("import", "--from", query, "--out", file)
    assert again.exit_code == 1 and again.stderr == f"kstream: {file} cannot be written: File exists\n"


def test_import_writes_no_file_in_a_dry_run_and_leaves_none_after_a_refusal(log: PlanLog, tmp_path: Path, query: Path) -> None:
    file = tmp_path / "offsets.json"
    dry = offsets("import", tmp_path, "--from", query, "--out", file, "--dry-run")
    assert dry.exit_code == 0 and "nothing was changed" in dry.output and not file.exists()
    refused = offsets("import", tmp_path, "--from", query, "--out", file, "--stream", 7)
    assert refused.exit_code == 1 and "it has the streams [0]" in refused.stderr and not file.exists()
    done = offsets("import", tmp_path, "--from", query, "--out", file)
    assert done.exit_code == 0 and json.loads(file.read_text()) == {"orders": {"0": 12, "1": 17}}
    assert next_of(tmp_path) == {"orders/0": 12, "orders/1": 17}
    file.write_text("of somebody else")
    taken = offsets("import", tmp_path, "--from", query, "--out", file, "--uncommitted", "skip")
    assert taken.exit_code == 1 and "File exists" in taken.stderr and next_of(tmp_path) == {"orders/0": 12, "orders/1": 17}
    assert file.read_text() == "of somebody else"


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("--dry-run",), "--dry-run needs PATH"),
        (("--stream", 0, "--take-over"), "--stream, --take-over need PATH"),
        (("--param", "a=b"), "--param needs PATH"),
    ],
)
def test_import_without_a_checkpoint_refuses_options_that_only_concern_one(
    tmp_path: Path, query: Path, words: tuple[object, ...], named: str
) -> None:
    file = tmp_path / "offsets.json"
    refused = offsets("import", "--from", query, "--out", file, *words)
    assert refused.exit_code == 2 and named in refused.stderr and not file.exists()


def test_import_refuses_what_it_cannot_carry_over_in_one_line_and_changes_nothing(log: PlanLog, tmp_path: Path, query: Path) -> None:
    for words, said in (
        (("--from", tmp_path), "there is no checkpoint of Structured Streaming in"),
        (("--from", query, "--source", "1"), "has no source '1'"),
        (("--from", query, "--topic", "clicks"), "does not read 'clicks'; it reads orders"),
    ):
        refused = offsets("import", tmp_path, *words)
        assert refused.exit_code == 1 and said in refused.stderr and refused.stderr.count("\n") == 1
    (query / "offsets/7").write_text('v1\n{}\n{"clicks":{"0":1}}')
    assert "no stream of this checkpoint reads 'clicks'" in offsets("import", tmp_path, "--from", query).stderr
    (query / "offsets/7").write_text('v1\n{}\n{"orders":{"0":1000}}')
    assert "outside of their logs" in offsets("import", tmp_path, "--from", query).stderr
    assert "there is no checkpoint in" in offsets("import", query, "--from", query).stderr
    assert next_of(tmp_path) == {"orders/0": 20, "orders/1": 20}
