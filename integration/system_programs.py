"""Programs that are no Python packages: on PATH, or where scripts/system-packages has unpacked them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

UNPACKED = Path(__file__).resolve().parent.parent / ".cache" / "system" / "usr" / "bin"
NEEDED = {"prometheus": ("prometheus", "promtool"), "browser": ("chromium",)}
"""By mark: the programs without which the tests with this mark are left out."""


def program(name: str) -> str | None:
    """The path of a program; None if it is not there."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), str(UNPACKED)]))


def missing() -> dict[str, list[str]]:
    """By mark: the programs that are not there. Marks that have all of theirs are left out."""
    absent = {mark: [name for name in names if program(name) is None] for mark, names in NEEDED.items()}
    return {mark: names for mark, names in absent.items() if names}
