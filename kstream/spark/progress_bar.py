"""Spark's progress bar is off where standard error is no terminal: in a log its line would run into the next one.

Imports no pyspark: a supervisor sets this for its drivers, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import MutableMapping

from kstream.spark.java import under_spark_submit
from kstream.spark.submit_args import SHELL, SUBMIT_ARGS, given_names

SHOW = "spark.ui.showConsoleProgress"
"""Spark turns it on where its launcher gets `pyspark-shell`, as in a shell."""


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
    given = environ.get(SUBMIT_ARGS, SHELL)
    if not is_terminal and not under_spark_submit(environ) and SHOW not in given_names(given, environ):
        environ[SUBMIT_ARGS] = f"--conf {SHOW}=false {given}"
