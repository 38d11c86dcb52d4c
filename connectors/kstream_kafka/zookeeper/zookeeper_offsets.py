"""ZooKeeperMembership: a consumer's membership in a group: members, partition owners and offsets. The only import of kazoo.

A membership is one session of one client, with its own id. Every change is a transaction that first checks the ephemeral registration.
After the end of the session the check fails, and nothing is written. By then an offset may belong to another consumer. Neither a late
request nor one on the session that kazoo opens by itself after an expiry can move it.
"""

from __future__ import annotations

import logging
import socket
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kstream.clock import StopFlag
from kstream.errors import MissingDependencyError
from kstream.offsets.offset_range import Partition
from kstream_kafka.errors import KafkaError, OwnershipLostError, ZooKeeperUnreachableError
from kstream_kafka.zookeeper.receiver_settings import ReceiverSettings
from kstream_kafka.zookeeper.zookeeper_layout import (
    GroupNodes,
    Offsets,
    consumer_id,
    offset_text,
    registration,
    servers_and_root,
    subscription,
)

logger = logging.getLogger("kstream.kafka")

INSTALL = "pip install 'kstream-spark[zookeeper]'"
ANSWER_S = 5.0
"""Seconds to wait for a response before the request is sent again."""
STOP_PATIENCE_S = 2.0
"""Seconds for which a stopping receiver waits for a ZooKeeper that does not answer."""

client_log = logging.getLogger("kstream.kafka.zookeeper")
"""kazoo's log: a line for each try to reach a server that is down. Like librdkafka's log, it needs a handler of the application."""
client_log.addHandler(logging.NullHandler())
client_log.propagate = False


def check_installed() -> None:
    """Raise MissingDependencyError if kazoo is missing."""
    try:
        import kazoo.client  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as e:
        raise MissingDependencyError(
            f"createStream keeps its offsets in ZooKeeper and needs kazoo, which is not installed: {INSTALL}. A direct stream needs none.",
            package="kazoo",
            install=INSTALL,
        ) from e


def join(settings: ReceiverSettings, stop: StopFlag) -> ZooKeeperMembership:
    """Connect and register a new consumer. Blocks for `zookeeper.connection.timeout.ms` at most until a server answers.

    Args:
        settings: the receiver's settings.
        stop: ends the wait.

    Raises:
        ZooKeeperUnreachableError: no server answered in that time, or `stop` was set.
        OwnershipLostError: the session ended during the registration.
        MissingDependencyError: kazoo is missing.
    """
    check_installed()
    membership = ZooKeeperMembership(settings)
    try:
        membership.register(stop)
    except BaseException:
        membership.leave()
        raise
    return membership


def _thrice_if_alone(servers: str) -> str:
    """Return the servers, a single server three times.

    kazoo waits for one server as long as a session lasts, divided by the number of servers. A server that is starting accepts a connection
    and never answers. With one entry the session would end before the next try.
    """
    return servers if "," in servers else ",".join([servers] * 3)


