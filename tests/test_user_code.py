"""Whose code a frame is, in this process and in the traceback of another."""

from __future__ import annotations

import importlib.metadata
import sys
import traceback
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import click
import kstream_kafka
import pyspark
import pytest

import kstream
from kstream.dstream.recipe import user_call_site
from kstream.entry_points import CONNECTORS
from kstream.user_code import PACKAGES, Owner, frames_of_the_user, is_own, own_packages, owner_elsewhere, owner_of
from kstream.worker.current_record import CurrentRecord
from kstream.worker.record_failure import TRANSFORMATION, RecordStep, failure_of

OF_KSTREAM, OF_KAFKA, OF_SPARK = kstream.__path__[0], kstream_kafka.__path__[0], pyspark.__path__[0]
ACME = """
def call(function):
    return function()
"""


@pytest.fixture
def acme_is_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """As if there were a connector in the module `acme_source.connector`. Its directory is first on the path."""
    package = tmp_path / "lib" / "acme_source"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "reader.py").write_text(ACME)
    installed = [EntryPoint("acme", "acme_source.connector", CONNECTORS)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: installed * (group == CONNECTORS))
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    return package


def acme(package: Path) -> dict[str, object]:
    """The names of the connector's module, whose functions are its code."""
    names: dict[str, object] = {"__name__": "acme_source.reader"}
    exec(compile(ACME, str(package / "reader.py"), "exec"), names)
    return names


# -- in this process


def test_files_of_python_of_packages_and_of_kstream_are_not_the_users() -> None:
    assert owner_of(__file__) is owner_of(__file__, "kstreamer") is owner_of("/home/me/pyspark/job.py", "__main__") is Owner.USER
    assert owner_of(traceback.__file__, "traceback") is owner_of("<frozen runpy>", "runpy") is Owner.PYTHON
    assert owner_of(click.__file__, "click") is Owner.LIBRARY
    assert owner_of("<string>") is owner_of("<stdin>", "__main__") is Owner.NO_FILE
    assert owner_of(f"{OF_SPARK}/rdd.py", "pyspark.rdd") is owner_of("/spark/python/py4j/x.py", "py4j.x") is Owner.SPARK


def test_kstream_and_its_connectors_are_known_where_they_are_not_installed() -> None:
    assert owner_of("/checkout/connectors/kstream_kafka/utils.py", "kstream_kafka.utils") is Owner.KSTREAM
    assert owner_of(f"{OF_KSTREAM}/cli/__main__.py", "__main__") is Owner.KSTREAM
    assert owner_of("/home/me/kstream_kafkaesque.py", "kstream_kafkaesque") is Owner.USER


def test_the_examples_are_the_users() -> None:
    file = f"{OF_KSTREAM}/examples/network_wordcount.py"
    assert owner_of(file, "__main__") is owner_of(file, "kstream.examples.network_wordcount") is Owner.USER
    assert owner_elsewhere(file) is Owner.USER and not is_own("kstream.examples.network_wordcount")


@pytest.mark.usefixtures("acme_is_installed")
def test_the_packages_are_those_that_have_the_modules_of_the_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_packages() == ("kstream", "acme_source", "kstream_kafka")
    assert is_own("acme_source") and is_own("acme_source.reader") and not is_own("acme_sources") and not is_own("acme")
    more = [EntryPoint("a", "corp.sources.mine:hook", CONNECTORS), EntryPoint("b", "corp.sources.others.log", CONNECTORS)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: more)
    monkeypatch.syspath_prepend("another path")
    assert own_packages() == ("kstream", "corp.sources", "kstream_kafka")
    assert is_own("corp.sources.others") and not is_own("corp.jobs")


def test_the_packages_are_looked_up_once_and_again_if_the_path_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: (asked.append(group), [])[1])
    monkeypatch.setattr(sys, "path", [*sys.path, "another path"])
    assert [own_packages() for _ in range(3)] == [("kstream", "kstream_kafka")] * 3 and asked == [CONNECTORS]
    monkeypatch.setattr(sys, "path", [*sys.path, "a third"])
    assert own_packages() == ("kstream", "kstream_kafka") and len(asked) == 2


def test_a_worker_has_the_packages_of_its_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: pytest.fail("the worker has searched its path"))
    monkeypatch.setenv(PACKAGES, "kstream,acme_source")
    assert own_packages() == ("kstream", "acme_source") and is_own("acme_source.reader")


# -- a connector of a third party


def test_a_call_through_a_connector_is_a_call_of_the_users_line(acme_is_installed: Path) -> None:
    call = acme(acme_is_installed)["call"]
    assert callable(call)
    assert call(user_call_site).file == __file__


def test_an_error_has_no_frame_of_a_connector(acme_is_installed: Path) -> None:
    call = acme(acme_is_installed)["call"]
    assert callable(call)
    with pytest.raises(ValueError, match="'x'") as caught:
        call(lambda: int("x"))
    assert [entry.tb_frame.f_code.co_filename for entry in frames_of_the_user(caught.value.__traceback__)] == [__file__] * 2
    step = RecordStep(TRANSFORMATION, "map at job.py:7", "job.parse")
    stack = failure_of(caught.value, CurrentRecord("orders", 0, 1), step).stacktrace
    assert "acme_source" not in stack and stack.count(__file__) == 2


# -- in the traceback of another process


def test_a_file_of_another_machine_is_kstreams_if_this_process_has_it_too(acme_is_installed: Path) -> None:
    ours = ["kstream/worker/process.py", "kstream.zip/kstream/__init__.py", "kstream_kafka/reader/kafka_rdd.py", "acme_source/reader.py"]
    for file in ours:
        assert owner_elsewhere(f"/opt/venv/lib/python3.11/site-packages/{file}") is Owner.KSTREAM
    for file in ("kstream/job.py", "kstream/job.worker.py", "acme_source/job.py", "kstream_kafka/reader/mine/kafka_rdd.py", "kstream"):
        assert owner_elsewhere(f"/home/me/{file}") is Owner.USER


def test_a_connector_in_a_zip_is_known_from_its_zip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(tmp_path / "c.zip", "w") as archive:
        archive.writestr("kstream_pulsar/__init__.py", "")
        archive.writestr("kstream_pulsar/inner/__init__.py", "")
        archive.writestr("kstream_pulsar/inner/reader.py", "")
        archive.writestr("kstream_pulsar/entry_points.txt", "[kstream.connectors]\npulsar = kstream_pulsar\n")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path / "c.zip")])
    assert owner_elsewhere("/executor/work/0/c.zip/kstream_pulsar/inner/reader.py") is Owner.KSTREAM
    assert owner_elsewhere("/executor/work/0/c.zip/kstream_pulsar/inner/other.py") is Owner.USER


def test_files_of_spark_python_and_libraries_of_another_machine_are_known_by_their_paths() -> None:
    site = "/opt/venv/lib/python3.11/site-packages"
    assert owner_elsewhere(f"{site}/pyspark/python/lib/pyspark.zip/pyspark/worker.py") is Owner.SPARK
    assert owner_elsewhere("/usr/lib64/python3.9/json/decoder.py") is owner_elsewhere("<frozen importlib._bootstrap>") is Owner.PYTHON
    assert owner_elsewhere(f"{site}/pydantic/main.py") is owner_elsewhere("/usr/lib/python3/dist-packages/x.py") is Owner.LIBRARY
    assert owner_elsewhere("C:\\jobs\\job.py") is owner_elsewhere("/home/me/job.py") is Owner.USER
    assert owner_elsewhere("<stdin>") is Owner.NO_FILE
