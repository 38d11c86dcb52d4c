"""The Python of the workers: what the user says, else that of an archive, else the driver's."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kstream.spark.workers_python import chosen_python, use_workers_python


def test_what_the_user_says_is_not_chosen_anew() -> None:
    assert chosen_python({"PYSPARK_PYTHON": "/opt/py"}, set(), []) is None
    assert chosen_python({}, {"spark.pyspark.python"}, []) is None


def test_without_a_word_of_the_user_it_is_the_drivers_own() -> None:
    assert chosen_python({}, {"spark.master"}, []) == sys.executable


def packed(path: Path, name: str) -> str:
    """An archive with one file."""
    inside = path.parent / "a-python"
    inside.touch()
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as zipped:
            zipped.write(inside, name)
    else:
        with tarfile.open(path, "w:gz") as tar:
            tar.add(inside, name)
    return str(path)


def test_an_archive_with_a_python_is_the_environment_of_the_workers(tmp_path: Path) -> None:
    data, env, zipped = (packed(tmp_path / name, inside) for name, inside in
                         (("data.tar.gz", "data/bin/python.txt"), ("env.tar.gz", "./bin/python"), ("env.zip", "bin/python")))  # fmt: skip
    assert chosen_python({}, set(), [data, f"{env}#environment"]) == "./environment/bin/python"
    assert chosen_python({}, set(), [zipped]) == "./env.zip/bin/python"
    assert chosen_python({}, set(), [data]) == sys.executable


def test_an_archive_of_another_machine_or_a_broken_one_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "broken.tar.gz").write_bytes(b"no archive")
    assert chosen_python({}, set(), ["hdfs://h/env.tar.gz#environment", str(tmp_path / "broken.tar.gz")]) == sys.executable


def context(master: str, **settings: str) -> Any:
    """As much of a SparkContext as is asked: pyspark has given it the `python3` of the PATH."""
    return SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: {k.replace("_", "."): v for k, v in settings.items()})


@pytest.mark.parametrize("master", ["local[2]", "spark://h:7077"])
def test_the_setting_of_a_spark_conf_is_obeyed_which_pyspark_reads_under_spark_submit_only(master: str) -> None:
    sc = context(master, spark_pyspark_python="/opt/py")
    use_workers_python(sc)
    assert sc.pythonExec == "/opt/py"


def test_local_workers_run_the_drivers_python_and_those_of_a_cluster_what_pyspark_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "")
    there, here = context("spark://h:7077"), context("local[2]")
    for sc in (there, here):
        use_workers_python(sc)
    assert (there.pythonExec, here.pythonExec) == ("python3", sys.executable)
