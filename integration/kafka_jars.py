"""The broker's jars: fetched once into `.cache/`, by Maven where it is, else by the Ivy inside pyspark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

KAFKA = "4.3.1"
COORDINATES = (f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4")
DIRECTORY_VARIABLE = "KSTREAM_KAFKA_JARS"

_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kstream</groupId><artifactId>broker-jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"


def kafka_jars() -> Path:
    """The folder with the broker's jars, fetched now if they are not there. RuntimeError says what failed and what to do."""
    given = os.environ.get(DIRECTORY_VARIABLE)
    folder = Path(given) if given else Path(__file__).resolve().parent.parent / ".cache" / f"kafka-{KAFKA}"
    marker = folder / ".complete"
    if marker.exists() or (given and any(folder.glob("*kafka_2.13-*.jar"))):
        return folder
    shutil.rmtree(folder, ignore_errors=True)  # a fetch that was cut short
    folder.mkdir(parents=True)
    fetch = _fetch_by_maven if shutil.which("mvn") else _fetch_by_ivy
    try:
        fetch(folder)
    except (OSError, subprocess.SubprocessError) as e:
        output = getattr(e, "output", None) or b""
        raise RuntimeError(
            f"Kafka {KAFKA}'s jars could not be fetched ({e}); is there a network? A folder that has them can be named in "
            f"{DIRECTORY_VARIABLE}.\n{output.decode(errors='replace')[-2000:]}"
        ) from e
    marker.touch()
    return folder


def _fetch_by_maven(folder: Path) -> None:
    dependencies = "".join(_DEPENDENCY.format(*coordinate.split(":")) for coordinate in COORDINATES)
    with tempfile.TemporaryDirectory() as work:
        pom = Path(work) / "pom.xml"
        pom.write_text(_POM.format(dependencies=dependencies))
        _run(["mvn", "-q", "-B", "-f", str(pom), "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"])


def _fetch_by_ivy(folder: Path) -> None:
    """spark-submit --packages resolves the coordinates into a folder of its own; scala-library is pyspark's."""
    with tempfile.TemporaryDirectory() as work:
        script = Path(work) / "nothing.py"
        script.write_text("")
        _run(
            [sys.executable, "-m", "integration.ivy_resolve", work, ",".join(COORDINATES)],
        )
        for jar in (Path(work) / "jars").glob("*.jar"):
            shutil.copyfile(jar, folder / jar.name)
    import pyspark

    for jar in (Path(pyspark.__file__).parent / "jars").glob("scala-library-2.13.*.jar"):
        shutil.copyfile(jar, folder / jar.name)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=600)
