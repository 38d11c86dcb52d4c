"""The ten minutes of README.md, and docs/quickstart.md: the commands are typed one after the other, and what they show is compared.

The test has no command of its own: it reads the page. The environment has the wheel and an empty home directory. The Kafka of the README is
that of its own first step; the other page has a real broker.
"""

from __future__ import annotations

import ast
import json
import os
import queue
import re
import signal
import subprocess
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import pytest

from integration.clean_venv import build_wheel, install, make_venv
from integration.kafka_node import free_ports

ROOT = Path(__file__).resolve().parent.parent
PAGES = {"README.md": ("\n## Ten minutes: ", "\n## "), "docs/quickstart.md": ("\n## 1. ", "\n## 7. ")}
"""What is typed of a page: from where to where."""
ADDRESS = "127.0.0.1:9092"
DONE_BY_FIXTURES = ("make install && . .venv/bin/activate",)
"""What is installed before: the wheel in a clean environment."""
BROKER = "kstream broker "
"""Starts the Kafka of the page; where no page has it, that of the suite is used."""
TOTALS, TAIL, KILL, RUN = "python -c ", "kstream tail ", "kill -9 ", "kstream run "
SHOW, STATUS, STOP, COUNTS = "kstream checkpoint show ", "kstream status ", "kstream stop ", "cat counts.txt"
PRODUCE = "kstream produce "
"""The commands that need more than their exit code, by how they begin."""
PATIENCE_S = 120.0
AGAIN = "it is started again in "
"""What the log says of a driver that has died."""
STEP = re.compile(r"(?:(?:Save this as|Add this to) `(\S+)`:\n\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """A block of the section. `language` is sh, python, or empty for an output. `file` is where a Python block is saved or added."""

    file: str
    language: str
    text: str

    @property
    def commands(self) -> list[str]:
        """The commands of the block, comments left out; one with a here-document is several lines."""
        commands: list[str] = []
        lines = iter(self.text.splitlines())
        for line in lines:
            here = re.search(r"<<'(\w+)'", line)
            if here is None:
                commands.append(line.partition("  #")[0].rstrip())
                continue
            body = [line]
            for inner in lines:
                body.append(inner)
                if inner == here[1]:
                    break
            commands.append("\n".join(body))
        return commands


def steps(page: str, place: str = ADDRESS) -> list[Step]:
    """The blocks of a page's section in their order, with the broker's address in place of the page's."""
    begin, end = PAGES[page]
    text = (ROOT / page).read_text().replace(ADDRESS, place)
    text = re.sub(f"^{BROKER}", f"{BROKER}--port {place.rpartition(':')[2]} ", text, flags=re.MULTILINE)
    section = text.partition(begin)[2].partition(end)[0]
    return [Step(*found) for found in STEP.findall(section)]


@dataclass(frozen=True)
class Typed:
    """A command that was typed, and what came of it."""

    command: str
    output: str
    code: int
    seconds: float


class Terminal:
    """A shell in which commands are typed one after the other."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"], cwd=folder, env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self.typed: list[Typed] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._shell.stdout is not None
        for line in self._shell.stdout:
            self._lines.put(line)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.killpg(self._shell.pid, signal.SIGKILL)  # a job that still runs, too; its driver dies with it
        self._shell.wait()

    def type(self, command: str) -> Typed:
        """Types a command and waits for its end."""
        assert self._shell.stdin is not None
        marker, begun, seen = uuid.uuid4().hex, time.monotonic(), list[str]()
        self._shell.stdin.write(f"{command}\necho {marker} $?\n")
        self._shell.stdin.flush()
        while True:
            try:
                line = self._lines.get(timeout=PATIENCE_S)
            except queue.Empty:
                raise AssertionError(f"{command} has not ended:\n{''.join(seen)}") from None
            before, found, code = line.partition(marker)
            seen.append(before)
            if found:
                typed = Typed(command, "".join(seen), int(code), time.monotonic() - begun)
                self.typed.append(typed)
                return typed

    def type_until(self, command: str, shows: str) -> None:
        """Types a command again and again, as one who waits does, until it shows what the pattern says."""
        deadline = time.monotonic() + PATIENCE_S
        while not re.search(shows, self.type(command).output):
            assert time.monotonic() < deadline, f"{command} does not show {shows}:\n{self.story()}"
            time.sleep(0.5)

    def story(self) -> str:
        """Every command with its seconds, and the output of the last one; retyped ones once."""
        seconds: dict[str, float] = {}
        for typed in self.typed:
            first = typed.command.splitlines()[0]
            seconds[first] = seconds.get(first, 0) + typed.seconds
        lines = [f"{spent:6.1f} s  {command}" for command, spent in seconds.items()]
        return "\n".join([*lines, self.typed[-1].output if self.typed else ""])


@dataclass(frozen=True)
class Action:
    """A command to type, and the output that the page shows after its block (empty if it shows none); or a block to add to a file."""

    command: str = ""
    shown: str = ""
    file: str = ""
    text: str = ""


def actions(read: list[Step]) -> list[Action]:
    """What the page tells to do, in its order."""
    done: list[Action] = []
    for step, after in zip(read, [*read[1:], Step("", "end", "")], strict=True):
        if step.language == "sh":
            shown = "" if after.language else after.text.strip()
            done += [Action(command, shown) for command in step.commands if command not in DONE_BY_FIXTURES]
        elif step.file:
            done.append(Action(file=step.file, text=step.text))
    return done


def do(terminal: Terminal, action: Action, folder: Path) -> None:
    command = action.command
    if action.file:
        with open(folder / action.file, "a") as file:
            file.write(action.text)
    elif command.startswith(TOTALS):
        terminal.type_until(command, re.escape(action.shown))
    elif command == COUNTS:
        terminal.type_until(command, r"Time: .*\n-+\n")  # the first window
    elif command.startswith(STATUS):
        terminal.type_until(command, r"well: ")  # a job that was killed has missed batches, and is `behind` until it has made up for them
    elif command.startswith(TAIL):
        records = (folder / "orders.jsonl").read_text().splitlines()
        output = terminal.type(command).output
        assert all(record in output for record in records), terminal.story()
    else:
        code = terminal.type(command).code
        assert code == 0, f"{command} ended with {code}:\n{terminal.story()}"


def kill_once_more(terminal: Terminal, commands: list[str]) -> None:
    """The section's own commands, without new records: the job is killed and run again, and the totals are those of before."""
    kill, run, totals, show = (last(commands, start) for start in (KILL, RUN, TOTALS, SHOW))
    before = terminal.type(totals).output
    assert terminal.type(kill).code == 0
    assert terminal.type(run).code == 0
    terminal.type_until(show, r"│ 3 +│ done")  # a batch of the third driver
    assert before.splitlines()[-1] == terminal.type(totals).output.splitlines()[-1]


def die_after_the_write(terminal: Terminal, commands: list[str], folder: Path) -> None:
    """After the page's end: one driver after the other dies between its write of a batch and the record of it. The rows are there once."""
    produce, run, kill, totals, show = (last(commands, start) for start in (PRODUCE, RUN, KILL, TOTALS, SHOW))
    expected = Counter(ast.literal_eval(terminal.type(totals).output.splitlines()[-1]))
    for order in map(json.loads, (folder / "orders.jsonl").read_text().splitlines()):
        expected[order["customer"]] += order["amount"]
    for command in ("export KSTREAM_CRASH_AT=job-done:1", produce, run):
        assert terminal.type(command).code == 0
    deaths = (folder / "job.log").read_text().count(AGAIN)
    terminal.type_until("cat job.log", rf"(?s)({AGAIN}.*){{{deaths + 2}}}")
    for command in (kill, "unset KSTREAM_CRASH_AT"):
        assert terminal.type(command).code == 0
    epochs = len(list((folder / "checkpoint").glob("epoch-*")))
    assert terminal.type(run).code == 0
    terminal.type_until(show, rf"│ {epochs + 1} +│ done")
    assert ast.literal_eval(terminal.type(totals).output.splitlines()[-1]) == expected


def last(commands: list[str], start: str) -> str:
    """The last of the commands that begin so."""
    return next(command for command in reversed(commands) if command.startswith(start))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a newcomer: the wheel in a clean environment, and an empty home directory."""
    folder = tmp_path_factory.mktemp("newcomer")
    venv, home = make_venv(folder / "venv"), folder / "home"
    install(venv, build_wheel(folder / "dist"))
    home.mkdir()
    given = {name: os.environ[name] for name in ("JAVA_HOME",) if name in os.environ}
    path = os.pathsep.join([str(venv / "bin"), os.environ["PATH"]])
    return {**given, "HOME": str(home), "PATH": path, "LANG": "C.UTF-8", "COLUMNS": "160"}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("page", PAGES)
def test_the_commands_of_the_page_lead_to_the_totals_that_it_shows_and_a_kill_changes_none(
    page: str, environment: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str], request: pytest.FixtureRequest
) -> None:
    (folder := tmp_path / "orders").mkdir()
    starts_one = any(action.command.startswith(BROKER) for action in actions(steps(page)))
    place = f"127.0.0.1:{free_ports(1)[0]}" if starts_one else request.getfixturevalue("own_kafka").bootstrap
    told = actions(steps(page, place))
    looking = next(i for i, action in enumerate(told) if action.command.startswith(STATUS))
    with Terminal(folder, environment) as terminal:
        begun = time.monotonic()
        for action in told[:looking]:
            do(terminal, action, folder)
        seconds = time.monotonic() - begun
        kill_once_more(terminal, [action.command for action in told])
        for action in told[looking:]:
            do(terminal, action, folder)
        if told[-1].command.startswith(STOP):
            die_after_the_write(terminal, [action.command for action in told], folder)
        with capsys.disabled():
            print(f"\n{page}: {seconds:.0f} s to the totals after the kill\n{terminal.story()}")
    assert seconds < 600


def test_the_pages_are_read_as_a_person_reads_them() -> None:
    """Else the test above could leave something out."""
    for page in PAGES:
        told = actions(steps(page))
        for start in (TOTALS, TAIL, KILL, RUN, SHOW, STATUS, STOP, "cat > orders.jsonl", PRODUCE):
            assert any(action.command.startswith(start) for action in told), f"{page}: {start}"
        assert {action.file for action in told} == {"", "job.py"}
        assert all(action.shown.startswith("{") for action in told if action.command.startswith(TOTALS))
        assert sum(ADDRESS in (action.command + action.text) for action in told) >= 4  # topic, tail, job, kill
    typed = {command for step in steps("README.md") if step.language == "sh" for command in step.commands}
    assert {*DONE_BY_FIXTURES, f"{BROKER}--port 9092 > broker.log &"} <= typed