class ZooKeeperMembership:
    """One consumer of the group, from its registration to the end of its session. A membership is never revived.

    Any thread. Calls that ask ZooKeeper block while it does not answer: `members`, `offsets`, `claim`, `release` and `commit`. They raise
    OwnershipLostError when the membership is over, and change nothing then.
    """

    def __init__(self, settings: ReceiverSettings) -> None:
        """Create the client. Sends no request. Called by `join` only."""
        from kazoo.client import KazooClient

        self._settings = settings
        servers, root = servers_and_root(settings.quorum)
        self._nodes = GroupNodes(settings.group, root)
        self._now = int(time.time() * 1000)
        self.consumer = consumer_id(settings.group, socket.gethostname(), self._now, uuid.uuid4().hex)
        self._changed = threading.Condition()
        self._connected = False
        self._lost = ""
        self._wait_until_s: float | None = None
        self._changed_members = True
        self._has_offset: set[Partition] = set()
        retry = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
        self._client = KazooClient(_thrice_if_alone(servers), settings.session_timeout_ms / 1000, connection_retry=retry, logger=client_log)
        self._client.add_listener(self._on_state)

    # -- session

    @property
    def lost(self) -> bool:
        """Whether the membership is over. Another consumer may read its partitions, and none of its records can be acknowledged."""
        return bool(self._lost)

    @property
    def reason(self) -> str:
        """The reason for which the membership is over; empty while it lasts."""
        return self._lost

    @property
    def connected(self) -> bool:
        """Whether ZooKeeper answers now."""
        return self._connected and not self._lost

    def take_change(self) -> bool:
        """Return whether members or claims may have changed since the last call. Does not block."""
        with self._changed:
            changed, self._changed_members = self._changed_members, False
        return changed

    def limit_waits(self) -> None:
        """Wait for ZooKeeper only STOP_PATIENCE_S from now on, because the receiver stops. Returns at once."""
        with self._changed:
            self._wait_until_s = time.monotonic() + STOP_PATIENCE_S
            self._changed.notify_all()

    def _on_state(self, state: str) -> None:
        """Note a change of the session. Called by kazoo's thread.

        The end of a session is final, although kazoo opens another session by itself.
        """
        from kazoo.client import KazooState

        with self._changed:
            self._connected = state == KazooState.CONNECTED
            if state == KazooState.LOST:
                self._lost = self._lost or "its ZooKeeper session has ended"
            self._changed_members = True  # watches end with the connection
            self._changed.notify_all()
        if state == KazooState.SUSPENDED:
            logger.warning(
                "%s: ZooKeeper %s does not answer; no record is read or acknowledged until it does", self.consumer, self._servers
            )

    @property
    def _servers(self) -> str:
        return self._settings.quorum

    def register(self, stop: StopFlag) -> None:
        """Connect and register. `join` calls it once and documents its errors. Blocks."""
        wait_ms = self._settings.connection_timeout_ms
        connected, end = self._client.start_async(), time.monotonic() + wait_ms / 1000
        while not connected.wait(0.1):
            if stop.is_set() or time.monotonic() > end:
                raise ZooKeeperUnreachableError(self._servers, wait_ms)
        self._make_parents()
        self._create_own(registration(self._settings.topics, self._now))
        logger.info("consumer %s joined %s", self.consumer, self._settings.as_text())

    def _make_parents(self) -> None:
        """Create the nodes that others of the group are put under, as far as they do not exist. Blocks."""
        paths = [self._nodes.ids]
        paths += [path for topic in self._settings.topics for path in (self._nodes.owners(topic), self._nodes.offsets(topic))]
        for path in paths:
            self._ask(lambda path=path: self._client.ensure_path_async(path))

    def _create_own(self, content: bytes) -> None:
        """Register this consumer: create its ephemeral node, which ends with the session. Blocks."""
        from kazoo.exceptions import NodeExistsError

        try:
            self._ask(lambda: self._client.create_async(self._own, content, ephemeral=True))
        except NodeExistsError:  # an earlier request, whose response was lost, has created it; the name is unique
            return

    @property
    def _own(self) -> str:
        """The path of this consumer's node."""
        return self._nodes.consumer(self.consumer)

    def leave(self) -> None:
        """End the session. Blocks. A second call does no harm. Raises nothing.

        ZooKeeper then removes the claims and the registration. If ZooKeeper does not answer, they end with the session's timeout.
        """
        self._lose("it has left")
        try:
            self._client.stop()
            self._client.close()
        except Exception as e:
            logger.warning("%s: the ZooKeeper session could not be closed, it ends by its timeout: %s", self.consumer, e)

    def _lose(self, reason: str) -> OwnershipLostError:
        """Note that the membership is over, for this reason unless it has been over before. Return the error for the caller to raise."""
        with self._changed:
            self._lost = self._lost or reason
            self._changed.notify_all()
            return OwnershipLostError(self.consumer, self._lost)

    # -- reading

    def members(self) -> dict[str, dict[str, int]]:
        """Return the consumers with their topics and threads, and watch for changes. Blocks. Raises OwnershipLostError."""
        names = self._ask(lambda: self._client.get_children_async(self._nodes.ids, watch=self._on_watch))
        found = {name: self._content(self._nodes.consumer(name)) for name in names}
        return {name: subscription(content) for name, content in found.items() if content is not None}

    def offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        """Return the group's next offsets. Partitions without an offset are left out. Blocks.

        Raises:
            KafkaError: the content of a node is no offset.
            OwnershipLostError: the membership is over.
        """
        found = {p: self._content(self._nodes.offset(p)) for p in partitions}
        present = {p: content for p, content in found.items() if content is not None}
        self._has_offset = (self._has_offset - set(partitions)) | set(present)
        return {p: self._offset(p, content) for p, content in present.items()}

    def _offset(self, partition: Partition, content: bytes) -> int:
        """Return the offset in a node's content. Raises KafkaError if it is none."""
        try:
            return int(content)
        except ValueError as e:
            path = self._nodes.offset(partition)
            raise KafkaError(
                f"ZooKeeper {self._servers} has {content[:40]!r} in {path}, which is no offset: write a whole number there, or delete "
                "the node to begin by auto.offset.reset.",
                path=path,
            ) from e

    def _content(self, path: str) -> bytes | None:
        """Return the content of a node; None if the node does not exist. Blocks."""
        from kazoo.exceptions import NoNodeError

        try:
            return self._ask(lambda: self._client.get_async(path))[0]
        except NoNodeError:
            return None

    def _on_watch(self, _event: Any) -> None:
        """Note that members or claims may have changed. Called by kazoo's thread."""
        with self._changed:
            self._changed_members = True
            self._changed.notify_all()

    # -- writing

    def claim(self, wanted: Mapping[Partition, str]) -> dict[Partition, str]:
        """Claim each partition for a thread of this consumer. Watches for the release of the partitions that others hold. Blocks.

        Args:
            wanted: partition → the thread that is to own it.

        Returns:
            The partitions that others hold, each with its holder; an empty text for an unknown holder.

        Raises:
            OwnershipLostError: the membership is over.
        """
        held: dict[Partition, str] = {}
        for partition, thread in sorted(wanted.items()):
            path = self._nodes.owner(partition)
            failed = self._transact([("create", path, thread.encode())])
            if failed is None:
                continue
            holder = self._content(path)
            if holder == thread.encode():  # an earlier request, whose response was lost, made the claim
                continue
            held[partition] = "" if holder is None else holder.decode(errors="replace")
            if self._ask(lambda path=path: self._client.exists_async(path, watch=self._on_watch)) is None:
                self._make_parents()
                self._on_watch(None)
        return held

    def release(self, partitions: Collection[Partition]) -> None:
        """Release claims. A claim that is gone already is no error. Blocks. Raises OwnershipLostError."""
        for partition in sorted(partitions):
            self._transact([("delete", self._nodes.owner(partition), b"")])

    def commit(self, offsets: Offsets) -> None:
        """Write offsets, all or none, and only while this consumer is registered and holds the claims. Blocks.

        A missing claim ends the membership: somebody removed the claim, and another consumer may hold it by now.

        Raises:
            OwnershipLostError: the membership is over, or a claim is missing.
            KafkaError: the nodes of the offsets come and go.
        """
        if not offsets:
            return
        for _ in range(2):
            claims = [("check", self._nodes.owner(p), b"") for p in offsets]
            writes = [("set" if p in self._has_offset else "create", self._nodes.offset(p), offset_text(at)) for p, at in offsets.items()]
            failed = self._transact([*claims, *writes])
            if failed is None:
                self._has_offset.update(offsets)
                return
            if failed < len(claims):
                raise self._lose(f"its claim of {claims[failed][1]} is gone")
            self._make_parents()  # somebody created or removed offset nodes: look which ones exist
            self.offsets(list(offsets))
        raise KafkaError(f"offsets of {self.consumer} could not be written: {self._nodes.offset(next(iter(offsets)))} comes and goes")

    def _transact(self, operations: Sequence[tuple[str, str, bytes]]) -> int | None:
        """Do all operations or none, if this consumer is still registered. Blocks.

        A claim is checked by its version, because nobody writes it after its creation.

        Args:
            operations: the kind (check, create, set or delete), the path and the content of each.

        Returns:
            The index of the operation that failed; None if all succeeded.

        Raises:
            OwnershipLostError: the consumer is not registered any more, or the membership is over.
        """
        from kazoo.exceptions import RolledBackError, RuntimeInconsistency

        def call() -> Any:
            transaction = self._client.transaction()
            transaction.check(self._own, 0)
            for kind, path, content in operations:
                if kind == "check":
                    transaction.check(path, 0)
                elif kind == "create":
                    transaction.create(path, content, ephemeral=path.startswith(self._nodes.owners("")))
                elif kind == "set":
                    transaction.set_data(path, content)
                else:
                    transaction.delete(path)
            return transaction.commit_async()

        results = self._ask(call)
        failures = [i for i, r in enumerate(results) if isinstance(r, Exception)]
        if not failures:
            return None
        cause = next((i for i in failures if not isinstance(results[i], RolledBackError | RuntimeInconsistency)), failures[0])
        if cause == 0:
            raise self._lose("its registration is gone")
        return cause - 1

    # -- requests

    def _ask(self, call: Callable[[], Any]) -> Any:
        """Send a request and return the response. Blocks until ZooKeeper answers, and sends the request again if its response was lost.

        Raises:
            OwnershipLostError: the session is over, or the receiver stops and ZooKeeper does not answer.
            KazooException: an error about the node.
        """
        from kazoo.exceptions import ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError

        again = (ConnectionLoss, OperationTimeoutError, SessionMovedError, self._client.handler.timeout_exception)
        while True:
            self._await_connection()
            try:
                return call().get(timeout=ANSWER_S)
            except again as e:
                client_log.info("request repeated: %s", type(e).__name__)
                with self._changed:
                    self._changed.wait(0.05)
            except SessionExpiredError as e:
                raise self._lose("its ZooKeeper session has ended") from e

    def _await_connection(self) -> None:
        """Block until there is a connection. OwnershipLostError if the membership is over, or when the time of `limit_waits` is.

        In the second case the membership is over from then on.
        """
        with self._changed:
            while not self._connected and not self._lost:
                left = None if self._wait_until_s is None else self._wait_until_s - time.monotonic()
                if left is not None and left <= 0:
                    self._lost = "ZooKeeper was away when the receiver stopped"
                    break
                self._changed.wait(left)
            if self._lost:
                raise OwnershipLostError(self.consumer, self._lost)
