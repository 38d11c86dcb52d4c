"""One KRaft node of Apache Kafka as a process of its own, from jars, on loopback. `kafka_broker` and `kafka_cluster` are made of it.

A node is broker and controller in one. It ends with the run that started it, however that ends.
"""

from __future__ import annotations

import base64
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from integration import class_archives
from integration.class_archives import reading
from integration.kafka_jars import KAFKA, kafka_jars
from kstream.spark.java import find_java_home

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
READY = "Kafka Server started"
START_S = 90


class BrokerError(RuntimeError):
    """The broker did not do what was asked; one line, which names the log."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now, below those that systems give to outgoing connections.

    From that range a client that retries a dead broker could be given the broker's own port, and keep it from coming back.
    """
    ports: list[int] = []
    for port in random.sample(range(20000, 32000), 200):
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            continue
        ports.append(port)
        if len(ports) == count:
            return ports
    raise BrokerError(f"no {count} free ports between 20000 and 32000 on 127.0.0.1")


def cluster_id() -> str:
    """A new cluster's id, in Kafka's form."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")


def node_properties(
    number: int, bind: str, port: int, controllers: Mapping[int, int], data: object, settings: Mapping[str, object]
) -> dict[str, object]:
    """A node's settings: it listens to clients at address `bind`, and to the other nodes on loopback.

    `controllers` are the nodes' numbers and controller ports; of one node everything has one replica, of three it has three, and two
    must be in sync. `settings` win over all of it.
    """
    replicas = min(3, len(controllers))
    in_sync = max(1, replicas - 1)
    return {
        "process.roles": "broker,controller",
        "node.id": number,
        "listeners": f"PLAINTEXT://{bind}:{port},CONTROLLER://127.0.0.1:{controllers[number]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": ",".join(f"{n}@127.0.0.1:{at}" for n, at in controllers.items()),
        "log.dirs": data,
        "auto.create.topics.enable": "false",
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "offsets.topic.num.partitions": 1,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "transaction.state.log.num.partitions": 1,
        "group.initial.rebalance.delay.ms": 0,
        "broker.session.timeout.ms": 3000,  # what a restart after kill -9 waits for
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.dedupe.buffer.size": 8388608,
        "log.retention.ms": -1,  # tests write records of 1970 and 2023: only a topic that asks for retention has one
        "log.retention.check.interval.ms": 1000,
        "log.cleaner.backoff.ms": 500,
        "num.network.threads": 2,
        "num.io.threads": 2,
        **settings,
    }


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not a thing to do between fork and exec


def die_with_parent() -> None:
    """In the child: SIGKILL when the thread that starts it ends, and with the test run however that goes (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)


class Node(Protocol):
    """A node, however it runs. Its data stay over restarts."""

    @property
    def running(self) -> bool: ...

    @property
    def ready(self) -> bool:
        """Whether it runs and serves."""
        ...

    def start(self) -> None:
        """Returns when it serves; BrokerError if it does not."""
        ...

    def begin_format(self) -> None: ...

    def begin_start(self) -> None:
        """Does not wait until it serves."""
        ...

    def wait_until_ready(self) -> None: ...

    def end(self, how: signal.Signals) -> object:
        """Ends it by SIGTERM or SIGKILL; returns when it is gone."""
        ...


class KafkaNode:
    """A process and its directory, in which lie settings, log and data. `properties` are written at each start.

    `archived`: with its classes from the archive, which is made now if there is none yet.
    """

    def __init__(
        self, directory: Path, properties: Mapping[str, object], cluster: str, java_options: Sequence[str] = (), archived: bool = True
    ) -> None:
        self.directory = directory
        self._java_options = [*java_options, *(reading(_class_archive()) if archived else ())]
        self._given = properties
        self._cluster = cluster
        self._jars = kafka_jars()
        self._java = find_java_home(os.environ) / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None
        self._formatting: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self, detached: bool = False) -> None:
        """Formats the directory the first time, starts the node and waits until it serves; BrokerError if it does not.

        Call from the main thread: the node ends with the thread that starts it, unless `detached`.
        """
        self.begin_format()
        self.begin_start(detached)
        self.wait_until_ready()

    def begin_format(self) -> None:
        """Begins to format the directory, unless that was done before; does not wait."""
        properties = self._write_properties()
        if not (self.directory / "data" / "meta.properties").exists():
            # In one word: an id may begin with "-".
            command = self._command("kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster}", "-c", str(properties))
            with open(self.directory / "format.log", "wb") as output:
                self._formatting = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)

    def begin_start(self, detached: bool = False) -> None:
        """Starts the process once the directory is formatted; does not wait until it serves. BrokerError if the format failed."""
        formatting, self._formatting = self._formatting, None
        if formatting is not None and formatting.wait():
            said = (self.directory / "format.log").read_text(errors="replace")
            raise BrokerError(f"formatting the Kafka broker failed: {telling(said)}")
        with open(self.log, "wb") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self.directory / "server.properties")),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory,
                start_new_session=detached, preexec_fn=None if detached else die_with_parent,
            )  # fmt: skip

    def wait_until_ready(self) -> None:
        """Returns when the node serves; BrokerError, and the node is gone, if that does not come about."""
        assert self._process is not None
        end = time.monotonic() + START_S
        while READY not in (said := self.log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > end:
                self.end(signal.SIGKILL)
                raise BrokerError(f"the Kafka broker did not start: {telling(said)} (log: {self.log})")
            time.sleep(0.1)

    @property
    def ready(self) -> bool:
        """Whether the newest process serves."""
        return self.running and READY in self.log.read_text(errors="replace")

    @property
    def log(self) -> Path:
        """What the newest process of this node says."""
        return self.directory / "server.log"

    def end(self, how: signal.Signals) -> int | None:
        """Sends the signal and waits until the process is gone, killing it after 15 s; its exit status, None if it never ran."""
        if self._process is None or self._process.poll() is not None:
            return None if self._process is None else self._process.returncode
        self._process.send_signal(how)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        return self._process.returncode

    def _write_properties(self) -> Path:
        """Each time, since the ports are this object's while the data may be an earlier one's."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(_LOG4J)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._given.items()))
        return properties

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}", f"-Dkafka.logs.dir={self.directory}"]
        return [str(self._java), *_JVM, *self._java_options, *options, "-cp", f"{self._jars}/*", main, *arguments]


def _class_archive() -> Path:
    """The archive that every node maps, made by a node that is started and stopped for it."""

    def dump(target: Path) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ports = free_ports(2)
            properties = node_properties(1, "127.0.0.1", ports[0], {1: ports[1]}, Path(folder) / "data", {})
            node = KafkaNode(Path(folder), properties, cluster_id(), [f"-XX:ArchiveClassesAtExit={target}"], archived=False)
            node.start()
            if node.end(signal.SIGTERM) == -signal.SIGKILL:  # in the middle of it
                target.unlink(missing_ok=True)

    return class_archives.archive(f"kafka-{KAFKA}", kafka_jars(), dump)


def telling(output: str) -> str:
    """The line of a JVM's output that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "ERROR" in line or "Exception" in line or "FATAL" in line), lines[-1] if lines else "no output")
