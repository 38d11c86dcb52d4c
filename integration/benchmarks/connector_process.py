"""A script of the JVM connector's side, as a process that is given a line at a time and answers each."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from integration.benchmarks.jvm_parts import PartsMissingError
from kstream.spark.java import find_java_home

ANSWER = "rows "
"""Begins the line of an answer: Spark may have something to say on standard output, too."""


@contextmanager
def running_script(python: Path, script: str, arguments: Sequence[object], log: Path) -> Iterator[Callable[[str], Any]]:
    """Yields what sends a line to the script and returns its answer. PartsMissingError when the process ends.

    Args:
        python: a Python with the pyspark that the connector is for.
        script: the path of the script.
        arguments: of the script.
        log: gets what the process says on standard error.
    """
    environment = {**os.environ, "JAVA_HOME": str(find_java_home()), "PYSPARK_PYTHON": str(python)}
    environment.pop("SPARK_HOME", None)
    command = [str(python), script, *map(str, arguments)]
    with open(log, "wb") as said:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said, text=True, env=environment)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None and stdout is not None

    def ask(line: str) -> Any:
        with suppress(BrokenPipeError):
            stdin.write(line + "\n")
            stdin.flush()
        for answer in stdout:
            if answer.startswith(ANSWER):
                return json.loads(answer.removeprefix(ANSWER))
        said = [line for line in log.read_text(errors="replace").splitlines() if "Exception" in line or "Error" in line]
        raise PartsMissingError(f"the JVM connector's process ended: {said[-1][:300] if said else 'it did not say why'}")

    try:
        yield ask
    finally:
        stdin.close()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
