"""`kstream lag` on checkpoints written as a driver writes them, against librdkafka's mock cluster."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.planning.subscription import subscription
from kstream_kafka.source.stream_spec import StreamSpec
from kstream_kafka.tools.connector_tools import KafkaTools, merged, parse_properties

from kstream.batch import BatchOutcome, BatchPlan
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, read_log, take_epoch
from kstream.checkpoint.input_records import write_connections
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.cli.exit_codes import ReadingCode
from kstream.errors import KStreamError
from kstream.storage import LocalFileStore

ZERO = 1_760_000_000_000


def at(number: int) -> Time:
    return Time(ZERO + number * 1000)


def make(folder: Path, *streams: tuple[str, dict[str, Any] | None]) -> PlanLog:
    """A checkpoint of streams, each a topic and the parameters it was made with; None is a stream that could not store them."""
    store = LocalFileStore(folder)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    connections: dict[int, tuple[str, dict[str, Any]]] = {}
    for number, (topic, params) in enumerate(streams):
        recipe = None if params is None else StreamSpec(subscription([topic]), KafkaParams.parse(params)).recipe()
        if recipe is not None:
            connections[number] = (recipe.kind, recipe.args["params"])
    write_connections(store, connections)
    return PlanLog(store, take_epoch(store, ZERO))


def plan(log: PlanLog, number: int, *ranges: list[Any], stream: int = 0, **more: Any) -> None:
    log.write_plan(BatchPlan(at(number), log.epoch, "n", {stream: {"ranges": ranges, **more}}, {}, at(1)))


def lag(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["lag", str(folder), *options], env={"COLUMNS": "200"})


def rows_of(folder: Path, *options: str) -> list[dict[str, Any]]:
    result = lag(folder, "--json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)["partitions"]


def line(result: Result, code: ReadingCode = ReadingCode.UNREADABLE) -> str:
    """What it said on standard error, which is one line, with this exit code."""
    assert result.exit_code == code and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr.removesuffix("\n")


def test_lag_counts_from_the_lowest_unfinished_batch_and_unplanned_from_the_newest(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    for number in range(1, 5):
        plan(log, number, ["orders", 0, number * 10, number * 10 + 10], ["orders", 1, number, number + 1])
    log.complete(at(1), 1, BatchOutcome(ZERO))
    log.complete(at(3), 1, BatchOutcome(ZERO))
    zero, one = rows_of(tmp_path)
    assert zero == {
        "stream": 0,
        "topic": "orders",
        "partition": 0,
        "completed": 20,
        "next": 50,
        "log_end": 100,
        "unplanned": 50,
        "lag": 80,
        "note": "",
    }
    assert (one["completed"], one["next"], one["unplanned"], one["lag"]) == (2, 5, 95, 98)
    result = lag(tmp_path)
    assert "stream 0, orders: 178 records behind, 145 of them in no batch yet" in result.output
    assert [cell.strip() for cell in next(r for r in result.output.splitlines() if "orders/0" in r).split("│")[1:-2]] == [
        "0",
        "orders/0",
        "20",
        "50",
        "100",
        "50",
        "80",
    ]


def test_when_every_batch_is_done_nothing_is_behind_and_a_batch_given_up_holds_nothing_back(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    plan(log, 1, ["orders", 0, 0, 40])
    plan(log, 2, ["orders", 0, 40, 100])
    log.give_up(read_log(LocalFileStore(tmp_path)).plans[at(1)], ZERO, 4)
    log.complete(at(2), 1, BatchOutcome(ZERO))
    result = lag(tmp_path, "--max-lag", "0")
    assert result.exit_code == 0 and "stream 0, orders: no lag" in result.output
    assert "1 kept batch given up: the lag does not count these records" in result.output
    assert json.loads(lag(tmp_path, "--json").output)["given_up"] == [at(1).milliseconds]


def test_a_partition_found_later_is_held_back_by_its_own_first_unfinished_batch_only(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    plan(log, 1, ["orders", 0, 0, 40])
    plan(log, 2, ["orders", 0, 40, 60], ["orders", 1, 0, 30])
    log.complete(at(2), 1, BatchOutcome(ZERO))
    assert [(r["completed"], r["next"]) for r in rows_of(tmp_path)] == [(0, 60), (30, 30)]


def test_max_lag_is_a_sentence_and_exit_code_1_after_the_table(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    plan(log, 1, ["orders", 0, 0, 90], ["orders", 1, 0, 70])
    log.complete(at(1), 1, BatchOutcome(ZERO))
    assert lag(tmp_path, "--max-lag", "30").exit_code == 0
    over = lag(tmp_path, "--max-lag", "29")
    assert line(over, ReadingCode.BEHIND) == "kstream: orders/1 is 30 records behind, above --max-lag 29"
    assert "stream 0, orders: 40 records behind" in over.stdout
    both = lag(tmp_path, "--max-lag", "9", "--json")
    assert line(both, ReadingCode.BEHIND).endswith("above --max-lag 9, and 1 other partition too")
    assert json.loads(both.stdout)["topics"] == [{"stream": 0, "topic": "orders", "partitions": 2, "unplanned": 40, "lag": 40}]


def test_a_log_shorter_than_what_was_read_is_noted_and_no_lag_is_small_enough_for_it(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    plan(log, 1, ["orders", 0, 0, 150], ["orders", 1, 0, 95])
    log.complete(at(1), 1, BatchOutcome(ZERO))
    zero, one = rows_of(tmp_path)
    assert (zero["lag"], zero["note"], one["note"]) == (-50, "log is shorter than read", "")
    result = lag(tmp_path, "--max-lag", "1000")
    assert (
        line(result, ReadingCode.BEHIND)
        == "kstream: orders/0 ends at 100, before 150, the next offset to read: the topic was truncated or recreated"
    )
    assert "stream 0, orders: 5 records behind" in result.stdout


def test_a_start_that_the_log_has_not_reached_yet_is_no_shorter_log(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": bootstrap}))
    plan(log, 1, ["orders", 0, 150, 150], ahead=[["orders", 0]])
    assert rows_of(tmp_path)[0]["note"] == "waits for the log to reach its start"
    assert lag(tmp_path, "--max-lag", "0").exit_code == 0


def test_each_stream_is_asked_for_with_its_own_parameters_and_other_inputs_are_left_out(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("-", None), ("orders", {"bootstrap.servers": bootstrap}), ("clicks", {"metadata.broker.list": bootstrap}))
    inputs = {0: {"files": ["a"]}, 1: {"ranges": [["orders", 0, 0, 60]]}, 2: {"ranges": [["clicks", 0, 0, 5]]}}
    log.write_plan(BatchPlan(at(1), 1, "n", inputs, {}, at(1)))
    assert [(r["stream"], r["topic"], r["unplanned"]) for r in rows_of(tmp_path)] == [(1, "orders", 40), (2, "clicks", 15)]


def test_brokers_that_are_not_stored_are_asked_for_and_may_be_given(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": "away:9092", "sasl.password": "hidden", "sasl.username": "me"}))
    plan(log, 1, ["orders", 0, 0, 60])
    said = line(lag(tmp_path))
    assert said.startswith(f"kstream: {tmp_path} stores no Kafka parameters of stream 0 (") and "give --bootstrap HOST:PORT" in said
    assert rows_of(tmp_path, "--bootstrap", bootstrap)[0]["unplanned"] == 40
    (tmp_path / "connections").write_bytes(b"damaged")
    assert line(lag(tmp_path)) == said
    assert rows_of(tmp_path, "--param", f"metadata.broker.list={bootstrap}")[0]["unplanned"] == 40
    (tmp_path / "kafka.json").write_text(json.dumps({"bootstrap.servers": bootstrap, "sasl.password": "hidden"}))
    assert rows_of(tmp_path, "--params-file", str(tmp_path / "kafka.json"))[0]["unplanned"] == 40


def test_what_is_given_wins_over_a_file_and_that_over_what_is_stored(bootstrap: str, tmp_path: Path) -> None:
    log = make(tmp_path, ("orders", {"bootstrap.servers": "stored:1", "socket.timeout.ms": 5000}))
    plan(log, 1, ["orders", 0, 0, 60])
    file = tmp_path / "kafka.properties"
    file.write_text(f"# our brokers\nmetadata.broker.list = {bootstrap}\nrequest.timeout.ms: 4000\n")
    assert rows_of(tmp_path, "--params-file", str(file))[0]["unplanned"] == 40
    file.write_text("metadata.broker.list = file:1\n")
    assert rows_of(tmp_path, "--params-file", str(file), "--bootstrap", bootstrap)[0]["unplanned"] == 40
    assert merged({"socket.timeout.ms": 1, "group.id": "g"}, {"request.timeout.ms": 2}) == {"group.id": "g", "request.timeout.ms": 2}


def test_java_properties_are_read_with_continuations_comments_and_escapes() -> None:
    text = "a=1\nb : two words \n! no\n#no=1\n\nc\\:d=x\\=y\\\\\njaas = one \\\n   two;\\u00e9\\\\\\\n  three\nlone\n  key value\r\n"
    assert parse_properties(text) == {"a": "1", "b": "two words ", "c:d": "x=y\\", "jaas": "one two;é\\three", "lone": "", "key": "value"}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--param", "group.id"], "--param 'group.id' has no value: give KEY=VALUE"),
        (["--param", "hunter2"], "--param '(not shown: it may hold a secret)' has no value: give KEY=VALUE"),
        (["--param", "gruop.id=x"], "Kafka parameter 'gruop.id' is unknown to the Java client and to librdkafka. Did you mean 'group.id'?"),
        (["--params-file", "nowhere.json"], "nowhere.json cannot be read: No such file or directory"),
        (["--params-file", "list.json"], "list.json holds no JSON object of Kafka parameters"),
        (["--params-file", "broken.json"], "broken.json is not JSON: "),
    ],
)
def test_parameters_that_cannot_be_used_are_one_line(
    options: list[str], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("list.json").write_text("[]")
    Path("broken.json").write_text("{")
    plan(make(tmp_path / "c", ("orders", {"bootstrap.servers": "stored:1"})), 1, ["orders", 0, 0, 60])
    assert line(lag(tmp_path / "c", *options)).startswith(f"kstream: {said}")


def test_no_checkpoint_and_no_kafka_stream_are_one_line(tmp_path: Path) -> None:
    assert (
        line(lag(tmp_path))
        == f"kstream: there is no checkpoint in {tmp_path}: no stream has started there (looked for {tmp_path / 'meta'})"
    )
    make(tmp_path)
    assert line(lag(tmp_path)).startswith(f"kstream: {tmp_path} holds no ranges of a Kafka or log stream")


def test_an_unreachable_broker_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as reserved:  # bound and not listening: nobody answers there
        reserved.bind(("127.0.0.1", 0))
        params = {"bootstrap.servers": f"127.0.0.1:{reserved.getsockname()[1]}", "default.api.timeout.ms": 300}
        plan(make(tmp_path, ("orders", params)), 1, ["orders", 0, 0, 60])
        assert line(lag(tmp_path)).startswith(f"kstream: No Kafka broker of {params['bootstrap.servers']} answered within 300 ms.")


def test_an_error_of_the_connector_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object) -> None:
        raise KStreamError("Kafka knows no topic\n'orders'")

    monkeypatch.setattr(KafkaTools, "log_ends", gone)
    plan(make(tmp_path, ("orders", {"bootstrap.servers": "stored:1"})), 1, ["orders", 0, 0, 60])
    assert line(lag(tmp_path)) == "kstream: Kafka knows no topic 'orders'"


def test_asking_for_the_lag_loads_no_pyspark(bootstrap: str, tmp_path: Path) -> None:
    plan(make(tmp_path, ("orders", {"bootstrap.servers": bootstrap})), 1, ["orders", 0, 0, 60])
    program = (
        "import sys; from click.testing import CliRunner; from kstream.cli import main\n"
        f"result = CliRunner().invoke(main, ['lag', {str(tmp_path)!r}])\n"
        "loaded = [m for m in ('pyspark', 'py4j') if m in sys.modules]\n"
        "sys.exit(result.exit_code or ', '.join(loaded) or 0)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
