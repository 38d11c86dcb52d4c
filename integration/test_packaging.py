"""The wheel in a clean environment, and the same wheel as a zip under spark-submit."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from integration.clean_venv import ROOT, build_sdist, build_wheel, install, make_bare_venv, make_venv
from integration.exactness.verdict import read_lines
from integration.kafka_broker import KafkaBroker
from kstream.checkpoint import read_log
from kstream.storage import open_store
from tests.kstream_kafka.planning.planned_alone import planned_alone

SLOW_JOB = '''
"""A job whose every batch takes a while, so that a signal meets it in the middle."""
import json, os, sys, time
from pathlib import Path

import kstream
import kstream_kafka
from pyspark import SparkConf

directory, bootstrap, topic = sys.argv[1:4]


def note(name, **record):
    with open(os.path.join(directory, name), "a") as file:
        file.write(json.dumps(record) + "\\n")


def setup():
    ssc = kstream.StreamingContext(SparkConf().setAppName("slow"), 1)
    ssc.sparkContext.setLogLevel("ERROR")
    stream = kstream_kafka.KafkaUtils.createDirectStream(
        ssc, [topic], {"bootstrap.servers": bootstrap, "auto.offset.reset": "smallest"}
    )

    def output(at, rdd):
        note("begun.jsonl", time=str(at), kstream=kstream.__file__)
        time.sleep(1.5)
        note("ended.jsonl", time=str(at), records=rdd.map(lambda kv: 1).sum())

    stream.foreachRDD(output)
    return ssc


ssc = kstream.StreamingContext.getOrCreate(os.path.join(directory, "checkpoint"), setup)
ssc.start()
ssc.awaitTermination()
'''


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(tmp_path_factory.mktemp("dist"))


@pytest.fixture(scope="module")
def clean_venv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_venv(tmp_path_factory.mktemp("newcomer") / "venv")


def test_the_wheel_works_in_a_clean_environment(wheel: Path, clean_venv: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    shutil.copytree(clean_venv, venv, symlinks=True)
    python = venv / "bin" / "python"
    install(venv, wheel)
    code = "import kstream, kstream_kafka, kstream.connectors as c; print(kstream.__file__); print(c.load('kafka').__name__)"
    done = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.splitlines() == [str(next(venv.glob("lib/python*/site-packages/kstream/__init__.py"))), "kstream_kafka"]
    version = subprocess.run([python, "-m", "kstream.cli", "--version"], check=True, capture_output=True, text=True, cwd=tmp_path)
    assert "0.1.0" in version.stdout
    examples = subprocess.run([python, "-m", "kstream.examples"], check=True, capture_output=True, text=True, cwd=tmp_path)
    (listed,) = re.findall(r"spark-submit (\S+) ", examples.stdout)
    assert Path(listed).is_relative_to(venv) and Path(listed).is_file() and "kstream.examples.network_wordcount" in examples.stdout


def test_the_sdist_builds_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    with tarfile.open(build_sdist(tmp_path / "dist")) as sdist:
        sdist.extractall(tmp_path)  # our own: Pythons before 3.10.12 and 3.11.4 have no filter
    (unpacked,) = tmp_path.glob("kstream_spark-*")
    again = build_wheel(tmp_path / "again", unpacked)
    assert again.name == wheel.name
    assert contents(again) == contents(wheel)


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


def test_a_planner_of_the_wheel_plans_in_an_environment_without_pyspark(wheel: Path, tmp_path: Path) -> None:
    """Nothing but the wheel is there, not even what it depends on."""
    venv = make_bare_venv(tmp_path / "venv")
    (site,) = venv.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as unpacked:
        unpacked.extractall(site)
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    command = [venv / "bin" / "python", "-m", "tests.kstream_kafka.planner_alone"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert json.loads(done.stdout) == planned_alone()
    imported = subprocess.run([venv / "bin" / "python", "-c", "import pyspark"], capture_output=True, text=True, env=environment)
    assert "No module named 'pyspark'" in imported.stderr


def test_the_zip_runs_under_spark_submit_and_sigterm_lets_the_batch_finish(
    wheel: Path, clean_venv: Path, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(2)
    kafka.produce(name, (("k", f"v{i}", i % 2) for i in range(100)))
    zipped = tmp_path / "kstream.zip"
    shutil.copyfile(wheel, zipped)
    (tmp_path / "job.py").write_text(SLOW_JOB)
    submit = submit_job(clean_venv, zipped, tmp_path, kafka.bootstrap, name)
    try:
        wait_until(lambda: len(read_lines(tmp_path / "ended.jsonl")) >= 1 and is_in_a_batch(tmp_path), submit, tmp_path)
        submit.send_signal(signal.SIGTERM)
        submit.wait(60)
    finally:
        if submit.poll() is None:
            submit.kill()
    begun, ended = read_lines(tmp_path / "begun.jsonl"), read_lines(tmp_path / "ended.jsonl")
    assert [b["time"] for b in begun] == [e["time"] for e in ended], (tmp_path / "log").read_text()[-3000:]
    assert sum(e["records"] for e in ended) == 100
    assert all("kstream.zip" in b["kstream"] for b in begun)
    assert read_log(open_store(str(tmp_path / "checkpoint"))).pending == []


def submit_job(venv: Path, zipped: Path, directory: Path, bootstrap: str, topic: str) -> subprocess.Popen[bytes]:
    import pyspark

    python = str(venv / "bin" / "python")
    home = Path(pyspark.__file__).parent
    conf = {
        "spark.streaming.stopGracefullyOnShutdown": "true",
        "spark.streaming.gracefulStopTimeout": "60s",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.ui.showConsoleProgress": "false",
    }
    options = [part for key, value in conf.items() for part in ("--conf", f"{key}={value}")]
    environment = {**os.environ, "PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "SPARK_HOME": str(home)}
    with open(directory / "log", "wb") as log:
        return subprocess.Popen(
            [home / "bin" / "spark-submit", "--master", "local[2]", *options, "--py-files", zipped, directory / "job.py",
             directory, bootstrap, topic],
            env=environment, cwd=directory, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
        )  # fmt: skip


def is_in_a_batch(directory: Path) -> bool:
    return len(read_lines(directory / "begun.jsonl")) > len(read_lines(directory / "ended.jsonl"))


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[bytes], directory: Path, seconds: float = 90) -> None:
    end = time.monotonic() + seconds
    while not reached():
        if process.poll() is not None or time.monotonic() > end:
            raise AssertionError((directory / "log").read_text(errors="replace")[-4000:])
        time.sleep(0.05)


def test_the_installed_distribution_is_named_kstream_spark() -> None:
    """`kstreams` is somebody else's."""
    command = [sys.executable, "-m", "pip", "list", "--format", "json"]
    names = {p["name"] for p in json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)}
    assert "kstream-spark" in names and "kstreams" not in names
