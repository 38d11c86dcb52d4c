"""`kstream page` in a process of its own, and requests to it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

SECONDS = 60


WITHOUT_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


@contextmanager
def page(*options: str, environment: dict[str, str] | None = None) -> Generator[tuple[subprocess.Popen[str], str]]:
    """The command as a process, and the line that it prints. Killed at the end if it still runs."""
    command = [sys.executable, "-m", "kstream.cli", "page", *options]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(environment or {})}
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()


def address(line: str) -> str:
    found = re.search(r"http://\S+", line)
    assert found, line
    return found[0]


def get(url: str, **headers: str) -> Any:
    with WITHOUT_PROXY.open(urllib.request.Request(url, headers=headers), timeout=20) as response:
        body = response.read()
        return json.loads(body) if response.headers["Content-Type"] == "application/json" else body.decode()


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Ctrl-C; the exit code and what the command said after its first line."""
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=SECONDS)
    return process.returncode, out + errors
