"""One real Apache Kafka node (KRaft) on loopback, as a process from jars.

with running_broker(directory) as broker: broker.create_topic("t", 4); broker.produce("t", [("key", "value", 0)])
python -m integration.kafka_broker DIR        # runs one until Enter or end of input
"""

from __future__ import annotations

import base64
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from integration.kafka_jars import kafka_jars
from kstream.spark.java import find_java_home

_JVM = ("-Xms64m", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-Djava.awt.headless=true")
_LOG4J = """<Configuration status="WARN"><Appenders><Console name="out" target="SYSTEM_OUT">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="INFO"><AppenderRef ref="out"/></Root></Loggers></Configuration>
"""
_READY = "Kafka Server started"
Record = tuple[Any, ...]
"""(key, value), (key, value, partition) or (key, value, partition, timestamp in ms)."""


def free_ports(count: int) -> list[int]:
    """Ports of loopback that nobody has now."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def _die_with_parent() -> None:
    """In the child: SIGKILL when the test run goes, however it goes."""
    ctypes.CDLL("libc.so.6").prctl(1, signal.SIGKILL)


class KafkaBroker:
    """A single node; `bootstrap` stays the same over restarts. Its data lie under `directory`."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None) -> None:
        self.directory = directory
        self._port, self._controller_port = free_ports(2)
        self._settings = settings or {}
        self._jars = kafka_jars()
        self._java = find_java_home(os.environ) / "bin" / "java"
        self._process: subprocess.Popen[bytes] | None = None
        self._admin: AdminClient | None = None
        self._producer: Producer | None = None

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    # -- life

    def start(self) -> None:
        """Formats the directory the first time, starts the node and waits until it serves."""
        if not (self.directory / "data" / "meta.properties").exists():
            self._format()
        log = self.directory / "server.log"
        log.unlink(missing_ok=True)
        with open(log, "wb") as output:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", str(self.directory / "server.properties")),
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT, cwd=self.directory, preexec_fn=_die_with_parent,
            )  # fmt: skip
        end = time.monotonic() + 90
        while _READY not in log.read_text(errors="replace"):
            if self._process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"the Kafka broker did not start:\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Ends the node cleanly; kills it after 15 s."""
        self._end(signal.SIGTERM)

    def kill9(self) -> None:
        self._end(signal.SIGKILL)

    def restart(self) -> None:
        """Starts again on the same port with the same data."""
        self.start()

    def _end(self, how: signal.Signals) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(15)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _format(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        (self.directory / "log4j2.xml").write_text(_LOG4J)
        properties = self.directory / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self._properties().items()))
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        done = subprocess.run(
            self._command("kafka.tools.StorageTool", "format", "-t", cluster, "-c", str(properties)), capture_output=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"formatting the Kafka broker failed:\n{(done.stdout + done.stderr).decode()[-3000:]}")

    def _command(self, main: str, *arguments: str) -> list[str]:
        options = [f"-Dlog4j2.configurationFile={self.directory / 'log4j2.xml'}", f"-Dkafka.logs.dir={self.directory}"]
        return [str(self._java), *_JVM, *options, "-cp", f"{self._jars}/*", main, *arguments]

    def _properties(self) -> dict[str, object]:
        client, controller = f"127.0.0.1:{self._port}", f"127.0.0.1:{self._controller_port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "listeners": f"PLAINTEXT://{client},CONTROLLER://{controller}",
            "advertised.listeners": f"PLAINTEXT://{client}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{controller}",
            "log.dirs": self.directory / "data",
            "auto.create.topics.enable": "false",
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
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
            self._admin = AdminClient({"bootstrap.servers": self.bootstrap})
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
                raise RuntimeError(f"topic {name} has no leaders")
            time.sleep(0.05)

    def delete_topic(self, name: str) -> None:
        self.admin.delete_topics([name])[name].result(30)

    def produce(self, topic: str, records: Iterable[Record]) -> None:
        """Returns when all records are acknowledged; RuntimeError if one was not."""
        if self._producer is None:
            self._producer = Producer({"bootstrap.servers": self.bootstrap, "enable.idempotence": True, "linger.ms": 5})
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
            raise RuntimeError(f"{left + len(failures)} records were not acknowledged: {failures[:3]}")


@contextmanager
def running_broker(directory: Path, settings: dict[str, str] | None = None) -> Iterator[KafkaBroker]:
    """A broker for the length of a with block."""
    broker = KafkaBroker(directory, settings)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def main() -> None:
    with running_broker(Path(sys.argv[1])) as broker:
        print(f"bootstrap.servers={broker.bootstrap} pid={broker.pid}; Enter or end of input stops it", flush=True)
        sys.stdin.readline()


if __name__ == "__main__":
    main()
