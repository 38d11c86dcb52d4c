"""A command of kstream as a process of its own, as its user types it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "connectors"), os.environ.get("PYTHONPATH", "")])}
SECONDS = 60


def started(*words: object, environment: Mapping[str, str] = MappingProxyType({}), **pipes: Any) -> subprocess.Popen[bytes]:
    """The process, with these variables besides; its standard streams are pipes unless others are given."""
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **pipes}
    return subprocess.Popen([sys.executable, "-m", "kstream.cli", *map(str, words)], env={**ENVIRONMENT, **environment}, **pipes)


def run(*words: object, lines: bytes = b"", environment: Mapping[str, str] = MappingProxyType({})) -> tuple[int, str, str]:
    """Exit code, standard output and standard error of a command with these lines as standard input."""
    process = started(*words, environment=environment)
    try:
        out, err = process.communicate(lines, timeout=SECONDS)
    finally:
        process.kill()
    return process.returncode, out.decode(), err.decode()
