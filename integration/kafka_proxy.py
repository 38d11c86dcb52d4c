"""A TCP proxy on loopback before a Kafka broker. It holds or drops the nth request of an API, or the answer to it.

    with running_proxied_broker(directory) as (broker, proxy):
        rule = proxy.add(Rule(Api.END_TXN, Action.DROP_ANSWER))
        … a client of proxy.bootstrap commits …
        rule.fired.wait(10)

Clients of `proxy.bootstrap` reach the broker only through the proxy. Clients of `broker.bootstrap` do not meet it.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum, IntEnum
from pathlib import Path

from integration.kafka_broker import KafkaBroker, ProxiedListener, running_broker
from integration.kafka_node import free_ports

ANSWER_S = 10.0
"""Seconds that a connection whose client is gone is kept for the answer to a request that a rule has met."""


class Api(IntEnum):
    """The keys of the requests that a transaction makes."""

    PRODUCE = 0
    INIT_PRODUCER_ID = 22
    ADD_PARTITIONS_TO_TXN = 24
    END_TXN = 26


class Action(Enum):
    """What a rule does. `DROP_REQUEST` and `DROP_ANSWER` drop the connection, too."""

    HOLD_REQUEST = "hold request"
    DROP_REQUEST = "drop request"
    HOLD_ANSWER = "hold answer"
    DROP_ANSWER = "drop answer"


class Rule:
    """What the proxy does to one request, or to its answer.

    Attributes:
        fired: set once the request or the answer is held or dropped.
        answered: set once the broker has answered the request. Never for a request that is dropped.
    """

    def __init__(self, api: Api, action: Action, nth: int = 1, seconds: float = 60.0, cuts: bool = False) -> None:
        """
        Args:
            api: whose requests are counted, from the moment at which the rule is added.
            action: what is done.
            nth: to which request; 1 is the next.
            seconds: how long a request or an answer is held, unless `release` is called before.
            cuts: whether the proxy then cuts off all its clients, as `KafkaProxy.cut` does.
        """
        self.api = api
        self.action = action
        self.cuts = cuts
        self.fired = threading.Event()
        self.answered = threading.Event()
        self._left = nth
        self._seconds = seconds
        self._released = threading.Event()

    def meets(self, api: int) -> bool:
        """Count a request. Return whether it is the one. Only the proxy calls this, one thread at a time."""
        if api != self.api:
            return False
        self._left -= 1
        return self._left == 0

    def hold(self) -> None:
        """Block until the time is over or `release` is called."""
        self.fired.set()
        self._released.wait(self._seconds)

    def release(self) -> None:
        """Let go what is held. Any thread."""
        self._released.set()


class KafkaProxy:
    """The proxy. Its threads run from `__enter__` to `__exit__`. All methods: any thread.

    Attributes:
        port: where it listens.
    """

    def __init__(self, broker_port: int) -> None:
        """`broker_port`: the listener of the broker that tells clients the address of the proxy. It may listen later."""
        self._broker_port = broker_port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        self._lock = threading.Lock()
        self._rules: list[Rule] = []
        self._counts: Counter[int] = Counter()
        self._links: set[_Link] = set()
        self._is_cut = False

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.port}"

    def add(self, rule: Rule) -> Rule:
        """Obey a rule from now on. Return it."""
        with self._lock:
            self._rules.append(rule)
        return rule

    def withdraw(self, rule: Rule) -> None:
        """Obey a rule no longer. A request that it holds goes on only after `Rule.release`."""
        with self._lock:
            self._rules.remove(rule)

    def requests(self, api: Api) -> int:
        """Return how many requests of an API have come."""
        with self._lock:
            return self._counts[api]

    def cut(self) -> None:
        """Drop all connections, and refuse new ones until `mend`."""
        with self._lock:
            self._is_cut = True
            links = list(self._links)
        for link in links:
            link.close()

    def mend(self) -> None:
        """Accept connections again."""
        with self._lock:
            self._is_cut = False

    def __enter__(self) -> KafkaProxy:
        _thread(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        with suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)  # wakes `_accept`
        self._server.close()
        for rule in self._rules:
            rule.release()

    def rule_of(self, api: int) -> Rule | None:
        """Count a request. Return the rule for it; None without one. Only connections call this."""
        with self._lock:
            self._counts[api] += 1
            return next((rule for rule in list(self._rules) if rule.meets(api)), None)

    def forget(self, link: _Link) -> None:
        """Note that a connection has ended. Only connections call this."""
        with self._lock:
            self._links.discard(link)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                link = None if self._is_cut else _Link(self, client)
                if link is not None:
                    self._links.add(link)
            if link is None:
                client.close()
            else:
                link.connect(self._broker_port)


class _Link:
    """A connection of a client, and the connection to the broker that belongs to it. A thread for each direction."""

    def __init__(self, proxy: KafkaProxy, client: socket.socket) -> None:
        self._proxy = proxy
        self._client = client
        self._broker = socket.socket()
        self._met: dict[int, Rule] = {}
        """correlation id → the rule of a request that has no answer yet."""

    def connect(self, port: int) -> None:
        """Connect to the broker, and start the threads. Closes the client's connection if the broker does not listen."""
        try:
            self._broker.connect(("127.0.0.1", port))
        except OSError:
            return self.close()
        for end in (self._client, self._broker):
            with suppress(OSError):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _thread(self._forward_requests)
        _thread(self._forward_answers)
        return None

    def close(self) -> None:
        for end in (self._client, self._broker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads it
            end.close()
        self._proxy.forget(self)

    def _forward_requests(self) -> None:
        with suppress(OSError):
            while (request := _frame(self._client)) is not None:
                api, _version, correlation = struct.unpack(">hhi", request[4:12])
                rule = self._proxy.rule_of(api)
                if rule is not None:
                    if rule.action is Action.DROP_REQUEST:
                        return self._drop(rule)
                    self._met[correlation] = rule
                    if rule.action is Action.HOLD_REQUEST:
                        rule.hold()
                self._broker.sendall(request)
        for rule in list(self._met.values()):  # the broker obeys a request also if its client is gone
            rule.answered.wait(ANSWER_S)
        return self.close()

    def _forward_answers(self) -> None:
        with suppress(OSError):
            while (answer := _frame(self._broker)) is not None:
                (correlation,) = struct.unpack(">i", answer[4:8])
                rule = self._met.get(correlation)
                if rule is not None:
                    rule.answered.set()
                    del self._met[correlation]
                    if rule.action is Action.DROP_ANSWER:
                        return self._drop(rule)
                    if rule.action is Action.HOLD_ANSWER:
                        rule.hold()
                with suppress(OSError):  # the client may be gone, and another answer be waited for
                    self._client.sendall(answer)
        return self.close()

    def _drop(self, rule: Rule) -> None:
        if rule.cuts:
            self._proxy.cut()
        self.close()
        rule.fired.set()


def _frame(end: socket.socket) -> bytes | None:
    """Return the next request or answer with its size; None at the end."""
    size = _exactly(end, 4)
    if size is None:
        return None
    content = _exactly(end, struct.unpack(">i", size)[0])
    return None if content is None else size + content


def _exactly(end: socket.socket, count: int) -> bytes | None:
    found = bytearray()
    while len(found) < count:
        part = end.recv(count - len(found))
        if not part:
            return None
        found += part
    return bytes(found)


def _thread(run: object) -> None:
    assert callable(run)
    threading.Thread(target=run, name="KafkaProxy", daemon=True).start()


@contextmanager
def running_proxied_broker(directory: Path, settings: dict[str, str] | None = None) -> Iterator[tuple[KafkaBroker, KafkaProxy]]:
    """A broker and a proxy before it, for the length of a with block."""
    (port,) = free_ports(1)
    with KafkaProxy(port) as proxy, running_broker(directory, settings, ProxiedListener(port, proxy.port)) as broker:
        yield broker, proxy
