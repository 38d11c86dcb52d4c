"""Programs that are no Python packages: on this machine, or where scripts/system-packages has unpacked them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SYSTEM = Path(__file__).resolve().parent.parent / ".cache" / "system"
UNPACKED = SYSTEM / "usr" / "bin"
NEEDED = {"prometheus": ("prometheus", "promtool"), "browser": ("chromium",)}
"""By mark: the programs without which the tests with this mark are left out. Those marked `postgres` need PostgreSQL's, too."""


def program(name: str) -> str | None:
    """The path of a program; None if it is not there."""
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", os.defpath), str(UNPACKED)]))


def postgres_programs() -> Path | None:
    """The folder of PostgreSQL's server programs, the newest version first; None if they are not there. Debian has it beside PATH."""
    folders = [folder for system in (Path("/"), SYSTEM) for folder in sorted(system.glob("usr/lib/postgresql/*/bin"), reverse=True)]
    on_path = shutil.which("initdb")
    if on_path is not None:
        folders.insert(0, Path(on_path).resolve().parent)
    return next((folder for folder in folders if (folder / "initdb").exists() and (folder / "postgres").exists()), None)


def missing() -> dict[str, list[str]]:
    """By mark: the programs that are not there. Marks that have all of theirs are left out."""
    absent = {mark: [name for name in names if program(name) is None] for mark, names in NEEDED.items()}
    absent["postgres"] = [] if postgres_programs() else ["PostgreSQL's initdb", "postgres"]
    return {mark: names for mark, names in absent.items() if names}
