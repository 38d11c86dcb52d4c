"""Archives of the classes that Spark and Kafka load (Java's CDS), made once into `.cache/`: most of what a JVM does at its start.

A Spark driver that maps its classes and compiles by C1 alone costs 3 s of CPU until its first job is done, instead of 10; a broker 2 s
instead of 3.5. A suite that starts hundreds of them, to kill them, is bound by that. An archive is only ever a help: a JVM whose class
path or version is another one passes over it.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from integration.kafka_jars import CACHE
from kstream.spark.java import find_java_home

SPARK_VARIABLE = "SPARK_SUBMIT_OPTS"
"""Options of the JVM that a Python process starts for Spark, as spark-submit reads them."""
_QUIETLY = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off", "-Xlog:class+path=off")
_C1 = "-XX:TieredStopAtLevel=1"
_DUMP_S = 240
_SPARK_JOB = """
from pyspark import SparkConf, SparkContext
sc = SparkContext(conf=SparkConf().setMaster("local[2]").setAppName("archive").set("spark.ui.enabled", "false"))
sc.parallelize(range(10), 2).map(lambda x: (x % 2, x)).groupByKey().count()
sc.stop()
"""


def use_spark_archive() -> None:
    """Every Spark that this process or one of its children starts from now on finds its classes in the archive. Once is enough."""
    import pyspark

    if "-XX:SharedArchiveFile" in os.environ.get(SPARK_VARIABLE, ""):
        return

    def dump(target: Path) -> None:
        environment = {**os.environ, SPARK_VARIABLE: _options(f"-XX:ArchiveClassesAtExit={target}")}
        with tempfile.TemporaryDirectory() as folder:  # where Spark leaves what it leaves
            # Captured, since that waits for all who hold the pipe: the JVM goes on for seconds after Python's end, to write.
            subprocess.run(
                [sys.executable, "-c", _SPARK_JOB], env=environment, cwd=folder,
                stdin=subprocess.DEVNULL, capture_output=True, timeout=_DUMP_S, check=False,
            )  # fmt: skip

    made = archive(f"spark-{pyspark.__version__}", Path(pyspark.__file__).parent, dump)
    os.environ[SPARK_VARIABLE] = _options(os.environ.get(SPARK_VARIABLE, ""), _C1, *reading(made))


def reading(made: Path) -> list[str]:
    """Java's options to map the archive, if there is one."""
    return [f"-XX:SharedArchiveFile={made}", *_QUIETLY] if made.exists() else []


def archive(name: str, jars: Path, dump: Callable[[Path], None]) -> Path:
    """The path of the archive for these jars, dumped first if it is not there. In its name what it depends on: where they lie, and Java.

    `dump` has a JVM write it to the path it is given, or leaves none there.
    """
    key = hashlib.sha256(f"{jars.absolute()} {find_java_home(os.environ).resolve()}".encode()).hexdigest()[:12]
    kept = CACHE / f"{name}-{key}.jsa"
    if not kept.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="archive-", dir=CACHE) as work:
            fresh = Path(work) / "fresh.jsa"
            dump(fresh)
            if fresh.exists():
                fresh.rename(kept)
    return kept


def _options(*options: str) -> str:
    return " ".join(option for option in options if option)
