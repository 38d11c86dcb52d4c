"""A consumer's membership in ZooKeeper: who is in the group, whose a partition is, and how far it was read. The one import of kazoo.

A membership is one session of one client, with an id of its own. All that it changes is changed in a transaction that first checks its
registration, which is ephemeral: where the session is over the check fails, and nothing is written. So neither a request that comes late
nor one on the session that kazoo makes by itself after an expiry can move an offset that is another's by now.
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
from kstream_kafka.client.ports import Partition
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
"""How long one answer is waited for before the request is sent again."""
STOP_PATIENCE_S = 2.0
"""How long a receiver that stops waits for a ZooKeeper that is away."""

client_log = logging.getLogger("kstream.kafka.zookeeper")
"""kazoo's own lines: one for each try to reach a server that is down. Silent unless the application gives it a handler, as librdkafka's."""
client_log.addHandler(logging.NullHandler())
client_log.propagate = False


def check_installed() -> None:
    """MissingDependencyError without kazoo."""
    try:
        import kazoo.client  # noqa: F401  # pyright: ignore[reportUnusedImport]
    except ImportError as e:
        raise MissingDependencyError(
            f"createStream keeps its offsets in ZooKeeper and needs kazoo, which is not installed: {INSTALL}. A direct stream needs none.",
            package="kazoo", install=INSTALL,
        ) from e  # fmt: skip


def join(settings: ReceiverSettings, stop: StopFlag) -> ZooKeeperMembership:
    """Connects and registers a new consumer. Blocks up to `zookeeper.connection.timeout.ms`; ZooKeeperUnreachableError after that, and as
    soon as `stop` is set."""
    check_installed()
    membership = ZooKeeperMembership(settings)
    try:
        membership.register(stop)
    except BaseException:
        membership.leave()
        raise
    return membership


def _thrice_if_alone(servers: str) -> str:
    """A single server is named three times: kazoo waits for one as long as a session lasts, divided by their number. A server that is only
    just starting takes a connection and never answers, and the session would be over before it is asked again."""
    return servers if "," in servers else ",".join([servers] * 3)


class ZooKeeperMembership:
    """See `Membership`."""

    def __init__(self, settings: ReceiverSettings) -> None:
        from kazoo.client import KazooClient

        self._settings = settings
        servers, root = servers_and_root(settings.quorum)
        self._nodes = GroupNodes(settings.group, root)
        self._now = int(time.time() * 1000)
        self.consumer = consumer_id(settings.group, socket.gethostname(), self._now, uuid.uuid4().hex)
        self._changed = threading.Condition()
        self._connected = False
        self._lost = ""
        self._hurry_until: float | None = None
        self._news = True
        self._has_offset: set[Partition] = set()
        retry = {"max_tries": -1, "delay": 0.1, "backoff": 2, "max_delay": 1.0}
        self._client = KazooClient(_thrice_if_alone(servers), settings.session_timeout_ms / 1000, connection_retry=retry, logger=client_log)
        self._client.add_listener(self._on_state)

    # -- its session

    @property
    def lost(self) -> bool:
        return bool(self._lost)

    @property
    def reason(self) -> str:
        return self._lost

    @property
    def connected(self) -> bool:
        return self._connected and not self._lost

    def take_change(self) -> bool:
        with self._changed:
            news, self._news = self._news, False
        return news

    def hurry(self) -> None:
        with self._changed:
            self._hurry_until = time.monotonic() + STOP_PATIENCE_S
            self._changed.notify_all()

    def _on_state(self, state: str) -> None:
        """kazoo's thread. A session that is over is over for good, although kazoo makes another one by itself."""
        from kazoo.client import KazooState

        with self._changed:
            self._connected = state == KazooState.CONNECTED
            if state == KazooState.LOST:
                self._lost = self._lost or "its ZooKeeper session has ended"
            self._news = True  # watches are gone with the connection
            self._changed.notify_all()
        if state == KazooState.SUSPENDED:
            logger.warning("%s: ZooKeeper %s does not answer; nothing is read or acknowledged until it does", self.consumer, self._servers)

    @property
    def _servers(self) -> str:
        return self._settings.quorum

    def register(self, stop: StopFlag) -> None:
        """Once, by `join`."""
        wait_ms = self._settings.connection_timeout_ms
        connected, end = self._client.start_async(), time.monotonic() + wait_ms / 1000
        while not connected.wait(0.1):
            if stop.is_set() or time.monotonic() > end:
                raise ZooKeeperUnreachableError(self._servers, wait_ms)
        self._make_parents()
        self._create_own(registration(self._settings.topics, self._now))
        logger.info("consumer %s has joined %s", self.consumer, self._settings.as_text())

    def _make_parents(self) -> None:
        paths = [self._nodes.ids]
        paths += [path for topic in self._settings.topics for path in (self._nodes.owners(topic), self._nodes.offsets(topic))]
        for path in paths:
            self._ask(lambda path=path: self._client.ensure_path_async(path))

    def _create_own(self, content: bytes) -> None:
        from kazoo.exceptions import NodeExistsError

        try:
            self._ask(lambda: self._client.create_async(self._own, content, ephemeral=True))
        except NodeExistsError:  # made by a request whose answer was lost: nobody else has this name
            return

    @property
    def _own(self) -> str:
        return self._nodes.consumer(self.consumer)

    def leave(self) -> None:
        """The end of a session removes what was ephemeral in it."""
        self._lose("it has left")
        try:
            self._client.stop()
            self._client.close()
        except Exception as e:  # it does not let go of its socket: the session ends by its time-out
            logger.warning("%s could not take leave of ZooKeeper: %s", self.consumer, e)

    def _lose(self, reason: str) -> OwnershipLostError:
        with self._changed:
            self._lost = self._lost or reason
            self._changed.notify_all()
            return OwnershipLostError(self.consumer, self._lost)

    # -- what it knows

    def members(self) -> dict[str, dict[str, int]]:
        names = self._ask(lambda: self._client.get_children_async(self._nodes.ids, watch=self._on_watch))
        found = {name: self._content(self._nodes.consumer(name)) for name in names}
        return {name: subscription(content) for name, content in found.items() if content is not None}

    def offsets(self, partitions: Collection[Partition]) -> dict[Partition, int]:
        found = {p: self._content(self._nodes.offset(p)) for p in partitions}
        said = {p: content for p, content in found.items() if content is not None}
        self._has_offset = (self._has_offset - set(partitions)) | set(said)
        return {p: self._offset(p, content) for p, content in said.items()}

    def _offset(self, partition: Partition, content: bytes) -> int:
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
        from kazoo.exceptions import NoNodeError

        try:
            return self._ask(lambda: self._client.get_async(path))[0]
        except NoNodeError:
            return None

    def _on_watch(self, _event: Any) -> None:
        with self._changed:
            self._news = True
            self._changed.notify_all()

    # -- what it changes

    def claim(self, wanted: Mapping[Partition, str]) -> dict[Partition, str]:
        held: dict[Partition, str] = {}
        for partition, thread in sorted(wanted.items()):
            path = self._nodes.owner(partition)
            failed = self._transact([("create", path, thread.encode())])
            if failed is None:
                continue
            holder = self._content(path)
            if holder == thread.encode():  # by a request whose answer was lost
                continue
            held[partition] = "" if holder is None else holder.decode(errors="replace")
            if self._ask(lambda path=path: self._client.exists_async(path, watch=self._on_watch)) is None:
                self._make_parents()
                self._on_watch(None)
        return held

    def release(self, partitions: Collection[Partition]) -> None:
        for partition in sorted(partitions):
            self._transact([("delete", self._nodes.owner(partition), b"")])

    def commit(self, offsets: Offsets) -> None:
        """A failed check of a claim ends the membership: somebody has removed it, and another may have it by now."""
        if not offsets:
            return
        for _ in range(2):
            claims = [("check", self._nodes.owner(p), b"") for p in offsets]
            writes = [
                ("set" if p in self._has_offset else "create", self._nodes.offset(p), offset_text(at)) for p, at in offsets.items()
            ]  # fmt: skip
            failed = self._transact([*claims, *writes])
            if failed is None:
                self._has_offset.update(offsets)
                return
            if failed < len(claims):
                raise self._lose(f"its claim of {claims[failed][1]} is gone")
            self._make_parents()  # an operator has made or removed nodes of offsets: learn which are there
            self.offsets(list(offsets))
        raise KafkaError(f"offsets of {self.consumer} could not be written: {self._nodes.offset(next(iter(offsets)))} comes and goes")

    def _transact(self, operations: Sequence[tuple[str, str, bytes]]) -> int | None:
        """All of these or none, if this consumer is registered still; the index of the one that failed, None if none has.

        A claim is checked by its version: it is never written after it was made.
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

    # -- asking

    def _ask(self, call: Callable[[], Any]) -> Any:
        """The answer, for as long as it takes ZooKeeper to be back: a request whose answer was lost is sent again.

        OwnershipLostError when the session is over, or the receiver is about to stop and ZooKeeper stays away. Errors about the node
        are kazoo's.
        """
        from kazoo.exceptions import ConnectionLoss, OperationTimeoutError, SessionExpiredError, SessionMovedError

        again = (ConnectionLoss, OperationTimeoutError, SessionMovedError, self._client.handler.timeout_exception)
        while True:
            self._await_connection()
            try:
                return call().get(timeout=ANSWER_S)
            except again as e:
                client_log.info("asked again: %s", type(e).__name__)
                with self._changed:
                    self._changed.wait(0.05)
            except SessionExpiredError as e:
                raise self._lose("its ZooKeeper session has ended") from e

    def _await_connection(self) -> None:
        with self._changed:
            while not self._connected and not self._lost:
                left = None if self._hurry_until is None else self._hurry_until - time.monotonic()
                if left is not None and left <= 0:
                    self._lost = "ZooKeeper was away when the receiver stopped"
                    break
                self._changed.wait(left)
            if self._lost:
                raise OwnershipLostError(self.consumer, self._lost)
