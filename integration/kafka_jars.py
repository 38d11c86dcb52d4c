"""The broker's jars: fetched once into `.cache/`, by Maven where it is, else by the Ivy inside pyspark."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA = "4.3.1"
COORDINATES = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
DIRECTORY_VARIABLE = "KSTREAM_KAFKA_JARS"
CACHE = Path(__file__).resolve().parent.parent / ".cache"
_MARKER = ".complete"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kstream</groupId><artifactId>broker-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


class JarsMissingError(RuntimeError):
    """The broker's jars are not there and could not be fetched; one line that says why and what to do."""


def kafka_jars() -> Path:
    """The folder with the broker's jars, fetched now if they are not there; JarsMissingError if that fails.

    A folder named in KSTREAM_KAFKA_JARS is only read. The cache is filled beside itself and renamed, so that a fetch that was cut
    short is redone and two at once do not meet.
    """
    given = os.environ.get(DIRECTORY_VARIABLE)
    if given:
        if not _has_broker(Path(given)):
            raise JarsMissingError(
                f"{DIRECTORY_VARIABLE} names {given}, which holds no kafka_2.13 jar; correct it, or unset it to fetch them"
            )
        return Path(given)
    folder = CACHE / f"kafka-{KAFKA}"
    if (folder / _MARKER).exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f"kafka-{KAFKA}-", dir=CACHE) as work:
        fresh = Path(work) / "jars"
        _fetch(fresh)
        (fresh / _MARKER).touch()
        _put(fresh, folder)
    return folder


def jar_alone(coordinates: str, jar: Path) -> Path:
    """One jar without what it needs, at a path of the cache, fetched now if it is not there; JarsMissingError if that fails."""
    if not jar.exists():
        jar.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=CACHE) as work:
            command = [sys.executable, "-m", "integration.ivy_resolve", work, coordinates, "alone"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=600, cwd=CACHE.parent, check=False)
            jars = list((Path(work) / "jars").glob("*.jar"))
            if done.returncode != 0 or not jars:
                raise JarsMissingError(f"{coordinates} could not be fetched: is Maven Central reachable? {done.stderr.strip()[-300:]}")
            os.replace(jars[0], jar)
    return jar


def _put(fresh: Path, folder: Path) -> None:
    """Renames `fresh` to `folder`, in place of what is cut short there; another's whole folder stands."""
    if folder.exists() and not (folder / _MARKER).exists():
        shutil.rmtree(folder, ignore_errors=True)
    try:
        fresh.rename(folder)
    except OSError:
        if not (folder / _MARKER).exists():
            raise


def _fetch(folder: Path) -> None:
    """By Maven where it is; where it is not, or fails, by Ivy."""
    failures: list[str] = []
    for name, fetch in (("Maven", _fetch_by_maven), ("Ivy", _fetch_by_ivy)):
        if name == "Maven" and shutil.which("mvn") is None:
            continue
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            fetch(folder)
            if _has_broker(folder):
                return
            failures.append(f"{name}: no jar came")
        except (OSError, subprocess.SubprocessError) as e:
            failures.append(f"{name}: {_reason(e)}")
    raise JarsMissingError(
        f"Kafka {KAFKA}'s jars could not be fetched ({'; '.join(failures)}): is Maven Central reachable? "
        f"A folder that holds them can be named in {DIRECTORY_VARIABLE}"
    )


def _has_broker(folder: Path) -> bool:
    return any(folder.glob("*kafka_2.13-*.jar"))


def _reason(error: Exception) -> str:
    """The line of a failed command's output that tells most, cut to what fits in a line."""
    output = (getattr(error, "output", None) or b"").decode(errors="replace")
    lines = re.sub(r"\x1b\[[0-9;]*m", "", output).splitlines()  # Maven colours even what no terminal reads
    telling = [line.strip() for line in lines if "ERROR" in line or "Exception" in line or "not found" in line or "unresolved" in line]
    return (telling[0] if telling else str(error))[:300]


def _fetch_by_maven(folder: Path) -> None:
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":")) for coordinate in COORDINATES)
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(dependencies=dependencies))
        _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])


def _fetch_by_ivy(folder: Path) -> None:
    """Spark's resolver, in a process of its own; scala-library, which it leaves out, is pyspark's."""
    with tempfile.TemporaryDirectory() as work:
        _run([sys.executable, "-m", "integration.ivy_resolve", work, ",".join(COORDINATES)])
        for jar in (Path(work) / "jars").glob("*.jar"):
            shutil.copyfile(jar, folder / jar.name)
    import pyspark

    for jar in (Path(pyspark.__file__).parent / "jars").glob("scala-library-2.13.*.jar"):
        shutil.copyfile(jar, folder / jar.name)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600, cwd=CACHE.parent)


def main() -> int:
    try:
        print(kafka_jars())
    except JarsMissingError as e:
        print(f"jars: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
