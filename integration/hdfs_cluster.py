"""A real namenode and a real datanode on loopback, each a process; from Hadoop's minicluster jar beside the jars of pyspark.

with running_hdfs(directory) as hdfs: hdfs.url("checkpoints/orders"); hdfs.kill_namenode(); hdfs.start_namenode()
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark

from integration.kafka_jars import CACHE, jar_alone
from integration.kafka_node import die_with_parent, free_ports
from kstream.spark.java import find_java_home

_SPARK_JARS = Path(pyspark.__file__).parent / "jars"
_SERVER = "org.apache.hadoop.hdfs.server"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "--add-opens=java.base/java.lang=ALL-UNNAMED")
_DEADLINE_S = 300  # seconds on an idle machine


class HdfsError(RuntimeError):
    """HDFS did not do what was asked; one line that names the log."""


def minicluster_jar() -> Path:
    """Hadoop's servers in one jar, of the version of pyspark's client; fetched once into `.cache/`. JarsMissingError if that fails."""
    version = re.search(r"hadoop-client-api-(.+)\.jar", next(_SPARK_JARS.glob("hadoop-client-api-*.jar")).name)
    assert version is not None
    coordinates = f"org.apache.hadoop:hadoop-client-minicluster:{version[1]}"
    return jar_alone(coordinates, CACHE / f"hadoop-{version[1]}" / "minicluster.jar")


class Hdfs:
    """One namenode and one datanode; data, settings and logs lie under `directory`. Ports stay over restarts."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._port, self._http = free_ports(2)
        self._java = find_java_home(os.environ) / "bin" / "java"
        self._class_path = f"{directory / 'conf'}:{minicluster_jar()}:{_SPARK_JARS}/*"
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def url(self, path: str) -> str:
        return f"hdfs://127.0.0.1:{self._port}/{path}"

    def start(self) -> None:
        """Formats and starts both; returns when a file can be written."""
        (self.directory / "conf").mkdir(parents=True)
        (self.directory / "conf" / "hdfs-site.xml").write_text(_xml(self._settings()))
        (self.directory / "conf" / "core-site.xml").write_text(_xml({"fs.defaultFS": self.url("")}))
        if self._run("namenode.NameNode", "-format", "-force", "-nonInteractive").wait(_DEADLINE_S) != 0:
            raise HdfsError(f"the namenode could not be formatted: {self.directory / 'namenode.NameNode.log'}")
        self._processes["datanode"] = self._run("datanode.DataNode")
        self.start_namenode()

    def start_namenode(self) -> None:
        """The first time, or again with its data, unless it runs; returns when it serves and knows its datanode."""
        if "namenode" not in self._processes or self._processes["namenode"].poll() is not None:
            self._processes["namenode"] = self._run("namenode.NameNode")
        end = time.monotonic() + _DEADLINE_S
        while not self._serves():
            if time.monotonic() > end or self._processes["namenode"].poll() is not None:
                raise HdfsError(f"HDFS did not come up: {self.directory}/*.log")
            time.sleep(0.2)

    def kill_namenode(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._processes["namenode"].kill()
        self._processes["namenode"].wait()

    def restart_datanode(self) -> None:
        """SIGKILL, and again with its data, on another port; returns when the namenode knows it there."""
        before = self._datanodes()
        self._processes["datanode"].kill()
        self._processes["datanode"].wait()
        self._processes["datanode"] = self._run("datanode.DataNode")
        end = time.monotonic() + _DEADLINE_S
        while not self._datanodes() - before:
            if time.monotonic() > end or self._processes["datanode"].poll() is not None:
                raise HdfsError(f"the datanode did not come up again: {self.directory}/*.log")
            time.sleep(0.2)

    def stop(self) -> None:
        for process in self._processes.values():
            if process.poll() is None:
                process.kill()
            process.wait()

    def _run(self, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        logs = f"-Dhadoop.log.dir={self.directory}"
        with open(self.directory / f"{main}.log", "ab") as log:
            return subprocess.Popen(
                [str(self._java), *_JVM, logs, "-cp", self._class_path, f"{_SERVER}.{main}", *arguments],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.directory, preexec_fn=die_with_parent,
            )  # fmt: skip

    def _serves(self) -> bool:
        told = self._told("FSNamesystemState")
        return bool(told) and told["FSState"] == "Operational" and told["NumLiveDataNodes"] == 1

    def _datanodes(self) -> set[str]:
        return set(json.loads(self._told("NameNodeInfo")["LiveNodes"]))

    def _told(self, bean: str) -> dict[str, Any]:
        """One of the namenode's own reports; empty while it has none."""
        query = f"http://127.0.0.1:{self._http}/jmx?qry=Hadoop:service=NameNode,name={bean}"
        try:
            with urllib.request.urlopen(query, timeout=5) as answer:
                return next(iter(json.load(answer)["beans"]), {})
        except (OSError, ValueError):
            return {}

    def _settings(self) -> dict[str, object]:
        return {
            "dfs.namenode.name.dir": self.directory / "name",
            "dfs.datanode.data.dir": self.directory / "data",
            "dfs.namenode.rpc-address": f"127.0.0.1:{self._port}",
            "dfs.namenode.rpc-bind-host": "127.0.0.1",
            "dfs.namenode.http-address": f"127.0.0.1:{self._http}",
            "dfs.datanode.address": "127.0.0.1:0",
            "dfs.datanode.ipc.address": "127.0.0.1:0",
            "dfs.datanode.http.address": "127.0.0.1:0",
            "dfs.datanode.hostname": "127.0.0.1",
            "dfs.namenode.datanode.registration.ip-hostname-check": "false",
            "dfs.namenode.safemode.extension": 0,
            "dfs.heartbeat.interval": 1,
            "dfs.replication": 1,
            "dfs.permissions.enabled": "false",
        }


def _xml(settings: dict[str, object]) -> str:
    properties = "".join(f"<property><name>{key}</name><value>{value}</value></property>" for key, value in settings.items())
    return f"<configuration>{properties}</configuration>\n"


@contextmanager
def running_hdfs(directory: Path) -> Iterator[Hdfs]:
    hdfs = Hdfs(directory)
    try:
        hdfs.start()
        yield hdfs
    finally:
        hdfs.stop()
        shutil.rmtree(directory / "data", ignore_errors=True)
