"""The options of spark-submit that `kstream run` takes: they reach the JVM as they do from spark-submit."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from kstream.errors import ConfigurationError
from kstream.spark.submit_args import NO_OPTIONS, SUBMIT_ARGS, SubmitOptions, given_names


def applied(options: SubmitOptions, **environ: str) -> list[str] | None:
    options.apply(environ)
    return shlex.split(environ[SUBMIT_ARGS]) if SUBMIT_ARGS in environ else None


def test_options_stand_before_the_program_and_behind_those_that_are_there() -> None:
    options = SubmitOptions.of("spark://h:7077", "a.zip, b.egg", "env.tar.gz#environment", "with space.txt")
    mine = [
        *("--master", "spark://h:7077", "--py-files", "a.zip,b.egg", "--archives", "env.tar.gz#environment"),
        "--files",
        "with space.txt",
    ]
    assert applied(options) == [*mine, "pyspark-shell"]
    assert applied(options, PYSPARK_SUBMIT_ARGS="--master local pyspark-shell") == ["--master", "local", *mine, "pyspark-shell"]
    assert applied(options, PYSPARK_SUBMIT_ARGS="--conf a=b") == ["--conf", "a=b", *mine]


def test_without_an_option_nothing_changes() -> None:
    assert applied(SubmitOptions.of(None, None, None, None)) is None and NO_OPTIONS.words() == []


def test_a_py_file_of_this_machine_is_left_to_kstream_and_one_of_a_url_to_spark() -> None:
    options = SubmitOptions.of(None, "helper.py,a.zip,s3://b/other.py", None, None)
    assert options.modules == [Path("helper.py")]
    assert applied(options) == ["--py-files", "a.zip,s3://b/other.py", "pyspark-shell"]
    assert applied(SubmitOptions.of(None, "helper.py", None, None)) is None


def test_a_driver_of_the_supervisor_gets_the_same_options() -> None:
    options = SubmitOptions.of("spark://h:7077", "helper.py,a.zip", "env.tar.gz#environment", "f")
    master, py_files, archives, files = options.words()[1::2]
    assert SubmitOptions.of(master, py_files, archives, files) == options


def test_a_file_that_is_not_there_is_named_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "env.tar.gz").touch()
    SubmitOptions.of(None, "hdfs://h/a.zip,lib/*.zip", f"{tmp_path}/env.tar.gz#environment", None).check({})
    with pytest.raises(ConfigurationError, match=r"there is no file nix\.zip"):
        SubmitOptions.of(None, "nix.zip", None, None).check({})


def test_under_spark_submit_an_option_is_refused_for_the_jvm_runs_already() -> None:
    NO_OPTIONS.check({"PYSPARK_GATEWAY_PORT": "1"})
    with pytest.raises(ConfigurationError, match="--master has no effect under spark-submit"):
        SubmitOptions.of("spark://h:7077", None, None, None).check({"PYSPARK_GATEWAY_PORT": "1"})


def test_an_option_is_a_setting_of_this_process_which_wins_over_a_stored_one(tmp_path: Path) -> None:
    empty = {"SPARK_CONF_DIR": str(tmp_path)}
    assert given_names("--master spark://h:1 --archives a pyspark-shell", empty) == {"spark.master", "spark.archives"}
    assert given_names("--py-files=a.zip pyspark-shell", empty) == {"spark.submit.pyFiles", "spark.files"}
    assert given_names("pyspark-shell", empty) == set()
