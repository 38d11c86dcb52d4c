"""`kstream run` in a folder, as a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kstream.cli.exit_codes import RunCode

SECONDS = 120
ROOT = Path(__file__).resolve().parent.parent


@contextmanager
def running(folder: Path, *words: str, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """`kstream run` with these words and these variables besides; killed at the end if it still runs. What it says is in `folder`/log."""
    (folder / "log").unlink(missing_ok=True)  # not truncated: workers of a killed run may still write to the old file
    path = os.pathsep.join([str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")])
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "kstream.cli", "run", *words],
            cwd=folder, env={**os.environ, **environment, "PYTHONPATH": path}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[bytes], folder: Path) -> None:
    """Returns when it holds; AssertionError with the log if the process ends first, or it takes too long."""
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None and time.monotonic() < deadline, (folder / "log").read_text()
        time.sleep(0.1)


def stop(process: subprocess.Popen[bytes], folder: Path) -> None:
    """SIGTERM. Returns when the job has ended gracefully; AssertionError with the log if it ends otherwise."""
    process.send_signal(signal.SIGTERM)
    assert process.wait(SECONDS) == RunCode.ENDED, (folder / "log").read_text()
