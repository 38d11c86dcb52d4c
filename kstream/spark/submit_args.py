"""The options of spark-submit that reach the JVM of this process: PYSPARK_SUBMIT_ARGS, and the names of the settings in it.

pyspark launches its JVM by spark-submit with the words of this variable. So an option works there as it does for spark-submit.

Imports no pyspark: a supervisor sets the variable for its drivers, too.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from kstream.errors import ConfigurationError
from kstream.spark.java import under_spark_submit

SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
SHELL = "pyspark-shell"
"""What pyspark gives to its launcher if the variable is not set."""
_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://|file:/")
_PATTERN = re.compile(r"[*?\[{]")


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options that `kstream` takes as spark-submit does. The lists are comma-separated in the text of an option.

    Attributes:
        master: the URL of the master; "" if it is not given.
        py_files: `.py`, `.zip` and `.egg` files for the path of modules, here and on the executors.
        archives: archives that each executor unpacks; `env.tar.gz#environment` into the folder `environment`.
        files: files that are copied into the working directory of each executor.
    """

    master: str = ""
    py_files: tuple[str, ...] = ()
    archives: tuple[str, ...] = ()
    files: tuple[str, ...] = ()

    @classmethod
    def of(cls, master: str | None, py_files: str | None, archives: str | None, files: str | None) -> SubmitOptions:
        """Return the options of a command line. None: not given."""
        return cls(master or "", _listed(py_files), _listed(archives), _listed(files))

    @property
    def modules(self) -> list[Path]:
        """The `.py` files of this machine among `py_files`. `kstream run` itself sends them: `ship`."""
        return [Path(file) for file in self.py_files if file.endswith(".py") and not _is_elsewhere(file)]

    def words(self) -> list[str]:
        """Return the options as words of a command line, for a driver of the supervisor."""
        lists = (("--py-files", self.py_files), ("--archives", self.archives), ("--files", self.files))
        return [*_option("--master", self.master), *(word for name, values in lists for word in _option(name, ",".join(values)))]

    def check(self, environ: Mapping[str, str] = os.environ) -> None:
        """Look whether the options can work.

        Raises:
            ConfigurationError: a file of this machine does not exist; or spark-submit has made the JVM of this process already.
        """
        for file in (*self.py_files, *self.archives, *self.files):
            path = file.partition("#")[0]
            if not _is_elsewhere(path) and not _PATTERN.search(path) and not Path(path).is_file():
                raise ConfigurationError(f"there is no file {path}", key="files", value=file)
        if self != NO_OPTIONS and under_spark_submit(environ):
            option = self.words()[0]
            raise ConfigurationError(f"{option} has no effect under spark-submit: give it to spark-submit itself", key=option)

    def apply(self, environ: MutableMapping[str, str] = os.environ) -> None:
        """Put the options into PYSPARK_SUBMIT_ARGS, behind those that are there: of two, spark-submit takes the last. Call it once.

        The `.py` files of this machine are left out. Spark would send them as they are, and errors would name the copy of an executor.
        """
        sent = SubmitOptions(self.master, tuple(f for f in self.py_files if Path(f) not in self.modules), self.archives, self.files)
        if not (words := sent.words()):
            return
        before, shell, after = environ.get(SUBMIT_ARGS, SHELL).rpartition(SHELL)
        given = f"{before}{shlex.join(words)} {shell}{after}" if shell else f"{after} {shlex.join(words)}"
        environ[SUBMIT_ARGS] = given


NO_OPTIONS = SubmitOptions()


def _listed(text: str | None) -> tuple[str, ...]:
    """Return the parts of a comma-separated list."""
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


def _option(name: str, value: str) -> Sequence[str]:
    """Return an option as words; none without a value."""
    return (name, value) if value else ()


def _is_elsewhere(file: str) -> bool:
    """Return whether a file is named by a URL, which is Spark's to resolve."""
    return _URL.match(file) is not None


# -- the names of settings


def given_names(command: str, environ: Mapping[str, str]) -> set[str]:
    """Return the keys of the settings on the command line of spark-submit, and in its files of defaults. Reads those files.

    Args:
        command: the command line.
        environ: the environment variables of the process.
    """
    names = set(_CONF_OPTION.findall(command))
    names |= {key for option in _OPTION.findall(command) for key in _SETTINGS[option]}
    pyspark = find_spec("pyspark")
    home = environ.get("SPARK_HOME") or (str(Path(pyspark.origin).parent) if pyspark is not None and pyspark.origin else "")
    for file in (
        Path(environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf"),
        *map(Path, _FILE_OPTION.findall(command)),
    ):
        if file.is_file():
            names |= set(_DEFAULT.findall(file.read_text(errors="replace")))
    return names


_SETTINGS = {
    "master": ("spark.master",),
    "py-files": ("spark.submit.pyFiles", "spark.files"),  # spark-submit adds them to both
    "archives": ("spark.archives",),
    "files": ("spark.files",),
}
"""Option of spark-submit → the settings that it becomes."""
_OPTION = re.compile(rf"(?:^|\s)--({'|'.join(_SETTINGS)})[\s=]")
_CONF_OPTION = re.compile(r"(?:^|\s)(?:--conf|-c)[\s=]+[\"']?(spark\.[\w.-]+)=")
_FILE_OPTION = re.compile(r"(?:^|\s)--properties-file[\s=]+(\S+)")
_DEFAULT = re.compile(r"^\s*(spark\.[^\s=:]+)", re.MULTILINE)


SHOW = "spark.ui.showConsoleProgress"
"""Spark turns it on where its launcher gets `pyspark-shell`, as in a shell."""


def turn_off_progress_bar(environ: MutableMapping[str, str] = os.environ, is_terminal: bool | None = None) -> None:
    """Let the next JVM of this process and of its children show no progress bar: in a log its line would run into the next one.

    Does nothing on a terminal, under spark-submit, and if the user has the setting in spark-defaults.conf or PYSPARK_SUBMIT_ARGS. A value
    in a SparkConf wins in any case. Has no effect on a JVM that runs already.

    Args:
        environ: the environment variables of this process.
        is_terminal: whether standard error is a terminal; None looks.
    """
    if is_terminal is None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison] – None in a daemon
    given = environ.get(SUBMIT_ARGS, SHELL)
    if not is_terminal and not under_spark_submit(environ) and SHOW not in given_names(given, environ):
        environ[SUBMIT_ARGS] = f"--conf {SHOW}=false {given}"
