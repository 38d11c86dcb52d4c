"""The check of the matrix on two older pysparks, in each run of the suite: the newest 3.5, and the first with data sources in Python.

All cells: `make matrix`. The queries of the older Spark are in test_structured_on_other_sparks.py.
"""

from __future__ import annotations

import os
import subprocess
import sysconfig
import zipfile
from pathlib import Path

import pytest

from integration.benchmarks.jvm_parts import OLDER, python_with_pyspark
from integration.clean_venv import build_wheel, make_bare_venv
from integration.kafka_broker import KafkaBroker
from integration.matrix import run_cell

NEWEST_3_5 = "3.5.9"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.mark.timeout(600)  # pyspark is fetched where it is not there yet
@pytest.mark.parametrize(("version", "checks"), [(NEWEST_3_5, ("job", "frames")), (OLDER, ("job",))])
def test_a_job_that_is_killed_is_exact_on_an_older_pyspark(
    version: str, checks: tuple[str, ...], wheel: Path, kafka: KafkaBroker, tmp_path: Path
) -> None:
    python = python_with_the_wheel(version, wheel, tmp_path)
    code = "import kstream, pyspark; print(kstream.__file__, pyspark.__version__)"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    told = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert told.stdout.split() == [str(next(tmp_path.glob("venv/lib/python*/site-packages/kstream/__init__.py"))), version]
    folder = tmp_path / f"cell-{version}"
    folder.mkdir()
    results = run_cell(python, folder, kafka.bootstrap, *checks)
    assert [said.partition(" ")[0] for said in results.values()] == ["ok"] * len(checks), results


def python_with_the_wheel(version: str, wheel: Path, folder: Path) -> Path:
    """The Python of a new environment with that pyspark and with the wheel; all else is that of this environment."""
    (older,) = python_with_pyspark(version).parent.parent.glob("lib/python*/site-packages")
    venv = make_bare_venv(folder / "venv")
    (site,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as unpacked:
        unpacked.extractall(site)
    (site / "packages.pth").write_text(f"{older}\n{sysconfig.get_path('purelib')}\n")
    return venv / "bin" / "python"
