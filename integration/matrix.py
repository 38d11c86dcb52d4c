"""`make matrix`: real jobs on each pyspark and each Python that kstream says it works on; the table of docs/compatibility.md.

    python -m integration.matrix [PYSPARK …] [--python X.Y …]

uv makes an environment for each cell, and installs the wheel or the sdist with its extra `spark`. Then `matrix_cell.py` runs there,
with one real broker for all. The cells that were run replace theirs in `matrix.json`, and the table is written anew from that file.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from integration import matrix_cell
from integration.clean_venv import ROOT, build_sdist, build_wheel

RESULTS = ROOT / "integration" / "matrix.json"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- python -m integration.matrix writes this table -->", "<!-- the table ends here -->"
PYSPARKS = {"3.5.9": ("3.10", "3.11", "3.12", "3.13"), "4.0.5": ("3.10", "3.11", "3.12", "3.13"), "4.2.1": ("3.10", "3.11", "3.12", "3.13"),
            "4.3.0": ("3.11", "3.12", "3.13")}  # fmt: skip
"""The newest release of each line, and the Pythons that both it and kstream allow."""
HEADINGS = {
    "job": "a stream with state, a window and `foreachBatch`, killed",
    "frames": "`createDataFrame`",
    "source": '`readStream` `format("kstream")`',
    "sink": '`writeStream` `format("kstream")`',
}
SECONDS = 800


@dataclass(frozen=True)
class Cell:
    """A pyspark and a Python."""

    pyspark: str
    python: str

    @property
    def installs(self) -> str:
        """What is installed: the wheel, or the sdist."""
        return "sdist" if self.python in ("3.10", "3.12") else "wheel"


class Row(TypedDict):
    """What was found in a cell: by check `ok`, or `failed` and the reason; `all`, if the cell did not get to its end."""

    pyspark: str
    python: str
    installs: str
    checks: dict[str, str]


def uv() -> str:
    """The program; the one that is installed beside this Python, if there is one."""
    beside = Path(sys.executable).with_name("uv")
    return str(beside) if beside.exists() else shutil.which("uv") or sys.exit("matrix: no uv; make install brings it")


def install(cell: Cell, dists: dict[str, Path], venv: Path) -> Path:
    """Makes the environment of a cell; returns its Python. CalledProcessError if it cannot be had."""
    python = venv / "bin" / "python"
    _run([uv(), "venv", "--quiet", "--no-python-downloads", "--python", cell.python, str(venv)])
    requirement = f"kstream-spark[spark] @ {dists[cell.installs].as_uri()}"
    _run([uv(), "pip", "install", "--quiet", "--python", str(python), requirement, f"pyspark=={cell.pyspark}"])
    return python


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)


def run_cell(python: Path, folder: Path, bootstrap: str, *checks: str) -> dict[str, str]:
    """What each check said, by its name."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "SPARK_HOME")}
    command = [str(python), matrix_cell.__file__, str(folder), bootstrap, *checks]
    with open(folder / "log", "wb") as log:
        done = subprocess.run(
            command, env=environment, cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, timeout=SECONDS, check=False
        )
    said = [line.split(" ", 1) for line in done.stdout.splitlines()]
    results = {line[0]: line[1] for line in said if line[0] in matrix_cell.CHECKS}
    if done.returncode != 0:
        results["all"] = f"failed {' '.join((folder / 'log').read_text(errors='replace').split())[-300:]}"
    return results


def table(results: Sequence[Row]) -> str:
    """All cells as Markdown, in the words of `_word`."""
    lines = ["| pyspark | Python | " + " | ".join(HEADINGS.values()) + " |", "|" + "---|" * (len(HEADINGS) + 2)]
    found = {(row["pyspark"], row["python"]): row for row in results}
    for pyspark, pythons in PYSPARKS.items():
        for python in pythons:
            row = found.get((pyspark, python))
            words = [_word(row, name) if row else "not run" for name in HEADINGS]
            lines.append(f"| {pyspark} | {python}, {Cell(pyspark, python).installs} | " + " | ".join(words) + " |")
    return "\n".join(lines)


def _word(row: Row, name: str) -> str:
    """What a row says of a check. A check that a pyspark has not, as data sources before 4.0, is a dash."""
    said = row["checks"].get(name) or row["checks"].get("all", "–")
    return {"ok": "works", "failed": "fails"}.get(said.partition(" ")[0], said)


def written_page(page: str, results: Sequence[Row]) -> str:
    """The page with the table of these results."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(results)}\n\n{END}{after}"


def stored() -> list[Row]:
    """The rows of the last runs, the oldest pyspark first."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else []


def keep(new: Row) -> None:
    """Replaces the row of a cell, and writes the page."""
    rows = {(row["pyspark"], row["python"]): row for row in [*stored(), new]}
    ordered = [rows[key] for key in sorted(rows, key=lambda key: [int(n) for part in key for n in part.split(".")])]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    PAGE.write_text(written_page(PAGE.read_text(), ordered))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m integration.matrix")
    parser.add_argument("pyspark", nargs="*", default=list(PYSPARKS))
    parser.add_argument("--python", nargs="*", default=None, help="X.Y; all that the pyspark allows unless given")
    given = parser.parse_args()
    from integration.kafka_broker import running_broker

    failed = 0
    with tempfile.TemporaryDirectory(prefix="matrix-") as work:
        dists = {"wheel": build_wheel(Path(work) / "dist"), "sdist": build_sdist(Path(work) / "dist")}
        with running_broker(Path(work) / "kafka") as broker:
            cells = [Cell(spark, python) for spark in given.pyspark for python in given.python or PYSPARKS[spark]]
            for cell in cells:
                began = time.monotonic()
                folder = Path(work) / f"cell-{cell.pyspark}-{cell.python}"
                folder.mkdir()
                try:
                    checks = run_cell(install(cell, dists, folder / "venv"), folder, broker.bootstrap)
                except subprocess.CalledProcessError as e:
                    checks = {"all": f"failed {' '.join(e.stderr.split())[-300:]}"}
                except subprocess.TimeoutExpired:
                    checks = {"all": f"failed it did not end within {SECONDS} s"}
                print(f"{cell.pyspark} {cell.python} {cell.installs} {time.monotonic() - began:.0f} s: {checks}", flush=True)
                failed += any(not said.startswith("ok") for said in checks.values())
                results = {name: said.split()[0] if said.startswith("ok") else said for name, said in checks.items()}
                keep({"pyspark": cell.pyspark, "python": cell.python, "installs": cell.installs, "checks": results})
                shutil.rmtree(folder)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
