"""A job with records that fail, and commands that look at them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from integration.driver_process import running
from integration.kafka_broker import KafkaBroker
from kstream import crash_point
from kstream.checkpoint import read_log
from kstream.checkpoint.names import SKIPPED
from kstream.storage import open_store

ROOT = Path(__file__).resolve().parent.parent


PATH = os.pathsep.join([str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")])


PARTITIONS = 2


EACH = 10
"""Good records of a round, in each partition; the poison record lies in their middle."""


class World:
    """A topic, a checkpoint, and the drivers and commands that use them."""

    def __init__(self, kafka: KafkaBroker, topic: str, directory: Path, environment: Mapping[str, str] | None = None) -> None:
        self.kafka, self.topic, self.directory = kafka, topic, directory
        self.environment = environment or {}
        self.checkpoint = directory / "checkpoint"
        self.good: list[int] = []
        self.poison: list[str] = []
        self.ends = [0] * PARTITIONS
        for folder in ("sink", "windows", "files"):
            (directory / folder).mkdir()

    def command(self, *words: object, stdout: int = subprocess.PIPE) -> subprocess.Popen[str]:
        line = [sys.executable, "-m", "kstream.cli", *map(str, words)]
        pipes = {"stdout": stdout, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(line, env={**os.environ, "PYTHONPATH": PATH}, stdin=subprocess.DEVNULL, **pipes)  # pyright: ignore

    def kstream(self, *words: object) -> tuple[int, str, str]:
        process = self.command(*words)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    @contextmanager
    def driver(self, crash_at: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """A driver; killed at the end of the block if it lives."""
        words = [sys.executable, "-m", "integration.skip_job", self.kafka.bootstrap, self.topic, str(self.directory)]
        environment = {**os.environ, "PYTHONPATH": PATH, **self.environment, **({crash_point.VARIABLE: crash_at} if crash_at else {})}
        with open(self.directory / "driver.log", "ab") as log:
            driver = subprocess.Popen(words, env=environment, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        with running(driver):
            yield driver

    def produce(self, number: int) -> str:
        """A round of records with one that is no number; its place."""
        records: list[tuple[str, str, int]] = []
        bad, place = number % PARTITIONS, ""
        for partition in range(PARTITIONS):
            for i in range(EACH):
                if partition == bad and i == EACH // 2:
                    place = f"{self.topic}-{partition}@{self.ends[partition]}"
                    records.append(("poison", f'{{"n": {number}\x1b[2J', partition))
                    self.ends[partition] += 1
                self.good.append(len(self.good))
                records.append(("good", str(self.good[-1]), partition))
                self.ends[partition] += 1
        self.kafka.produce(self.topic, records)
        self.poison.append(place)
        return place

    def is_pending(self, place: str) -> bool:
        """Whether the record lies in a batch that is planned and has not ended."""
        if not self.checkpoint.exists():
            return False
        contents = read_log(open_store(str(self.checkpoint)))
        topic, _, offset = place.rpartition("@")
        ranges = [r for at in contents.pending for r in contents.plans[at].inputs[0]["ranges"]]
        return any(f"{t}-{p}" == topic and a <= int(offset) < b for t, p, a, b in ranges)

    def wait(self, what: Callable[[], Any], why: str, seconds: float = 120) -> None:
        end = time.monotonic() + seconds
        while not what():
            if time.monotonic() > end:
                raise AssertionError(f"{why} did not happen:\n{(self.directory / 'driver.log').read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)

    def skip(self, place: str) -> None:
        code, out, err = self.kstream("skip", self.checkpoint, place, "--reason", "no number")
        assert (code, err) == (0, "") and place in out

    def skip_and_die(self, place: str) -> None:
        """Ask as `skip`, and kill the command between its request and its words about it."""
        known = set(open_store(str(self.checkpoint)).list(SKIPPED))
        with full_pipe() as pipe:  # the command blocks where it says what it has done
            process = self.command("skip", self.checkpoint, place, "--reason", "no number", stdout=pipe)
            try:
                self.wait(lambda: set(open_store(str(self.checkpoint)).list(SKIPPED)) - known, "the request")
            finally:
                process.kill()
                process.communicate()
        assert process.returncode == -signal.SIGKILL

    def ledger(self) -> dict[str, str]:
        """Place of each record that was skipped → what became of it."""
        code, out, err = self.kstream("ledger", self.checkpoint, "--json", "--all")
        assert code == 0, err
        return {f"{row['topic']}-{row['partition']}@{row['from']}": row["skip"] for row in json.loads(out)["lost"]}

    def files(self, folder: str) -> dict[int, list[int]]:
        return {int(file.stem): json.loads(file.read_text()) for file in (self.directory / folder).glob("[0-9]*.json")}


@contextmanager
def full_pipe() -> Iterator[int]:
    """The end of a pipe that takes no byte, because nobody reads the other end."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    for size in (65536, 1):
        with suppress(BlockingIOError):
            while True:
                os.write(writer, b"x" * size)
    os.set_blocking(writer, True)
    try:
        yield writer
    finally:
        os.close(reader)
        os.close(writer)
