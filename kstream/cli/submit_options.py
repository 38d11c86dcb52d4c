"""The options of `kstream` that go to Spark as those of spark-submit do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def submit_options(command: Command) -> Command:
    """Add `--master`, `--py-files`, `--archives` and `--files`: the arguments `master`, `py_files`, `archives` and `files` of a command."""
    options = (
        click.option(
            "--master", metavar="URL", help="The master of Spark, such as spark://host:7077. A master in the job's SparkConf wins."
        ),
        click.option(
            "--py-files", metavar="FILES", help="Comma-separated .py, .zip and .egg files that the job imports, here and on the executors."
        ),
        click.option(
            "--archives",
            metavar="FILES",
            help="Comma-separated archives that each executor unpacks: env.tar.gz#environment into ./environment. If one has bin/python, "
            "the executors run it, unless PYSPARK_PYTHON or spark.pyspark.python says otherwise.",
        ),
        click.option("--files", metavar="FILES", help="Comma-separated files for the working directory of each executor."),
    )
    for option in reversed(options):
        command = option(command)
    return command
