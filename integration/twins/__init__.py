"""Twins: one program run under pyspark.streaming and under kstream, with nothing changed but its import lines.

A program is a file written for pyspark.streaming, with a function `program(run)`; `run` is what it needs besides (`side.Run`): a
SparkContext, a directory, the clock, and a place for what it saw. Each side is a process of its own: pyspark's runs on the classes of the
JVM's Spark Streaming and Spark's ManualClock, kstream's on neither.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).parent / "programs"
SIDES = ("pyspark", "kstream")
_IMPORT = re.compile(r"^((?:from|import) )pyspark\.streaming(?:\.\w+)?\b", re.MULTILINE)
_PATIENCE_S = 1500.0


def text_for(side: str, source: str) -> str:
    """The program as it runs on a side: its import lines are all that differs."""
    return source if side == "pyspark" else _IMPORT.sub(r"\1kstream", source)


@dataclass
class Seen:
    """What a program saw on one side. `batches`: output → batch time in ms → what each attempt at the batch recorded."""

    directory: Path
    facts: dict[str, Any] = field(default_factory=dict[str, Any])
    batches: dict[str, dict[int, list[Any]]] = field(default_factory=dict[str, dict[int, list[Any]]])

    def of(self, output: str) -> dict[int, Any]:
        """Batch time → what the output recorded; the same at every attempt, if there were several."""
        found: dict[int, Any] = {}
        for when, attempts in sorted(self.batches[output].items()):
            assert all(again == attempts[0] for again in attempts), f"{output}: {len(attempts)} contents for batch {when}: {attempts}"
            found[when] = attempts[0]
        return found


@dataclass
class Twins:
    """Both sides of a program that has run."""

    pyspark: Seen
    kstream: Seen

    def outputs(self) -> set[str]:
        return {*self.pyspark.batches, *self.kstream.batches}

    def facts(self) -> set[str]:
        return {*self.pyspark.facts, *self.kstream.facts}


def run_twins(directory: Path, *programs: str, lives: int = 1, parallelism: int = 2) -> dict[str, Twins]:
    """Runs programs of PROGRAMS, one after the other, in one process a side, both sides at the same time. Program → what was seen.

    `lives`: so many processes, one after the other, each given the same directories. `parallelism`: partitions where a program does not
    say; fewer are quicker. AssertionError, with the side's log, if a side ends badly.
    """
    for life in range(1, lives + 1):
        running = {side: _start(side, programs, directory / side, life, parallelism) for side in SIDES}
        try:
            _wait(running, directory)
        finally:
            for process in running.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
    return {program: Twins(*(_read(directory / side / program) for side in SIDES)) for program in programs}


def _start(side: str, programs: Sequence[str], directory: Path, life: int, parallelism: int) -> subprocess.Popen[bytes]:
    paths: list[str] = []
    for program in programs:
        path = directory / program / f"{program}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_for(side, (PROGRAMS / f"{program}.py").read_text()))
        paths.append(str(path))
    command = [sys.executable, "-m", "integration.twins", side, str(life), str(parallelism), *paths]
    environment = {**os.environ, "SPARK_LOCAL_DIRS": str(directory / "spark")}
    with open(directory / "log", "ab") as log:
        return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def _wait(running: Mapping[str, subprocess.Popen[bytes]], directory: Path) -> None:
    end = time.monotonic() + _PATIENCE_S
    for side, process in running.items():
        try:
            code = process.wait(max(1.0, end - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise AssertionError(f"{side} was not done after {_PATIENCE_S} s:\n{_tail(directory / side / 'log')}") from None
        assert code == 0, f"{side} ended with {code}:\n{_tail(directory / side / 'log')}"


def _tail(log: Path) -> str:
    return log.read_text(errors="replace")[-6000:]


def _read(directory: Path) -> Seen:
    seen = Seen(directory)
    for entry in _lines(directory / "seen.jsonl"):
        if "time" in entry:
            seen.batches.setdefault(entry["name"], {}).setdefault(entry["time"], []).append(entry["value"])
        else:
            seen.facts[entry["name"]] = entry["value"]
    return seen


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    if path.exists():
        yield from map(json.loads, path.read_text().splitlines())
