"""The Python that the workers of a SparkContext run.

What the user says wins: `spark.pyspark.python`, then PYSPARK_PYTHON. pyspark itself reads the setting under spark-submit only. In local
mode the workers run the driver's Python, so that they find its packages. On a cluster pyspark takes the `python3` of the executors' PATH,
and so does a plain program. `kstream run` chooses better: the Python of an archive that it was given, else the driver's own path.
"""

from __future__ import annotations

import os
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark import SparkContext

VARIABLE = "PYSPARK_PYTHON"
SETTING = "spark.pyspark.python"
SPARKS_DEFAULT = "python3"
"""What pyspark takes where nobody says anything: the first one on the PATH of an executor."""
_IN_ARCHIVE = "bin/python"


def use_workers_python(sc: SparkContext) -> None:
    """Let the tasks of a SparkContext run what `spark.pyspark.python` says; in local mode, without any word, the driver's Python."""
    said = sc.getConf().get(SETTING)
    if said is None and not os.environ.get(VARIABLE) and is_local_master(sc.master):
        os.environ[VARIABLE] = said = sys.executable  # the variable is for a later SparkContext of the program
    if said:
        set_workers_python(sc, said)


def set_workers_python(sc: SparkContext, python: str) -> None:
    """Let the tasks of RDDs that are made from now on run this program."""
    context: Any = sc
    context.pythonExec = python


def workers_python(sc: SparkContext) -> str:
    """Return the program that the tasks of a SparkContext run."""
    context: Any = sc
    return str(context.pythonExec)


def is_local_master(master: str | None) -> bool:
    """Return whether the workers are processes of this machine: `local`, `local[N]`. `local-cluster[…]` counts, too."""
    return (master or "local").startswith("local")


def chosen_python(environ: Mapping[str, str], given: set[str], archives: Sequence[str]) -> str | None:
    """Return the Python that `kstream run` chooses for the workers; None if the user has said which. Reads the archives' lists of files.

    Args:
        environ: the environment variables.
        given: the settings of this process, as `given_names` returns them.
        archives: the value of `--archives`.
    """
    if environ.get(VARIABLE) or SETTING in given:
        return None
    return next(_pythons_of(archives), sys.executable)


def _pythons_of(archives: Sequence[str]) -> Iterator[str]:
    """Yield the path on an executor of the Python in each archive of this machine that has one."""
    for archive in archives:
        path, _, folder = archive.partition("#")
        if Path(path).is_file() and any(name.removeprefix("./") == _IN_ARCHIVE for name in _names_in(Path(path))):
            yield f"./{folder or Path(path).name}/{_IN_ARCHIVE}"


def _names_in(archive: Path) -> Iterator[str]:
    """Yield the names of an archive's files; none of a file that is no archive."""
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as zipped:
                yield from zipped.namelist()
        else:
            with tarfile.open(archive) as packed:
                yield from (member.name for member in packed)
    except (OSError, tarfile.TarError, zipfile.BadZipFile):  # Spark says what is wrong with it
        return
