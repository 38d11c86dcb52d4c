"""Child: a Python module run as a process that the demo owns, and that ends with it."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


class Child:
    """Started at once, in a session of its own so that Ctrl-C reaches the parent only. `said()` gives what it prints as JSON lines.

    Its standard input is a pipe from us: it closes when we die, whatever the reason, and the modules of the demo end on that.
    """

    def __init__(self, module: str, args: Sequence[str], log: Path, environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with open(log, "ab") as errors:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *args],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, start_new_session=True,
                env=None if environment is None else dict(environment),
            )  # fmt: skip
        self._lines: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it runs; minus the signal's number when one ended it."""
        return self._process.poll()

    def said(self) -> list[dict[str, Any]]:
        """The lines since the last call. Does not block."""
        lines: list[dict[str, Any]] = []
        while True:
            try:
                lines.append(self._lines.get_nowait())
            except queue.Empty:
                return lines

    def close_stdin(self) -> None:
        """Tells it to end by itself."""
        if self._process.stdin is not None and not self._process.stdin.closed:
            self._process.stdin.close()

    def terminate(self) -> None:
        """SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends it and what it started (a driver's JVM follows its driver within a second; one that does not is killed). Blocks."""
        self.close_stdin()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        if not _group_ends(self.pid, 5.0):
            try:
                os.killpg(self.pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self._reader.join(1.0)

    def last_words(self) -> str:
        """The last line of its log that is not empty."""
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1] if lines else "it said nothing"

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if isinstance(record, dict):
                self._lines.put(record)


def _group_ends(group: int, seconds: float) -> bool:
    """Whether every process of a group that we made is gone before `seconds` have passed."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            os.killpg(group, 0)
        except (ProcessLookupError, PermissionError):
            return True
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.05)
