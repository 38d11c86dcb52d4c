"""One real Apache Kafka node (KRaft) on loopback, as a process from jars. (As a container: kafka_container.py.)

with running_broker(directory) as broker: broker.create_topic("t", 4); broker.produce("t", [("key", "value", 0)])

By hand: `python integration/kafka_broker.py start --dir DIR` prints the address and returns; `stop --dir DIR` ends that node.
"""

from __future__ import annotations

import argparse
import base64
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

if not __package__:  # run by its path: the checkout is not on sys.path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from integration.kafka_jars import JarsMissingError, kafka_jars
from kstream.errors import JavaNotFoundError
from kstream.spark.java import find_java_home

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
READY = "Kafka Server started"
_QUIET = {"log_level": 0}
"""Of librdkafka, which would write a line for every attempt to reach a broker that a test has killed."""
Record = tuple[Any, ...]
"""(key, value), (key, value, partition) or (key, value, partition, timestamp in ms)."""


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


_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None  # loaded here: not a thing to do between fork and exec


def _die_with_parent() -> None:
    """In the child: SIGKILL when the thread that starts it ends, and with the test run however that goes (Linux only)."""
    if _LIBC is not None:
        _LIBC.prctl(1, signal.SIGKILL)


class Broker(ABC):
    """A single node and a client of it, however the node runs. `bootstrap` stays the same over restarts."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self._settings = settings or {}
        self._port, self._controller_port = free_ports(2)
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    # -- life

    @abstractmethod
    def start(self) -> None:
        """Starts the node, the first time or again with its data, and waits until it serves; BrokerError if it does not."""

    @abstractmethod
    def stop(self) -> None:
        """Ends the node cleanly; kills it after 15 s."""

    @abstractmethod
    def kill9(self) -> None:
        """Ends the node by SIGKILL; returns when it is gone."""

    def restart(self) -> None:
        """Starts again on the same port with the same data."""
        self.start()

    def properties(self, bind: str, data: object) -> dict[str, object]:
        """The node's settings; it listens to clients at address `bind`, and to itself as controller on loopback."""
        controller = f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{bind}:{self._port},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.bootstrap}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": data,
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "broker.session.timeout.ms": 3000,  # what a restart after kill -9 waits for
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.dedupe.buffer.size": 8388608,
            "log.retention.check.interval.ms": 1000,
            "log.cleaner.backoff.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 2,
            **self._settings,
        }

    # -- what tests do with it

    @property
    def admin(self) -> AdminClient:
        if self._admin is None:
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})
        return self._admin

    def create_topic(self, name: str, partitions: int = 1, config: dict[str, str] | None = None) -> None:
        """Returns when the topic is there and every partition has a leader."""
        self.admin.create_topics([NewTopic(name, partitions, 1, config=config or {})])[name].result(30)
        end = time.monotonic() + 30
        while True:
            known = self.admin.list_topics(timeout=10).topics.get(name)
            if known is not None and len(known.partitions) == partitions and all(p.leader >= 0 for p in known.partitions.values()):
                return
            if time.monotonic() > end:
                raise BrokerError(f"topic {name} has no leaders")
            time.sleep(0.05)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Returns when all records are acknowledged; BrokerError if one was not."""
        if self._producer is None:
            unknown_topic = {"topic.metadata.propagation.max.ms": 3000}  # create_topic has waited for the leaders
            self._producer = Producer(
                {"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5, **unknown_topic, **_QUIET}
            )
        failures: list[Any] = []
        for key, value, *place in records:
            options = dict(zip(("partition", "timestamp"), place, strict=False))
            while True:
                try:
                    self._producer.produce(topic, value, key, on_delivery=lambda e, _m: failures.append(e) if e else None, **options)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        left = self._producer.flush(60)
        if left or failures:
            raise BrokerError(f"{left + len(failures)} records were not acknowledged: {failures[:3]}")


class KafkaBroker(Broker):
    """The node as a process of its own. Its data lie under `directory`."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self.directory = directory
        self._jars = kafka_jars()
        self._java = find_java_home(os.environ) / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # -- life

    def start(self, detached: bool = False) -> None:
        """Formats the directory the first time, starts the node and waits until it serves; BrokerError if it does not.

        Call from the main thread: the node ends with the thread that starts it, unless `detached`.
        """
        properties = self._write_properties()
        if not (self.directory / "data" / "meta.properties").exists():
            self._format(properties)
        log = self.directory / "server.log"
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(properties)),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory,
                start_new_session=detached, preexec_fn=None if detached else _die_with_parent,
            )  # fmt: skip
        end = time.monotonic() + 90
        while READY not in (said := log.read_text(errors="replace")):
            if self._process.poll() is not None or time.monotonic() > end:
                self.kill9()
                raise BrokerError(f"the Kafka broker did not start: {telling(said)} (log: {log})")
            time.sleep(0.1)

    def stop(self) -> None:
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _write_properties(self) -> Path:
        """Each time, since the ports are this object's while the data may be an earlier one's."""
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(_LOG4J)
        properties = self.directory / "server.properties"
        given = self.properties("127.0.0.1", self.directory / "data")
        properties.write_text("".join(f"{key}={value}\n" for key, value in given.items()))
        return properties

    def _format(self, properties: Path) -> None:
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        # In one word: an id may begin with "-".
        command = self._command("kafka.tools.StorageTool", "format", f"--cluster-id={cluster}", "-c", str(properties))
        done = subprocess.run(command, capture_output=True, check=False)
        if done.returncode:
            raise BrokerError(f"formatting the Kafka broker failed: {telling((done.stdout + done.stderr).decode(errors='replace'))}")

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}", f"-Dkafka.logs.dir={self.directory}"]
        return [str(self._java), *_JVM, *options, "-cp", f"{self._jars}/*", main, *arguments]


