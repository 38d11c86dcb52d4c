"""`kstream run --master spark://…`: a job on a standalone cluster, from the options to the first batch; what is said if it cannot work."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from kstream_kafka.demo.embedded_broker import MockCluster

from integration.spark_cluster import running_cluster
from kstream.cli.exit_codes import RunCode
from tests.cli.streams_to_check import checkpoint as write_checkpoint

ROOT = Path(__file__).resolve().parent.parent
JOB = """
import os
import sys

from pyspark import SparkConf

import helper
import packed
from kstream import StreamingContext


def looked_at(x):
    with open("data.txt") as file:
        return [x, helper.WORD, packed.WORD, file.read(), sys.executable]


def fails(x):
    return helper.fails(x)


def imports_late(x):
    import on_no_executor


def setup():
    conf = SparkConf().setAppName("orders").set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
    conf.set("spark.driver.host", "127.0.0.1")
    if "MASTER" in os.environ:
        conf.setMaster(os.environ["MASTER"])
    ssc = StreamingContext(conf, 0.5)
    stream = ssc.queueStream([[1, 2]])
    function = globals()[os.environ.get("FUNCTION", "looked_at")]
    stream.map(function).foreachRDD(lambda time, rdd: [print("ROW", row, flush=True) for row in rdd.collect()] and ssc.stop())
    return ssc
"""


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_cluster(tmp_path_factory.mktemp("spark") / "cluster", workers=2, cores=1, memory="600m") as cluster:
        yield cluster.url


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A job with a module of its own as a file and another in a zip, a data file, and an environment that is packed."""
    (tmp_path / "job.py").write_text(JOB)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "helper.py").write_text("WORD = 'helped'\n\n\ndef fails(x):\n    raise ValueError(x)\n")
    with zipfile.ZipFile(tmp_path / "packed.zip", "w") as zipped:
        zipped.writestr("packed.py", "WORD = 'packed'\n")
    (tmp_path / "data.txt").write_text("of a file")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexport OF_ARCHIVE=1\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    with tarfile.open(tmp_path / "environment.tar.gz", "w:gz") as tar:
        tar.add(python, "bin/python")
    return tmp_path


MODULES = ("--py-files", "lib/helper.py,packed.zip", "--files", "data.txt")


