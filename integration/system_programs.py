"""Programs that are no Python packages: on PATH, or where scripts/system-packages has unpacked them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

UNPACKED = Path(__file__).resolve().parent.parent / ".cache" / "system" / "usr" / "bin"
NEEDED = ("prometheus", "promtool")
"""The programs without which the tests marked `prometheus` are left out."""


def program(name: str) -> str | None:
    """The path of a program; None if it is not there."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), str(UNPACKED)]))


def missing() -> list[str]:
    """The programs that are not there."""
    return [name for name in NEEDED if program(name) is None]
