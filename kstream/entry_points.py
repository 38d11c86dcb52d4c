"""Entry points: what packages offer to kstream, by group and name. Nothing is imported to find them.

The core has some of its own. A connector may be on the path without being installed: in a checkout, or in a zip of `--py-files`. Such a
connector is a package `kstream_…` with its entry points in a file `entry_points.txt`, which has the form of an installed one's. Installed
entry points win over those of such a file.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
import sys
from collections.abc import Callable
from configparser import ConfigParser
from importlib.machinery import PathFinder
from importlib.metadata import EntryPoint
from pathlib import Path

CONNECTORS = "kstream.connectors"
"""The group of the modules of connectors."""
COMMANDS = "kstream.cli"
"""The group of the commands that connectors add to `kstream`."""
_PREFIX = "kstream_"
_FILE = "entry_points.txt"
_OF_THE_CORE = (
    EntryPoint("log", "kstream.direct.connector", CONNECTORS),
    EntryPoint("testing", "kstream.testing", CONNECTORS),
)


class _Tables(ConfigParser):
    """The tables of a file of entry points. Names keep their capital letters."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def entry_points(group: str) -> dict[str, EntryPoint]:
    """Return the entry points of a group by name. Each call looks at the path again, which takes some milliseconds."""
    found = {entry_point.name: entry_point for entry_point in (*_OF_THE_CORE, *_on_the_path()) if entry_point.group == group}
    return {**found, **{entry_point.name: entry_point for entry_point in importlib.metadata.entry_points(group=group)}}


def _on_the_path() -> list[EntryPoint]:
    """Return the entry points in the files of packages `kstream_…` on the path. The first package of a name wins, as in an import."""
    found: dict[str, list[EntryPoint]] = {}
    for directory in sys.path:
        for package in _packages_in(directory):
            found.setdefault(package, _read(directory, package))
    return [entry_point for entry_points in found.values() for entry_point in entry_points]


def _packages_in(directory: str) -> list[str]:
    """Return the names that may be packages `kstream_…` in a directory or a zip of the path."""
    path = Path(directory)
    if path.is_dir():
        return sorted(child.name for child in path.glob(f"{_PREFIX}*") if child.name.isidentifier())
    if not path.is_file():
        return []
    return sorted(module.name for module in pkgutil.iter_modules([directory]) if module.ispkg and module.name.startswith(_PREFIX))


def _read(directory: str, package: str) -> list[EntryPoint]:
    """Return the entry points in the file of a package; [] without such a file."""
    spec = PathFinder.find_spec(package, [directory])
    get_data: Callable[[str], bytes] | None = getattr(spec and spec.loader, "get_data", None)
    if spec is None or not spec.submodule_search_locations or get_data is None:
        return []
    try:
        text = get_data(str(Path(spec.submodule_search_locations[0], _FILE)))
    except OSError:
        return []
    parsed = _Tables(delimiters="=", interpolation=None)
    parsed.read_string(text.decode())
    return [EntryPoint(name, value, group) for group in parsed.sections() for name, value in parsed.items(group)]
