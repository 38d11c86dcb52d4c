"""The JVM that a worker starts for Hadoop: of what, and what is said where that does not work."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.errors import KStreamError, StorageError
from kstream.spark import java_gateway
from kstream.spark.java_gateway import class_path_of, launch_in_worker

BACKEND = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


def above(monkeypatch: pytest.MonkeyPatch, *command: str) -> None:
    monkeypatch.setattr(java_gateway, "jvm_above_this_process", lambda: (1, list(command)))


def script(folder: Path, text: str) -> str:
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{text}\n")
    java.chmod(0o700)
    return str(java)


def test_the_class_path_is_the_executors_however_it_was_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CLASSPATH", "/yarn/*")
    assert class_path_of(["java", "-cp", "/conf:/jars/*", "-Xmx1g", BACKEND, "--cores", "2"]) == "/conf:/jars/*"
    assert class_path_of(["java", "-Xmx1g", "-classpath", "/jars/*", BACKEND]) == "/jars/*"
    assert class_path_of(["java", "-server", BACKEND]) == "/yarn/*"


def test_a_process_below_another_java_or_none_is_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    above(monkeypatch, "/usr/bin/java", "-jar", "agent.jar")
    assert launch_in_worker() is None

    def none() -> tuple[int, list[str]]:
        raise KStreamError("no Java")

    monkeypatch.setattr(java_gateway, "jvm_above_this_process", none)
    assert launch_in_worker() is None


def test_an_executor_whose_java_is_gone_is_one_clear_error(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    above(monkeypatch, str(tmp_path / "bin" / "java"), "-cp", "x", BACKEND)
    with pytest.raises(StorageError, match=r"no JVM for Hadoop could be started by the Python worker \d+ on .*: /.*/java: No such file"):
        launch_in_worker()


def test_a_java_that_ends_at_once_is_told_with_its_last_words(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    above(monkeypatch, script(tmp_path, "echo 'Picked up JDK_JAVA_OPTIONS'; echo 'no such class' >&2; exit 3"), "-cp", "x", BACKEND)
    with pytest.raises(StorageError, match=r"Java ended with 3: Picked up JDK_JAVA_OPTIONS \| no such class\."):
        launch_in_worker()


def test_warnings_before_the_port_are_passed_over_and_hdfs_is_spoken_to_in_the_name_of_sparks_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SPARK_USER", "ann")
    monkeypatch.delenv("HADOOP_USER_NAME", raising=False)
    said = f'echo "Picked up"; echo 4711; echo token; echo "$HADOOP_USER_NAME $@" > {tmp_path}/said; read nothing'
    above(monkeypatch, script(tmp_path, said), "-cp", "/jars/*", BACKEND)
    gateway = launch_in_worker()
    assert (gateway.gateway_parameters.port, gateway.gateway_parameters.auth_token) == (4711, "token")
    gateway.proc.stdin.close()
    assert gateway.proc.wait(30) == 1  # `read` met the end of the input: as it would at the end of this process
    told = (tmp_path / "said").read_text().split()
    assert told[0] == "ann" and told[-6:] == ["-cp", "/jars/*", "py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"]
