"""A real ZooKeeper on loopback, as a process from pyspark's own jars.

with running_zookeeper(directory) as zookeeper: zookeeper.hosts; zookeeper.kill9(); zookeeper.start()
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from integration.kafka_node import die_with_parent, free_ports
from kstream.spark.java import find_java_home

_JARS = Path(pyspark.__file__).parent / "jars"
_NEEDED = (
    "zookeeper", "slf4j-api-", "log4j-", "netty-", "metrics-core-", "snappy-java-", "commons-io-", "commons-lang3-", "commons-cli-",
    "jackson-",
)  # fmt: skip
_JVM = ("-Xms32m", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
_START_S = 90


class ZooKeeperError(RuntimeError):
    """ZooKeeper did not do what was asked; one line that names the log."""


class ZooKeeper:
    """One standalone server; data, settings and log lie under `directory`. The port stays over restarts.

    Ticks of 500 ms: sessions of one second are granted, and end that quickly.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (self._port,) = free_ports(1)
        self._java = find_java_home(os.environ) / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        """What clients are given as the quorum."""
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        """Of the server, which was started."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """The first time, or again with its data; returns when it serves. ZooKeeperError if it does not. From the main thread."""
        jars = [str(jar) for jar in sorted(_JARS.glob("*.jar")) if jar.name.startswith(_NEEDED)]
        if not any("zookeeper-3" in jar for jar in jars):
            raise ZooKeeperError(f"there is no zookeeper-3*.jar in {_JARS}: is this pyspark from PyPI?")
        options = [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}", "-cp", ":".join(jars)]
        main = ["org.apache.zookeeper.server.quorum.QuorumPeerMain", str(self._settings())]  # one server, since none are named
        with open(self._log, "ab") as log:
            self._process = subprocess.Popen(
                [str(self._java), *_JVM, *options, *main],
                stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, cwd=self.directory, preexec_fn=die_with_parent,
            )  # fmt: skip
        end = time.monotonic() + _START_S
        while not self._serves():
            if time.monotonic() > end or self._process.poll() is not None:
                self.kill9()
                raise ZooKeeperError(f"ZooKeeper did not come up: {self._log}")
            time.sleep(0.05)

    def kill9(self) -> None:
        """SIGKILL; returns when it is gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(how)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    @property
    def _log(self) -> Path:
        return self.directory / "zookeeper.log"

    def _settings(self) -> Path:
        (self.directory / "data").mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(_LOG4J)
        settings = {
            "tickTime": 500, "minSessionTimeout": 1000, "maxSessionTimeout": 60000, "dataDir": self.directory / "data",
            "clientPort": self._port, "clientPortAddress": "127.0.0.1", "admin.enableServer": "false",
            "4lw.commands.whitelist": "srvr", "maxClientCnxns": 0,
        }  # fmt: skip
        path = self.directory / "zoo.cfg"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return path

    def _serves(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 2) as connection:
                connection.sendall(b"srvr")
                return b"Mode:" in b"".join(iter(lambda: connection.recv(4096), b""))
        except OSError:
            return False


@contextmanager
def running_zookeeper(directory: Path) -> Iterator[ZooKeeper]:
    """A server for the length of a with block."""
    server = ZooKeeper(directory)
    try:
        server.start()
        yield server
    finally:
        server.stop()