@contextmanager
def running_broker(directory: Path, settings: dict[str, str] | None = None) -> Iterator[KafkaBroker]:
    """A broker for the length of a with block."""
    broker = KafkaBroker(directory, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def telling(output: str) -> str:
    """The line of a JVM's output that tells most."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return next((line for line in lines if "ERROR" in line or "Exception" in line or "FATAL" in line), lines[-1] if lines else "no output")


def start_by_hand(directory: Path) -> str:
    """Starts a node that outlives this process; returns what to tell. BrokerError if one runs in the directory already."""
    pid = running_pid(directory)
    if pid is not None:
        raise BrokerError(f"a broker already runs in {directory} (pid {pid})")
    broker = KafkaBroker(directory)
    broker.start(detached=True)
    (directory / "pid").write_text(str(broker.pid))
    return f"bootstrap.servers={broker.bootstrap} pid={broker.pid}"


def stop_by_hand(directory: Path) -> str:
    """Ends the node that `start_by_hand` started in the directory; its data stay."""
    pid = running_pid(directory)
    if pid is None:
        raise BrokerError(f"no broker runs in {directory}")
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + 15
    while running_pid(directory) is not None:
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
        time.sleep(0.1)
    return f"stopped pid {pid}"


def running_pid(directory: Path) -> int | None:
    """The process that `start_by_hand` noted, if it still is that directory's broker and not another that got its number."""
    try:
        pid = int((directory / "pid").read_text())
    except (OSError, ValueError):
        return None
    try:
        command = Path(f"/proc/{pid}/cmdline").read_text() if Path("/proc/self").exists() else _command_by_ps(pid)
    except OSError:
        return None
    return pid if str(directory / "server.properties") in command else None


def _command_by_ps(pid: int) -> str:
    return subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout


def main() -> int:
    parser = argparse.ArgumentParser(description="A real Kafka broker, by hand.")
    parser.add_argument("action", choices=["start", "stop"])
    parser.add_argument("--dir", required=True, type=Path, help="where its data, settings and log lie")
    given = parser.parse_args()
    act = start_by_hand if given.action == "start" else stop_by_hand
    try:
        print(act(given.dir.resolve()))
    except (BrokerError, JarsMissingError, JavaNotFoundError) as e:
        print(f"kafka_broker: {e}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
