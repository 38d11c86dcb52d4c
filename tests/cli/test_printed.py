"""Nothing that a command prints moves a cursor, names a window or turns the text round, whatever a checkpoint says."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from kstream.batch import BatchOutcome, BatchPlan, InputOutcome
from kstream.batch_time import Duration, Time
from kstream.checkpoint import Meta, PlanLog, take_epoch
from kstream.checkpoint.driver_status import LastError
from kstream.checkpoint.reader import write_meta
from kstream.cli import main
from kstream.storage import LocalFileStore
from tests.cli.status_records import leave, living

ROOT = Path(__file__).parent.parent.parent
HOSTILE = "\x1b]0;PWNED\x07\x1b[2J\r\x7f\x9b31m\u202e"
SHOWN = r"\x1b]0;PWNED\x07\x1b[2J\r\x7f\x9b31m\u202e"
ZERO = 1_700_000_000_000


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    """All that others write has what a terminal obeys: names of topics, details of losses, reasons, the host and the error of a driver."""
    store = LocalFileStore(tmp_path)
    write_meta(store, Meta(Time(ZERO), Duration(1000)))
    log = PlanLog(store, take_epoch(store, ZERO))
    for number in (1, 2):
        ranges = [[f"orders{HOSTILE}", 0, 5 * number, 5 * number + 5]]
        data = {0: {"ranges": ranges, "leader_epochs": [None], "from_epochs": [None], "topic_ids": None}}
        log.write_plan(BatchPlan(Time(ZERO + 1000 * number), log.epoch, HOSTILE, data, {0: 5}, Time(ZERO + 1000)))
    lost = {"topic": f"orders{HOSTILE}", "partition": 0, "from": 5, "until": 8, "cause": HOSTILE, "detail": HOSTILE}
    log.complete(Time(ZERO + 1000), log.epoch, BatchOutcome(ZERO, {0: InputOutcome([3], [lost])}))
    error = LastError(ZERO, f"ValueError: {HOSTILE}", Time(ZERO + 1000), HOSTILE)
    leave(tmp_path, replace(living(), application=HOSTILE, host=HOSTILE, last_error=error, state_error=HOSTILE))
    return tmp_path


COMMANDS: dict[str, list[str]] = {
    "status": ["status"],
    "offsets show": ["offsets", "show"],
    "ledger": ["ledger", "--all"],
    "checkpoint show": ["checkpoint", "show"],
    "history": ["history"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_what_a_checkpoint_says_reaches_a_terminal_without_control_characters(checkpoint: Path, command: str) -> None:
    shown = CliRunner().invoke(main, [*COMMANDS[command], str(checkpoint)], env={"COLUMNS": "400"})
    assert shown.output and shown.output.replace("\n", "").isprintable()
    assert SHOWN in shown.output or command == "history"


@pytest.mark.parametrize("folder", ["kstream/cli", "connectors/kstream_kafka/tools", "connectors/kstream_kafka/demo"])
def test_commands_print_by_the_function_that_prints_no_control_character(folder: str) -> None:
    others = [path for path in Path(ROOT, folder).glob("*.py") if path.name != "terminal.py"]
    raw = ("click.echo(", "click.secho(", "print_exc(")
    assert others and [path for path in others if any(call in path.read_text(encoding="utf-8") for call in raw)] == []
