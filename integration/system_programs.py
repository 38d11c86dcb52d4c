"""Programs that are no Python packages: on this machine, or where scripts/system-packages has unpacked them."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

SYSTEM = Path(__file__).resolve().parent.parent / ".cache" / "system"
UNPACKED = [SYSTEM / "usr" / "bin", SYSTEM / "usr" / "sbin"]
_BESIDE = ["/usr/sbin", "/sbin"]
"""Where Debian has the programs of root, which others' PATH may lack."""
NEEDED = {"prometheus": ("prometheus", "promtool"), "browser": ("chromium",)}
"""By mark: the programs without which the tests with this mark are left out. Those marked `postgres` need PostgreSQL's, too."""


def program(name: str) -> str | None:
    """The path of a program; None if it is not there."""
    return shutil.which(name, path=search_path())


def environment_of(path: str) -> dict[str, str] | None:
    """The environment in which an unpacked program finds others and its libraries; None, this one, for those of this machine."""
    if not Path(path).is_relative_to(SYSTEM):
        return None
    libraries = [*map(str, (SYSTEM / "usr" / "lib").glob("*-linux-gnu")), os.environ.get("LD_LIBRARY_PATH", "")]
    tables = next(iter((SYSTEM / "usr" / "lib").glob("*-linux-gnu/xtables")), None)
    more = {"XTABLES_LIBDIR": str(tables)} if tables else {}
    return {**os.environ, **more, "PATH": search_path(), "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}


def search_path() -> str:
    """PATH with the places of root's programs, and of those that are unpacked."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), *_BESIDE, *map(str, UNPACKED)])


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