def run(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`kstream run` of the job. What the driver imports otherwise is not on the executors' path."""
    inherited = {key: value for key, value in os.environ.items() if key not in ("PYSPARK_PYTHON", "PYTHONPATH", "PYSPARK_SUBMIT_ARGS")}
    return subprocess.run(
        [sys.executable, "-m", "kstream.cli", "run", "job.py:setup", "--no-restart", "--checkpoint", "checkpoint", *words],
        cwd=folder, env={**inherited, **environment}, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip


def reason(done: subprocess.CompletedProcess[str]) -> str:
    """The one line that says why `kstream run` has ended."""
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("kstream: ")]
    return line.removeprefix("kstream: ")


@pytest.mark.timeout(400)
def test_a_job_runs_on_a_cluster_with_its_modules_its_files_and_the_drivers_python(master: str, folder: Path) -> None:
    done = run(folder, "--master", master, *MODULES)
    assert done.returncode == RunCode.ENDED, done.stderr
    assert f"ROW [1, 'helped', 'packed', 'of a file', '{sys.executable}']" in done.stdout
    assert re.search(rf"executors on \S+ run {sys.executable} \(Python 3\.", done.stderr)


@pytest.mark.timeout(400)
def test_the_python_of_an_archive_runs_the_tasks(master: str, folder: Path) -> None:
    job = (folder / "job.py").read_text().replace("sys.executable]", "os.environ.get('OF_ARCHIVE')]")
    (folder / "job.py").write_text(job)
    done = run(folder, "--master", master, *MODULES, "--archives", "environment.tar.gz#environment")
    assert done.returncode == RunCode.ENDED, done.stderr
    assert "ROW [1, 'helped', 'packed', 'of a file', '1']" in done.stdout


@pytest.mark.timeout(400)
def test_a_master_in_the_spark_conf_of_the_job_wins_with_one_warning(folder: Path) -> None:
    options = ("--master", "spark://127.0.0.1:1", *MODULES[:2], "--archives", "environment.tar.gz#environment")
    (folder / "job.py").write_text((folder / "job.py").read_text().replace('"data.txt"', "os.devnull"))
    done = run(folder, *options, MASTER="local[1]")
    assert done.returncode == RunCode.ENDED, done.stderr
    assert f"ROW [1, 'helped', 'packed', '', '{sys.executable}']" in done.stdout
    (warning,) = [line for line in done.stderr.splitlines() if "WARNING kstream" in line]
    assert "--master spark://127.0.0.1:1 has no effect, the job runs on local[1]" in warning


@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("options", "python", "said"),
    [
        (MODULES, "/no/such/python", r"the executors cannot run '/no/such/python' as the workers' Python: set PYSPARK_PYTHON"),
        (MODULES, "{bare}", r"the Python of the executors on \S+ \(\S+, version 3\.\S+\) cannot import .*: No module named 'kstream'"),
        (MODULES[2:], "", r"cannot import what the tasks need: ModuleNotFoundError: No module named 'helper'\. .*--py-files"),
    ],
    ids=["no such Python", "a Python without kstream", "a module of the job"],
)
def test_executors_that_cannot_run_the_tasks_end_the_start_with_one_line(
    master: str, folder: Path, options: tuple[str, ...], python: str, said: str
) -> None:
    """Before the first batch: nothing is planned."""
    if python == "{bare}":
        python = str(folder / "venv" / "bin" / "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
    environment = (
        {"PYSPARK_PYTHON": python} if python else {"PYTHONPATH": os.pathsep.join([str(folder / "lib"), str(folder / "packed.zip")])}
    )
    done = run(folder, "--master", master, *options, **environment)
    assert done.returncode == RunCode.CONFIGURATION, done.stderr
    assert re.search(said, reason(done)), reason(done)
    assert "Lost task" not in done.stderr and "not been started" not in done.stderr
    assert not (folder / "checkpoint" / "plans").exists()


@pytest.mark.timeout(400)
def test_the_drivers_python_that_no_executor_has_gives_way_to_their_own(master: str, folder: Path) -> None:
    """Their `python3` is looked at in the same way."""
    program = "import sys; sys.executable = '/only/here/python'; from kstream.cli import main; main()"
    command = [sys.executable, "-c", program, "run", "job.py:setup", "--no-restart", "--checkpoint", "c", "--master", master, *MODULES]
    environment = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert "executors have no /only/here/python, so they run the python3 of their PATH" in done.stderr, done.stderr


WAITS = """
import logging, sys
from pyspark import SparkConf, SparkContext
from kstream.spark.executor_check import Needs, check_executors

logging.basicConfig(level="INFO", format="%(message)s")
conf = SparkConf().setMaster(sys.argv[1]).setAppName("waits").set("spark.ui.enabled", "false").set("spark.executor.memory", "900m")
check_executors(SparkContext(conf=conf), Needs(["kstream"]), by_default=True, longest_s=8)
"""


@pytest.mark.timeout(400)
def test_a_cluster_without_a_free_executor_does_not_hang_the_start(master: str) -> None:
    """No worker has the memory for an executor."""
    done = subprocess.run([sys.executable, "-c", WAITS, master], capture_output=True, text=True, timeout=180, check=True)
    assert "the start waits for executors, to see whether they can run the tasks: for 8 s at most" in done.stderr
    assert (
        "executors not asked whether they can run the tasks of the job, the start goes on: no executor has answered within 8 s"
        in done.stderr
    )


@pytest.mark.timeout(400)
def test_an_error_of_a_task_names_the_users_files_and_not_the_copies_of_an_executor(master: str, folder: Path) -> None:
    done = run(folder, "--master", master, *MODULES, "--verbose", FUNCTION="fails")
    assert done.returncode == RunCode.FAILED_BATCH, done.stderr
    for file in (folder / "job.py", folder / "lib" / "helper.py"):
        assert f'File "{file}", line' in done.stderr, done.stderr
    assert not re.search(r"work/app-\S+\.py", done.stderr), done.stderr


@pytest.mark.timeout(400)
def test_a_module_that_a_task_lacks_is_in_the_log_at_the_first_try_with_its_executor_and_in_the_reason(master: str, folder: Path) -> None:
    done = run(folder, "--master", master, *MODULES, FUNCTION="imports_late")
    assert done.returncode == RunCode.FAILED_BATCH, done.stderr
    lines = done.stderr.splitlines()
    told = [line for line in lines if "Lost task" in line]
    assert re.search(r"\(127\.0\.0\.\d executor \d\): ModuleNotFoundError: No module named 'on_no_executor'$", told[0]), done.stderr
    assert len(told) <= 4 and not any("\tat " in line for line in lines), done.stderr
    assert reason(done).startswith("ModuleNotFoundError: No module named 'on_no_executor' (in output operation 0, foreachRDD at ")
    assert sys.executable in reason(done)


LOSES_BLOCKS = """
import logging, sys
from pyspark import SparkConf, SparkContext
from kstream.spark.jvm_log import quiet_failed_tasks

conf = SparkConf().setMaster(sys.argv[1]).setAppName("loses").set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
sc = SparkContext(conf=conf)
quiet_failed_tasks(sc)
rdd = sc.parallelize(range(4), 2).map(lambda x: x).cache()
rdd.localCheckpoint()
assert rdd.count() == 4
rdd._jrdd.unpersist(True)  # as executors that die lose their blocks
try:
    rdd.count()
except Exception as e:
    print(type(e).__name__)
"""


@pytest.mark.timeout(400)
def test_a_task_that_the_jvm_has_lost_is_one_line_of_sparks_log_with_the_reason(master: str) -> None:
    done = subprocess.run([sys.executable, "-c", LOSES_BLOCKS, master], capture_output=True, text=True, timeout=180, check=True)
    lines = done.stderr.splitlines()
    assert "Py4JJavaError" in done.stdout and any("Lost task" in line and "CHECKPOINT_RDD_BLOCK_ID_NOT_FOUND" in line for line in lines)
    assert not any(line.startswith(("\tat ", "Caused by")) for line in lines) and len(lines) < 25, done.stderr


@pytest.mark.timeout(400)
def test_doctor_asks_every_executor_for_versions_checkpoint_and_brokers(master: str, folder: Path) -> None:
    brokers = MockCluster()
    assert Producer({"bootstrap.servers": brokers.bootstrap}).list_topics("orders", timeout=10).topics
    write_checkpoint(folder / "checkpoint", 0)
    words = ["doctor", "checkpoint", "--spark", "--master", master, "--bootstrap", brokers.bootstrap, "--json"]
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYSPARK_PYTHON", "PYTHONPATH")}
    memory = {"PYSPARK_SUBMIT_ARGS": "--conf spark.executor.memory=512m pyspark-shell"}
    done = subprocess.run(
        [sys.executable, "-m", "kstream.cli", *words],
        cwd=folder,
        env={**inherited, **memory},
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    found = {row["name"]: row for row in json.loads(done.stdout)["checks"] if row["name"].startswith("executors")}
    assert {name: row["verdict"] for name, row in found.items()} == dict.fromkeys(
        ("executors", "executors, checkpoint", "executors, stream 0"), "ok"
    ), done.stdout
    assert "(2 executors)" in found["executors"]["seen"]
    assert not list((folder / "checkpoint").glob("probe-*"))


@pytest.mark.timeout(400)
def test_a_job_with_state_asks_the_executors_for_the_checkpoint_and_spark_warns_of_a_shared_one_no_more(master: str, folder: Path) -> None:
    """All is on one machine here. So a driver that writes its file under another name stands for a directory that executors do not see."""
    state = "stream.map(function).map(lambda row: (row[0], 1)).updateStateByKey(lambda new, old: (old or 0) + len(new))"
    job = JOB.replace("stream.map(function)", state)
    (folder / "job.py").write_text(job)
    done = run(folder, "--master", master, *MODULES)
    assert done.returncode == RunCode.ENDED, done.stderr
    assert "ROW (1, 1)" in done.stdout and "must not be on the local filesystem" not in done.stderr
    assert not list((folder / "checkpoint").glob("probe-*"))
    refused = run(folder, "--master", master, *MODULES, PYTHONPATH=str(stand_in(folder)))
    assert refused.returncode == RunCode.CONFIGURATION, refused.stderr
    assert "the job has state, and executors do not reach its checkpoint" in reason(refused) and "it is another directory" in reason(
        refused
    )


def stand_in(folder: Path) -> Path:
    """A folder for PYTHONPATH that changes the name of the file which the driver writes for the executors."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(
        "import sys\n"
        "if 'kstream.cli' in ' '.join(sys.orig_argv):\n"
        "    import kstream.storage.open as place\n"
        "    write = place.StorePlace.write\n"
        "    place.StorePlace.write = lambda self, name, data: write(self, 'not-' + name, data)\n"
    )
    return site
