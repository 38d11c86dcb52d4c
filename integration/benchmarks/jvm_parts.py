"""What the JVM connector's side needs: its jars, and a Python with a pyspark they are for. Fetched once into `.cache/`.

The connector is published later than Spark, or not at all: if there is none for the pyspark of this environment, that of OLDER is
taken, and a virtual environment with that pyspark is made.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

import pyspark

from integration.kafka_jars import CACHE

OLDER = "4.0.0"
"""A version whose connector is surely there."""
COORDINATE = "org.apache.spark:spark-sql-kafka-0-10_2.13:{}"
_COMPLETE = ".complete-with-arrow"


class PartsMissingError(RuntimeError):
    """The connector's side cannot be had; one line that says why."""


def connector_parts(alone: bool = False) -> tuple[Path, list[Path], str]:
    """(Python, jars, version), fetched now if they are not there; PartsMissingError if that fails, or with `alone`."""
    if alone:
        raise PartsMissingError("none was asked for")
    own = pyspark.__version__
    failures: list[str] = []
    for version in sorted({own, OLDER}, key=lambda v: (not _jar_folder(v).exists(), v != own)):  # what is there, then our own
        try:
            return *connector_parts_of(version), version
        except PartsMissingError as e:
            failures.append(str(e))
    raise PartsMissingError("; ".join(failures))


def connector_parts_of(version: str) -> tuple[Path, list[Path]]:
    """(Python, jars) of that version, fetched now if they are not there; PartsMissingError if that fails."""
    try:
        jars = _jars(version)
        return (Path(sys.executable) if version == pyspark.__version__ else python_with_pyspark(version)), jars
    except (OSError, subprocess.SubprocessError) as e:
        text = f"the JVM connector {version} could not be fetched ({_reason(e)}): is Maven Central reachable?"
        raise PartsMissingError(text) from None


def _jar_folder(version: str) -> Path:
    return CACHE / f"spark-kafka-{version}"


def _jars(version: str) -> list[Path]:
    """The connector and what it needs beside pyspark's own jars, by the Ivy inside pyspark: it leaves those out, as Maven would not."""
    folder = _jar_folder(version)
    if not folder.exists():
        CACHE.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=folder.name, dir=CACHE) as work:
            _run([sys.executable, "-m", "integration.ivy_resolve", work, COORDINATE.format(version)])
            jars = Path(work, "jars")
            if not any(jars.glob("*spark-sql-kafka*.jar")):
                raise OSError("no jar came")
            jars.rename(folder)  # a fetch that was cut short leaves nothing
    return sorted(jar for jar in folder.glob("*.jar") if "hadoop-client" not in jar.name)  # pyspark has Hadoop


def python_with_pyspark(version: str) -> Path:
    """The Python of a virtual environment with this pyspark, by uv where it is, else by venv and pip. It has what mapInArrow needs, too."""
    packages = [f"pyspark=={version}", "pyarrow", "pandas<3"]
    folder = CACHE / f"pyspark-{version}"
    python = folder / "bin" / "python"
    if (folder / _COMPLETE).exists():
        return python
    shutil.rmtree(folder, ignore_errors=True)
    uv = shutil.which("uv")
    if uv:
        _run([uv, "venv", "--quiet", "--python", sys.executable, str(folder)])
        _run([uv, "pip", "install", "--quiet", "--python", str(python), *packages])
    else:
        venv.create(folder, with_pip=True)
        _run([str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages])
    (folder / _COMPLETE).touch()
    return python


def _run(command: list[str]) -> None:
    subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, cwd=CACHE.parent, env=dict(os.environ)
    )


def _reason(error: Exception) -> str:
    """The line of a failed command's output that tells most, cut to what fits in a line."""
    output = (getattr(error, "output", None) or b"").decode(errors="replace")
    lines = [line.strip(": ") for line in output.splitlines()]
    telling = [line for sign in ("unresolved dependency", "ERROR", "Exception", "not found") for line in lines if sign in line]
    return (telling[0] if telling else str(error))[:200]
