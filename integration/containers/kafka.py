"""The same broker, and the same cluster of three, as containers. Each publishes one port, on 127.0.0.1.

The image is apache/kafka's, or one that takes its settings the same way.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from integration.containers.container import Container, ContainerNetwork
from integration.containers.daemon import ContainerError
from integration.kafka_broker import Broker
from integration.kafka_cluster import NODES, KafkaCluster
from integration.kafka_node import READY, START_S, BrokerError, Node, node_properties

DATA = "/tmp/kstream-kafka-data"
"""In the container's own file system: it stays over restarts, goes with the container, and the image's user may write there."""
NETWORK_PORT, CONTROLLER_PORT = 9092, 9093
"""Of a node of three, on the network of the containers."""


class ContainerNode:
    """One node. `remove` it when done."""

    def __init__(
        self,
        image: str,
        properties: Mapping[str, object],
        cluster: str,
        port: int,
        network: ContainerNetwork | None = None,
        alias: str = "",
    ) -> None:
        """In the image's form `log.dirs` is KAFKA_LOG_DIRS."""
        settings = {f"KAFKA_{key.replace('.', '_').upper()}": value for key, value in properties.items()}
        environment = {"KAFKA_HEAP_OPTS": "-Xms64m -Xmx256m", "CLUSTER_ID": cluster, **settings}
        # The port has the same number inside, so that a node alone finds itself under the name that it tells clients.
        self.container = Container(image, environment=environment, ports={port: port}, network=network, alias=alias)

    @property
    def running(self) -> bool:
        return self.container.running

    @property
    def ready(self) -> bool:
        return self.running and READY in self.container.said()

    def start(self) -> None:
        self.begin_start()
        self.wait_until_ready()

    def begin_format(self) -> None:
        """It is formatted when it is first started."""

    def begin_start(self) -> None:
        with _kafkas_error():
            self.container.start()

    def wait_until_ready(self) -> None:
        with _kafkas_error():
            self.container.wait_until_it_says(READY, START_S, "the Kafka broker")

    def end(self, how: signal.Signals) -> None:
        with _kafkas_error():
            if how == signal.SIGKILL:
                self.container.kill()
            else:
                self.container.stop()


class ContainerBroker(Broker):
    """The node in a container. `remove` it when done."""

    def __init__(self, image: str, settings: dict[str, str] | None = None) -> None:
        super().__init__(settings)
        self._node = ContainerNode(image, self.properties("0.0.0.0", DATA), "5L6g3nShT-eMCtK--X86sw", self._port)

    @property
    def pid(self) -> int:
        return self._node.container.pid

    def start(self) -> None:
        self._node.start()

    def stop(self) -> None:
        self._node.end(signal.SIGTERM)

    def kill9(self) -> None:
        self._node.end(signal.SIGKILL)

    def remove(self) -> None:
        """Ends the node by SIGKILL and removes its data. Twice is fine."""
        self._node.container.remove()


class ContainerCluster(KafkaCluster):
    """The three nodes in containers on a network of their own, or on one that is given: there they are `kafka-1`, `kafka-2`, `kafka-3`."""

    def __init__(self, image: str, network: ContainerNetwork, settings: dict[str, object] | None = None) -> None:
        self._image, self._network = image, network
        self._containers: dict[int, Container] = {}
        super().__init__(Path(DATA), settings)

    @property
    def inner_bootstrap(self) -> str:
        """Where clients begin that are on the network."""
        return ",".join(f"kafka-{number}:{NETWORK_PORT}" for number in NODES)

    def cut_off(self, node: int) -> None:
        """Takes the node off the network; it runs on."""
        self._containers[node].cut_off()

    def let_back(self, node: int) -> None:
        self._containers[node].let_back()

    def remove(self) -> None:
        for container in self._containers.values():
            container.remove()

    def _node(self, number: int, settings: Mapping[str, object]) -> Node:
        alias, port = f"kafka-{number}", self._ports[number]
        given = node_properties(number, "0.0.0.0", port, self._controllers, DATA, settings)
        given |= {
            "listeners": f"PLAINTEXT://0.0.0.0:{port},NETWORK://0.0.0.0:{NETWORK_PORT},CONTROLLER://0.0.0.0:{CONTROLLER_PORT}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port},NETWORK://{alias}:{NETWORK_PORT}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,NETWORK:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "inter.broker.listener.name": "NETWORK",
            "controller.quorum.voters": ",".join(f"{n}@kafka-{n}:{CONTROLLER_PORT}" for n in NODES),
        }
        node = ContainerNode(self._image, given, self._id, port, self._network, alias)
        self._containers[number] = node.container
        return node


@contextmanager
def running_container(image: str, settings: dict[str, str] | None = None) -> Iterator[ContainerBroker]:
    """A broker for the length of a with block."""
    broker = ContainerBroker(image, settings)
    try:
        broker.start()
        yield broker
    finally:
        with _kafkas_error():
            broker.remove()


@contextmanager
def running_containers(
    image: str, network: ContainerNetwork | None = None, settings: dict[str, object] | None = None
) -> Iterator[ContainerCluster]:
    """A cluster for the length of a with block."""
    with _kafkas_error():
        own = ContainerNetwork() if network is None else None
        cluster = ContainerCluster(image, network or own or ContainerNetwork(), settings)
    try:
        cluster.start()
        yield cluster
    finally:
        with _kafkas_error():
            cluster.remove()
            if own is not None:
                own.remove()


@contextmanager
def _kafkas_error() -> Iterator[None]:
    """What goes wrong is told as it is of the processes."""
    try:
        yield
    except ContainerError as e:
        raise BrokerError(str(e)) from e
