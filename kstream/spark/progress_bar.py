"""Spark's progress bar is off where standard error is no terminal: in a log its line would run into the next one.

Imports no pyspark: a supervisor sets this for its drivers, too.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, MutableMapping
from importlib.util import find_spec
from pathlib import Path

from kstream.spark.java import under_spark_submit

SHOW = "spark.ui.showConsoleProgress"
SUBMIT_ARGS = "PYSPARK_SUBMIT_ARGS"
_SHELL = "pyspark-shell"
"""What pyspark gives to its launcher if the variable is not set. Spark then turns the bar on, as in a shell."""


def turn_off_progress_bar(environ: MutableMapping[str, str] = os.environ, is_terminal: bool | None = None) -> None:
    """Let the next JVM of this process and of its children show no progress bar.

    Does nothing on a terminal, under spark-submit, and if the user has the setting in spark-defaults.conf or PYSPARK_SUBMIT_ARGS. A value
    in a SparkConf wins in any case. Has no effect on a JVM that runs already.

    Args:
        environ: the environment variables of this process.
        is_terminal: whether standard error is a terminal; None looks.
    """
    if is_terminal is None:
        is_terminal = sys.stderr is not None and sys.stderr.isatty()  # pyright: ignore[reportUnnecessaryComparison] – None in a daemon
    given = environ.get(SUBMIT_ARGS, _SHELL)
    if not is_terminal and not under_spark_submit(environ) and SHOW not in given_names(given, environ):
        environ[SUBMIT_ARGS] = f"--conf {SHOW}=false {given}"


def given_names(command: str, environ: Mapping[str, str]) -> set[str]:
    """Return the keys of the settings on the command line of spark-submit, and in its files of defaults. Reads those files.

    Args:
        command: the command line.
        environ: the environment variables of the process.
    """
    names = set(_CONF_OPTION.findall(command))
    if _MASTER_OPTION.search(command):
        names.add("spark.master")
    pyspark = find_spec("pyspark")
    home = environ.get("SPARK_HOME") or (str(Path(pyspark.origin).parent) if pyspark is not None and pyspark.origin else "")
    for file in (
        Path(environ.get("SPARK_CONF_DIR") or Path(home, "conf"), "spark-defaults.conf"),
        *map(Path, _FILE_OPTION.findall(command)),
    ):
        if file.is_file():
            names |= set(_DEFAULT.findall(file.read_text(errors="replace")))
    return names


_CONF_OPTION = re.compile(r"(?:^|\s)(?:--conf|-c)[\s=]+[\"']?(spark\.[\w.-]+)=")
_MASTER_OPTION = re.compile(r"(?:^|\s)--master[\s=]")
_FILE_OPTION = re.compile(r"(?:^|\s)--properties-file[\s=]+(\S+)")
_DEFAULT = re.compile(r"^\s*(spark\.[^\s=:]+)", re.MULTILINE)
