"""One real Apache Kafka node (KRaft) on loopback, as a process from jars. (As a container: containers/kafka.py; three: kafka_cluster.py.)

with running_broker(directory) as broker: broker.create_topic("t", 4); broker.produce("t", [("key", "value", 0)])

By hand: `python integration/kafka_broker.py start --dir DIR` prints the address and returns; `stop --dir DIR` ends that node.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

if not __package__:  # run by its path: the checkout is not on sys.path
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from integration.kafka_handle import KafkaHandle
from integration.kafka_jars import JarsMissingError
from integration.kafka_node import BrokerError, KafkaNode, cluster_id, free_ports, node_properties
from kstream.errors import JavaNotFoundError


class Broker(KafkaHandle):
    """A single node and a client of it, however the node runs. `bootstrap` stays the same over restarts."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__()
        self._settings = settings or {}
        self._port, self._controller_port = free_ports(2)

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    @abstractmethod
    def pid(self) -> int:
        """Of the node, which runs."""

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
        return node_properties(1, bind, self._port, {1: self._controller_port}, data, self._settings)


class ProxiedListener(NamedTuple):
    """A second listener of a node, for a proxy: the proxy connects to `port`, and clients are told `advertised`."""

    port: int
    advertised: int


class KafkaBroker(Broker):
    """The node as a process of its own. Its data lie under `directory`."""

    def __init__(self, directory: Path, settings: dict[str, str] | None = None, proxied: ProxiedListener | None = None) -> None:
        super().__init__(settings)
        self.directory = directory
        self._proxied = proxied
        self._made: KafkaNode | None = None

    @property
    def _node(self) -> KafkaNode:
        """Made when it is first needed: by then a subclass has all that its settings are of."""
        if self._made is None:
            settings = _with_listener(self.properties("127.0.0.1", self.directory / "data"), self._proxied)
            self._made = KafkaNode(self.directory, settings, cluster_id(), self.java_options())
        return self._made

    def java_options(self) -> list[str]:
        """Of the node's JVM, besides the usual ones."""
        return []

    @property
    def pid(self) -> int:
        return self._node.pid

    def start(self, detached: bool = False) -> None:
        """As `KafkaNode.start`: from the main thread, unless `detached`."""
        self._node.start(detached)

    def stop(self) -> None:
        self._node.end(signal.SIGTERM)

    def kill9(self) -> None:
        self._node.end(signal.SIGKILL)


def _with_listener(properties: dict[str, object], proxied: ProxiedListener | None) -> dict[str, object]:
    """A node's settings with a listener for a proxy."""
    if proxied is None:
        return properties
    more = {
        "listeners": f"PROXIED://127.0.0.1:{proxied.port}",
        "advertised.listeners": f"PROXIED://127.0.0.1:{proxied.advertised}",
        "listener.security.protocol.map": "PROXIED:PLAINTEXT",
    }
    return {**properties, **{key: f"{properties[key]},{value}" for key, value in more.items()}}


@contextmanager
def running_broker(
    directory: Path, settings: dict[str, str] | None = None, proxied: ProxiedListener | None = None
) -> Iterator[KafkaBroker]:
    """A broker for the length of a with block."""
    broker = KafkaBroker(directory, settings, proxied)
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


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
