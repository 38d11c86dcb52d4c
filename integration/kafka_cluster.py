"""Three real Kafka nodes (KRaft) on loopback, as processes from jars: leaders that die, replicas that lag, unclean elections.

As containers: containers/kafka.py.

with running_cluster(directory) as cluster: cluster.create_topic("t"); cluster.kill9(cluster.leader("t", 0))
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from integration.kafka_handle import KafkaHandle
from integration.kafka_node import BrokerError, KafkaNode, Node, cluster_id, free_ports, node_properties

NODES = (1, 2, 3)
PATIENT = {
    "controller.quorum.election.timeout.ms": 1000, "controller.quorum.fetch.timeout.ms": 3000, "broker.session.timeout.ms": 4000,
    "initial.broker.registration.timeout.ms": 240_000, "background.threads": 2,
}  # fmt: skip
"""Quick enough to see a failover in seconds; with less, nodes on a busy machine elect each other without end."""


class KafkaCluster(KafkaHandle):
    """Nodes 1, 2 and 3, each broker and controller. Topics have three replicas, two of which must be in sync, unless told otherwise.

    Call start and restart from the main thread: a node ends with the thread that starts it.
    """

    def __init__(self, directory: Path, settings: dict[str, object] | None = None) -> None:
        super().__init__()
        ports = free_ports(2 * len(NODES))
        self._ports = dict(zip(NODES, ports, strict=False))
        self._controllers = dict(zip(NODES, ports[len(NODES) :], strict=True))
        self._directory, self._id = directory, cluster_id()
        self._nodes = {number: self._node(number, {**PATIENT, **(settings or {})}) for number in NODES}

    def _node(self, number: int, settings: Mapping[str, object]) -> Node:
        at = self._directory / f"node-{number}"
        properties = node_properties(number, "127.0.0.1", self._ports[number], self._controllers, at / "data", settings)
        return KafkaNode(at, properties, self._id)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    # -- life

    def start(self) -> None:
        """Starts all nodes at once, the first time or again with their data; returns when all serve. BrokerError if one does not."""
        stopped = [node for node in self._nodes.values() if not node.running]
        for node in stopped:
            node.begin_format()
        for node in stopped:
            node.begin_start()
        for node in stopped:
            node.wait_until_ready()
        self._wait(lambda: len(self.admin.list_topics(timeout=10).brokers) == len(NODES), "all nodes knowing each other")

    def stop(self) -> None:
        """Ends all nodes. Their data stay."""
        for node in self._nodes.values():  # by SIGKILL: the last ones of a quorum would wait for the others
            node.end(signal.SIGKILL)

    def kill9(self, node: int) -> None:
        """Ends a node by SIGKILL; returns when it is gone."""
        self._nodes[node].end(signal.SIGKILL)

    def restart(self, node: int) -> None:
        """Starts a node again on its ports with its data; returns when it serves."""
        self._nodes[node].start()

    def begin_restart(self, node: int) -> None:
        """The same without waiting: `ready` says when it serves."""
        self._nodes[node].begin_start()

    def running(self, node: int) -> bool:
        return self._nodes[node].running

    def ready(self, node: int) -> bool:
        """Whether the node runs and serves."""
        return self._nodes[node].ready

    # -- replicas

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads, as the cluster tells it now; −1 while there is none."""
        known = self.partitions(topic).get(partition)
        return -1 if known is None else known.leader

    def in_sync(self, topic: str, partition: int = 0) -> set[int]:
        """The nodes whose replicas are in sync."""
        known = self.partitions(topic).get(partition)
        return set() if known is None else set(known.isrs)

    def wait_for_leader(self, topic: str, wanted: Callable[[int], bool] = lambda node: node >= 0, partition: int = 0) -> int:
        """Returns the leader when it is one that is wanted; BrokerError when that does not come about in a minute."""
        self._wait(lambda: wanted(self.leader(topic, partition)), f"{topic}-{partition} having another leader")
        return self.leader(topic, partition)

    def wait_in_sync(self, topic: str, nodes: set[int], partition: int = 0) -> None:
        """Returns when just these nodes' replicas are in sync."""
        self._wait(lambda: self.in_sync(topic, partition) == nodes, f"{topic}-{partition} having {sorted(nodes)} in sync")

    def _wait(self, reached: Callable[[], bool], what: str, seconds: float = 60) -> None:
        end = time.monotonic() + seconds
        while not reached():
            if time.monotonic() > end:
                raise BrokerError(f"{what} did not come about within {seconds} s")
            time.sleep(0.1)


@contextmanager
def running_cluster(directory: Path, settings: dict[str, object] | None = None) -> Iterator[KafkaCluster]:
    """A cluster for the length of a with block."""
    cluster = KafkaCluster(directory, settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
