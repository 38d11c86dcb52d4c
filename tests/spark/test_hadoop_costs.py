"""Requests to a store on Hadoop's file systems cost few calls to the JVM."""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark import SparkContext

from kstream.spark.hadoop_file_store import HadoopFileStore


def test_a_request_looks_no_java_class_up_by_its_name(sc: SparkContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A look-up by name takes a call for each part of the name, and the JVM searches its class path for each."""
    store = HadoopFileStore(f"file://{tmp_path}")
    store._root = f"file:{tmp_path}"  # a store of HDFS always has an authority, Hadoop's local file system takes none
    commands: list[str] = []
    send = ClientServerConnection.send_command
    monkeypatch.setattr(ClientServerConnection, "send_command", lambda self, command: (commands.append(command), send(self, command))[1])
    store.create("plans/1-1", b"plan")
    assert store.read("plans/1-1") == b"plan" and store.exists("plans/1-1") and store.list("plans") == ["1-1"]
    store.delete("plans/1-1")
    assert not store.exists("plans/1-1")
    assert len(commands) > 10 and [command for command in commands if command.startswith("r\n")] == []
