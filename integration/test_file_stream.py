"""Files that arrive while their driver is killed with `kill -9`, by the real clock."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from integration.exactness.verdict import read_lines

FILES = 15
KILLS = 3
PATIENCE = 400.0


class Files:
    """One file a second, each with its number in it, moved in whole."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.written = 0
        self._thread = threading.Thread(target=self._write, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def _write(self) -> None:
        for number in range(1, FILES + 1):
            time.sleep(1)
            temporary = self.directory / f".{number}"
            temporary.write_text(f"{number}\n")
            temporary.rename(self.directory / str(number))
            self.written = number


def driver(watched: Path, notes: Path) -> subprocess.Popen[bytes]:
    with open(notes / "driver.log", "ab") as log:
        command = [sys.executable, "-m", "integration.file_stream_job", str(watched), str(notes)]
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def wait_for(notes: Path, what: str, reached: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < end, f"{what} did not happen:\n{(notes / 'driver.log').read_text(errors='replace')[-4000:]}"
        time.sleep(0.05)


def by_time(path: Path) -> dict[int, list[int]]:
    """Batch time → its numbers; every attempt at a batch must have had the same."""
    found: dict[int, list[int]] = {}
    for line in read_lines(path):
        assert found.setdefault(line["time"], line["numbers"]) == line["numbers"], f"two contents for {line['time']}"
    return found


@pytest.mark.timeout(1800)
def test_every_file_is_in_one_batch_however_often_the_driver_is_killed(tmp_path: Path) -> None:
    """FS1, CP8: distinct outputs are exactly the files; windows are those of a driver that was never killed."""
    watched, notes = tmp_path / "in", tmp_path / "notes"
    watched.mkdir()
    notes.mkdir()
    files, draw, seen, shown = Files(watched), random.Random(7), notes / "batches.jsonl", notes / "windows.jsonl"
    for life in range(1, KILLS + 2):
        running = driver(watched, notes)
        try:
            wait_for(notes, f"start {life}", lambda life=life: len(read_lines(notes / "started.jsonl")) == life)
            if life == 1:
                files.start()
            if life <= KILLS:
                time.sleep(draw.uniform(1.0, 4.0))
            else:
                wait_for(notes, "the last file", lambda: sum(len(n) for n in by_time(seen).values()) >= FILES)
                last = max(t for t, numbers in by_time(seen).items() if numbers)
                wait_for(notes, "its windows", lambda last=last: last + 2000 in by_time(shown))
        finally:
            running.kill()
            running.wait()
    batches, windows = by_time(seen), by_time(shown)
    assert sorted(number for numbers in batches.values() for number in numbers) == list(range(1, FILES + 1))
    assert sorted(batches) == list(range(min(batches), max(batches) + 1, 1000)), "a batch time was left out"
    for when, numbers in windows.items():
        parts = [batches.get(when - ago, []) for ago in (2000, 1000, 0)]
        assert numbers == sorted(number for part in parts for number in part), f"window at {when}"
    assert len(read_lines(notes / "setups.jsonl")) == KILLS + 1, "setup is called at every start"
