"""Whose code a frame of a traceback is: the user's, a library's, Python's, Spark's, or kstream's, to which the connectors belong.

The package of a connector is the one that has the module which its entry point names: `acme_source` for `acme_source.connector`, and
`kstream_kafka` for `kstream_kafka`. The driver looks them up once, and gives their names to its workers by an environment variable. The
examples of kstream count as the user's.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
import sysconfig
from collections.abc import Iterator
from enum import Enum
from functools import lru_cache
from importlib.machinery import PathFinder
from pathlib import Path
from types import TracebackType

from kstream.entry_points import CONNECTORS, entry_points

PACKAGES = "KSTREAM_PACKAGES"
"""The environment variable of a worker that has the value of `own_packages`, separated by commas."""
_SPARKS = ("pyspark", "py4j")
_EXAMPLES = "kstream.examples"
_HOME = f"{Path(__file__).parent}{os.sep}"
_HOME_OF_EXAMPLES = f"{_HOME}examples{os.sep}"
_STDLIB, *_LIBRARIES = (f"{sysconfig.get_path(name)}{os.sep}" for name in ("stdlib", "purelib", "platlib"))
_IN_SPARKS = re.compile(rf"[/\\]({'|'.join(_SPARKS)})[/\\]")
_IN_LIBRARIES = re.compile(r"[/\\](site|dist)-packages[/\\]")
_IN_PYTHON = re.compile(r"[/\\]lib(64)?[/\\]python3\.\d+[/\\]")
_FROZEN = "<frozen "


class Owner(Enum):
    """Whose code a frame is."""

    KSTREAM = "kstream and its connectors"
    SPARK = "pyspark and py4j"
    PYTHON = "Python and its library"
    LIBRARY = "an installed package"
    NO_FILE = "code without a file, made while the program runs or typed into a shell"
    USER = "the user's"


def own_packages() -> tuple[str, ...]:
    """Return the packages of kstream and of the connectors, none of them inside of another. Cheap after the first call of a process."""
    return _own_packages(os.environ.get(PACKAGES, ""), tuple(sys.path))


@lru_cache(maxsize=8)
def _own_packages(given: str, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the packages that are given; else those on the path, which is an argument because the packages on it depend on it."""
    if given:
        return tuple(given.split(","))
    modules = [entry_point.value.partition(":")[0] for entry_point in entry_points(CONNECTORS).values()]
    packages = ["kstream"]
    for package in sorted({module.rpartition(".")[0] or module for module in modules}):
        if not _is_in(package, packages):
            packages.append(package)
    return tuple(packages)


def is_own(module: str) -> bool:
    """Return whether a module, by its name, is of kstream or of a connector."""
    return _is_in(module, own_packages()) and not _is_in(module, [_EXAMPLES])


def owner_of(file: str, module: str = "") -> Owner:
    """Return whose code a frame of this process is.

    Args:
        file: the file of the frame's code.
        module: the name of its module, "" if it is not known. Kstream and Spark need not be installed where Python looks.
    """
    if is_own(module) or (file.startswith(_HOME) and not file.startswith(_HOME_OF_EXAMPLES)):
        return Owner.KSTREAM
    if _is_in(module, _SPARKS):
        return Owner.SPARK
    if file.startswith("<"):
        return Owner.PYTHON if file.startswith(_FROZEN) else Owner.NO_FILE
    if file.startswith(_HOME_OF_EXAMPLES):
        return Owner.USER
    if file.startswith(tuple(_LIBRARIES)):
        return Owner.LIBRARY
    return Owner.PYTHON if file.startswith(_STDLIB) else Owner.USER


def owner_elsewhere(file: str) -> Owner:
    """Return whose code a file is that the traceback of another process names, perhaps on another machine.

    A user may have a directory that is named as a package of kstream or of a connector. So a file only counts as theirs if this process
    has it, too.
    """
    if any(_has(package, file) for package in own_packages()):
        return Owner.KSTREAM
    if file.startswith("<"):
        return Owner.PYTHON if file.startswith(_FROZEN) else Owner.NO_FILE
    if _IN_SPARKS.search(file):
        return Owner.SPARK
    if _IN_LIBRARIES.search(file):
        return Owner.LIBRARY
    return Owner.PYTHON if _IN_PYTHON.search(file) else Owner.USER


def owner_of_entry(entry: TracebackType) -> Owner:
    return owner_of(entry.tb_frame.f_code.co_filename, entry.tb_frame.f_globals.get("__name__", ""))


def frames_of_the_user(traceback: TracebackType | None) -> Iterator[TracebackType]:
    """Yield the entries of a traceback that are of the user's code, the outermost first."""
    while traceback is not None:
        if owner_of_entry(traceback) is Owner.USER:
            yield traceback
        traceback = traceback.tb_next


def _is_in(module: str, packages: tuple[str, ...] | list[str]) -> bool:
    """Return whether a module is one of these packages or inside of one."""
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


@lru_cache(maxsize=1000)
def _has(package: str, file: str) -> bool:
    """Return whether the end of a path is the path of a module of this package, but for the examples. Imports nothing."""
    parts = re.split(r"[/\\]", file.removesuffix(".py"))
    names = package.split(".")
    for at in range(1, len(parts) - len(names)):
        rest = parts[at + len(names) :]
        if parts[at : at + len(names)] == names and not _is_in(".".join([*names, *rest]), [_EXAMPLES]) and _exists([*names, *rest]):
            return True
    return False


def _exists(names: list[str]) -> bool:
    """Return whether there is a module of this name in parts. Packages may be directories or in a zip, and are not imported."""
    if not all(map(str.isidentifier, names)):
        return False
    try:
        spec = importlib.util.find_spec(names[0])
    except ValueError:  # the program has made this module itself
        return False
    for name in names[1:]:
        if spec is None or spec.submodule_search_locations is None:
            return False
        spec = PathFinder.find_spec(name, list(spec.submodule_search_locations))
    return spec is not None
