"""A record with a right checksum and wrong contents is exit code 3 of a command, and an end of the driver that no restart follows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kstream.checkpoint import format, read_log
from kstream.cli import main
from kstream.cli.driver import end_of
from kstream.cli.exit_codes import ReadingCode, RunCode
from kstream.errors import CorruptRecordError
from kstream.storage import LocalFileStore
from tests.checkpoint.written_records import KINDS, changed, written

STATUS, SHOW, HISTORY, LEDGER, LAG = ("status",), ("checkpoint", "show"), ("history",), ("ledger", "--all"), ("lag",)
OFFSETS = ("offsets", "show")
WRONG: list[tuple[str, tuple[Any, ...], object, tuple[tuple[str, ...], ...]]] = [
    ("plan", ("inputs",), [[0, {}]], (SHOW, HISTORY, LEDGER, LAG)),
    ("plan", ("names",), {"orders": "orders"}, (SHOW, HISTORY, LEDGER, LAG)),
    ("meta", ("interval",), 0, (SHOW, HISTORY, LEDGER, LAG)),
    ("status", ("interval",), 0, (STATUS,)),
    ("status", ("recent",), [7], (STATUS,)),
    ("done", ("counts",), [[7]], (HISTORY,)),
    ("lost", ("lost",), {"0": ["gone"]}, (LEDGER,)),
    ("given-up", ("inputs", "0"), "text", (LEDGER,)),
    ("epoch", ("at",), 10**18, (SHOW,)),
]


def checkpoint(path: Path, kind: str, data: bytes | None = None, place: tuple[Any, ...] = (), value: object = None) -> str:
    """Make a checkpoint with a record of each kind, one of them with other bytes or another value. Return the path of that record."""
    store = LocalFileStore(path)
    for known in KINDS:
        source, fields = written(known)
        wrong = format.encode(kind, changed(fields, place, value)) if known.kind == kind and place else None
        if known.kind == kind and data is not None:
            wrong = data
        store.replace(known.name, source.read(known.name) if wrong is None else wrong)
    return store.path(next(known.name for known in KINDS if known.kind == kind))


def run(path: Path, command: tuple[str, ...]) -> Any:
    return CliRunner().invoke(main, [*command, str(path)])


def test_the_commands_read_the_checkpoint_of_these_tests(tmp_path: Path) -> None:
    checkpoint(tmp_path, "plan")
    assert [run(tmp_path, command).exit_code for command in (SHOW, HISTORY, LEDGER)] == [0, 0, 0]


@pytest.mark.parametrize(("kind", "place", "value", "commands"), WRONG, ids=lambda value: str(value)[:40].replace("/", "_"))
def test_wrong_contents_are_exit_code_3_and_one_line_that_names_the_record(
    tmp_path: Path, kind: str, place: tuple[Any, ...], value: object, commands: tuple[tuple[str, ...], ...]
) -> None:
    record = checkpoint(tmp_path, kind, place=place, value=value)
    for command in commands:
        found = run(tmp_path, command)
        assert found.exit_code == ReadingCode.UNREADABLE, command
        assert len(found.stderr.splitlines()) == 1 and record in found.stderr


@pytest.mark.parametrize(("kind", "commands"), [("plan", (SHOW, HISTORY, LEDGER, LAG)), ("status", (STATUS,))])
def test_json_that_is_nested_too_deep_is_exit_code_3_and_one_line(tmp_path: Path, kind: str, commands: tuple[tuple[str, ...], ...]) -> None:
    record = checkpoint(tmp_path, kind, b"[" * 100_000)
    for command in commands:
        found = run(tmp_path, command)
        assert found.exit_code == ReadingCode.UNREADABLE, command
        assert len(found.stderr.splitlines()) == 1 and record in found.stderr


@pytest.mark.parametrize("ranges", [[["orders", "text", 5, 9]], [["orders", 0, None, 9]], [[["orders"], 0, 5, 9]], {"orders": 0}])
def test_plan_data_that_no_connector_reads_is_shown_as_it_is(tmp_path: Path, ranges: object) -> None:
    """The form of plan data is that of the connector. A command that shows it is no less useful if it is wrong."""
    for kind, place in (("plan", ("inputs", "0", "ranges")), ("given-up", ("inputs", "0", "ranges"))):
        checkpoint(tmp_path / kind, kind, place=place, value=ranges)
        assert [run(tmp_path / kind, command).exit_code for command in (SHOW, HISTORY, LEDGER, OFFSETS)] == [0, 0, 0, 0]
    assert json.dumps({"ranges": ranges}) in run(tmp_path / "plan", SHOW).output.replace("\n", "")


def test_a_loss_of_an_input_without_offsets_is_a_row_of_the_ledger(tmp_path: Path) -> None:
    checkpoint(tmp_path, "lost", place=("lost", "0", 0), value={"from": 3})
    assert run(tmp_path, LEDGER).exit_code == 0


def test_a_start_that_such_a_record_refuses_is_not_tried_again_by_the_supervisor(tmp_path: Path) -> None:
    record = checkpoint(tmp_path, "plan", place=("records",), value=[])
    with pytest.raises(CorruptRecordError) as caught:
        read_log(LocalFileStore(tmp_path))
    end = end_of(caught.value, started=False, jvm_ended=False)
    assert end.code is RunCode.REFUSED and end.code.final
    assert record in end.reason and "\n" not in end.reason and end.traceback == ""
