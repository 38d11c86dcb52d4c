"""The planner works in a Python that has no pyspark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from tests.kstream_kafka.planning.planned_alone import planned_alone

ROOT = Path(__file__).resolve().parents[3]
REFUSING = """
import importlib.abc, runpy, sys

class Refusing(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyspark", "py4j"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Refusing())
runpy.run_module(sys.argv[1], run_name="__main__")
"""


def run_without_pyspark(module: str) -> subprocess.CompletedProcess[str]:
    path = [str(ROOT), str(ROOT / "connectors")]
    code = f"import sys; sys.path[:0] = {path!r}\n{REFUSING}"
    return subprocess.run([sys.executable, "-c", code, module], capture_output=True, text=True, cwd=ROOT)


def test_a_planner_plans_is_restored_and_survives_a_downtime_without_pyspark() -> None:
    done = run_without_pyspark("tests.kstream_kafka.planner_alone")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == planned_alone()


def test_pyspark_is_refused_there() -> None:
    """Else the test above could not fail."""
    done = run_without_pyspark("kstream_kafka.source.direct_input_dstream")
    assert "No module named 'pyspark" in done.stderr
