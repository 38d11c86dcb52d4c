"""Spark's own Kafka source in another process, whose Spark may be an older one: the other side of each differential of `format("kstream")`.

with running_peer(folder) as ask: ask({"options": {…}}) == rows_of(spark, "kstream", {"options": {…}})

The process has kstream on its path, too: `ask({"source": "kstream", …})` is the data source on that Spark.
"""

from __future__ import annotations

import json
import os
import subprocess
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from integration import structured_queries
from integration.benchmarks.jvm_parts import connector_parts, connector_parts_of
from integration.clean_venv import ROOT, make_bare_venv

Ask: TypeAlias = Callable[[dict[str, Any]], list[list[Any]]]
"""Returns the rows of a query, as `structured_queries` knows it."""


@contextmanager
def running_peer(folder: Path, version: str | None = None) -> Iterator[Ask]:
    """A process that answers queries, for the length of a with block.

    Args:
        folder: for its Python; empty or not there.
        version: of pyspark and of Spark's own source; None for that of this environment, or one that is surely there.

    Raises:
        PartsMissingError: pyspark or the source of that version cannot be fetched.
    """
    found, jars = connector_parts()[:2] if version is None else connector_parts_of(version)
    python = _python_beside(found, folder)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "connectors"))), "PYSPARK_PYTHON": str(python)}
    command = [str(python), structured_queries.__file__, ",".join(map(str, jars))]
    with subprocess.Popen(command, env=environment, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None and process.stdout is not None

        def ask(query: dict[str, Any]) -> list[list[Any]]:
            print(json.dumps(query), file=process.stdin, flush=True)
            for line in process.stdout or ():
                if line.startswith("rows "):
                    return json.loads(line.removeprefix("rows "))
                assert not line.startswith("error "), f"{query} has failed: {line}"
            raise AssertionError(f"the process with Spark's own source has ended in {query}")

        yield ask
        process.stdin.close()
        process.wait(60)


def _python_beside(found: Path, folder: Path) -> Path:
    """Return the Python of a new environment that has the packages of that one first, then those of this one: pyarrow, confluent_kafka."""
    venv = make_bare_venv(folder / "venv")
    (site,) = venv.glob("lib/python*/site-packages")
    (older,) = found.parent.parent.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{older}\n{sysconfig.get_path('purelib')}\n")
    return venv / "bin" / "python"
