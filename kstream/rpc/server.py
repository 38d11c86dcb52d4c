"""RpcServer: the port of a process, for those who have its token."""

from __future__ import annotations

import logging
import selectors
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, TypeAlias

from kstream.clock import Clock, SystemClock
from kstream.errors import RpcError
from kstream.rpc.credentials import RpcCredentials, server_context
from kstream.rpc.wire import EAGER_BYTES, REFUSED, AuthenticationError, FrameError, Head, Kind, Wire, check_count, server_handshake

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[bytes], bytes]
"""Answers a message. May block: each call has a thread of its own. The caller gets its error as an RpcError; a KeyError stays one."""

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
IDLE_S = 300.0
"""A connection is closed when no byte came on it, or could be sent, for so long."""
_HANDSHAKE_S = 30.0
_MOST_UNAUTHENTICATED = 256
_LAST_ANSWERS_S = 0.5
_MOST_ERROR_CHARACTERS = 10_000
_LOG_EVERY_MS = 60_000
_MOST_ADDRESSES = 1000


class Blocks(Protocol):
    """Keeps the blocks that clients put (`kstream.receiver.block_store`). Called by many threads."""

    def put(self, block_id: str, chunks: Sequence[bytes], level: str) -> None:
        """Keep a block. `level` comes from the caller of `RpcClient.put`."""
        ...

    def get(self, block_id: str) -> Sequence[bytes]:
        """The chunks of a block. KeyError if there is none."""
        ...


class Refusals:
    """Counts the connections that were refused, and logs them once a minute for each address. Any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._by_address: dict[str, tuple[int, int]] = {}
        """For each address: when its refusals were logged last, and how many came since."""

    @property
    def count(self) -> int:
        with self._lock:
            return self._count

    def add(self, address: str, reason: str) -> None:
        now = self._clock.monotonic_ms()
        with self._lock:
            self._count += 1
            address = self._known(address, now)
            logged_at, since = self._by_address.get(address, (now - _LOG_EVERY_MS, 0))
            due = now - logged_at >= _LOG_EVERY_MS
            self._by_address[address] = (now, 0) if due else (logged_at, since + 1)
            count = self._count
        if due:
            logger.warning("RpcServer refused %d connections from %s: %s (%d in all)", since + 1, address, reason, count)

    def _known(self, address: str, now: int) -> str:
        """The address to count by: clients with very many addresses share one entry, so that they fill neither the log nor the memory."""
        if address in self._by_address or len(self._by_address) < _MOST_ADDRESSES:
            return address
        self._by_address = {known: (at, n) for known, (at, n) in self._by_address.items() if now - at < _LOG_EVERY_MS}
        return address if len(self._by_address) < _MOST_ADDRESSES else "other addresses"


class RpcServer:
    """Listens from its construction until `close`. A client proves that it has the token before the server reads anything else from it.

    Threads: one accepts, and each connection has one. `_changed` guards the connections and `_closing`. At most _MOST_UNAUTHENTICATED
    connections may be unauthenticated: beyond that the oldest of these is closed.
    """

    def __init__(
        self,
        credentials: RpcCredentials,
        handlers: Mapping[str, Handler],
        blocks: Blocks | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        most_message: int = MOST_MESSAGE_BYTES,
        most_block: int = 512 * 1024 * 1024,
        clock: Clock | None = None,
    ) -> None:
        """
        Args:
            handlers: By the names of the messages.
            blocks: None if the server keeps no blocks.
            host: The address to bind.
            port: 0 lets the system choose.
            most_message: A larger message, in bytes, is refused before its body is read.
            most_block: A larger block, in bytes, is refused before its body is read.
            clock: The time of the log lines about refused connections.

        Raises:
            RpcError: the address cannot be had.
        """
        self._token = credentials.token
        self._tls = server_context(credentials)
        self._handlers = dict(handlers)
        self._blocks = blocks
        self._most = {Kind.ASK: most_message, Kind.PUT: most_block}
        self._refusals = Refusals(clock or SystemClock())
        self._changed = threading.Condition()
        self._closing = False
        self._unauthenticated: dict[socket.socket, None] = {}
        self._open: dict[socket.socket, bool] = {}
        """Connections that have proved the token, and whether a call is being answered on each."""
        try:
            self._listener = _listener(host, port)
        except OSError as e:
            place = f"{host}:{port}"
            raise RpcError(f"cannot listen on {place}: is it an address of this machine, and the port free? ({e})", place=place) from e
        self.port: int = self._listener.getsockname()[1]
        self._wake, self._waker = socket.socketpair()
        self._accepting = threading.Thread(target=self._accept_all, name=f"RpcServer-{self.port}", daemon=True)
        self._accepting.start()

    @property
    def refused(self) -> int:
        """The number of refused connections: nearly all did not prove the token."""
        return self._refusals.count

    def answer(self, handlers: Mapping[str, Handler]) -> None:
        """Add handlers of further messages."""
        self._handlers = {**self._handlers, **handlers}

    def close(self) -> None:
        """Free the port and close all connections. Calls under way get half a second for their answers. Idempotent."""
        with self._changed:
            if self._closing:
                return
            self._closing = True
            connections = [*self._unauthenticated, *self._open]
        self._waker.close()
        self._accepting.join()
        self._listener.close()
        self._wake.close()
        with self._changed:
            for connection in connections:
                _shut(connection, socket.SHUT_RD if self._open.get(connection) else socket.SHUT_RDWR)
            self._changed.wait_for(lambda: not any(self._open.values()), _LAST_ANSWERS_S)
            connections = [*self._unauthenticated, *self._open]
        for connection in connections:
            _shut(connection, socket.SHUT_RDWR)

    # -- the thread that accepts

    def _accept_all(self) -> None:
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closing:
                selector.select()
                try:
                    connection, address = self._listener.accept()
                except BlockingIOError:
                    continue
                except OSError as e:  # no file descriptors, say
                    self._refusals.add("any address", f"no connection can be accepted: {e}")
                    time.sleep(0.1)
                    continue
                self._begin(connection, str(address[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        connection = accepted
        try:
            if self._tls is not None:
                connection = self._tls.wrap_socket(accepted, server_side=True, do_handshake_on_connect=False)
            with self._changed:
                self._unauthenticated[connection] = None
                oldest = next(iter(self._unauthenticated)) if len(self._unauthenticated) > _MOST_UNAUTHENTICATED else None
                if oldest is not None:
                    del self._unauthenticated[oldest]
            if oldest is not None:
                _shut(oldest, socket.SHUT_RDWR)
            threading.Thread(target=self._serve, args=(connection, address), name=f"RpcServer-{self.port}-call", daemon=True).start()
        except (OSError, RuntimeError) as e:  # it has gone already, or there can be no more threads
            self._refusals.add(address, f"it could not be served: {e}")
            with self._changed:
                self._unauthenticated.pop(connection, None)
            connection.close()

    # -- the thread of a connection

    def _serve(self, connection: socket.socket, address: str) -> None:
        wire = Wire(connection)
        try:
            connection.settimeout(_HANDSHAKE_S)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._authenticated(connection, wire, address) and self._admitted(connection):
                connection.settimeout(IDLE_S)
                self._talk(wire, connection)
        except OSError as e:
            logger.debug("the connection from %s has ended: %s", address, e)
        finally:
            with self._changed:
                self._unauthenticated.pop(connection, None)
                self._open.pop(connection, None)
                self._changed.notify_all()
            _shut(connection, socket.SHUT_RDWR)
            wire.close()

    def _authenticated(self, connection: socket.socket, wire: Wire, address: str) -> bool:
        try:
            if isinstance(connection, ssl.SSLSocket):
                connection.do_handshake()
            server_handshake(wire, self._token)
        except (AuthenticationError, ssl.SSLError) as e:
            self._refusals.add(address, str(e))
            if isinstance(e, AuthenticationError):
                connection.sendall(REFUSED)
            return False
        return True

    def _admitted(self, connection: socket.socket) -> bool:
        """False if the server has closed the connection meanwhile."""
        with self._changed:
            known = connection in self._unauthenticated
            self._unauthenticated.pop(connection, None)
            if self._closing or not known:
                return False
            self._open[connection] = False
            return True

    def _talk(self, wire: Wire, connection: socket.socket) -> None:
        while (head := wire.read_head()) is not None:
            with self._changed:
                self._open[connection] = True
            self._one_call(wire, head)
            with self._changed:
                self._open[connection] = False
                self._changed.notify_all()
                if self._closing:
                    return

    def _one_call(self, wire: Wire, head: Head) -> None:
        if refusal := self._too_large(head):
            if head.size <= EAGER_BYTES:
                wire.read_parts(head)  # these have been sent already
            wire.send(Kind.FAILED, [refusal.encode()])
            return
        if head.size > EAGER_BYTES:
            wire.send(Kind.GO_ON)
        kind, parts = self._answer_to(head, wire.read_parts(head))
        wire.send(kind, parts)

    def _too_large(self, head: Head) -> str:
        most = self._most.get(head.kind, 0)
        if head.size <= most:
            return ""
        if head.kind is Kind.PUT:
            return f"block {head.name} is refused: it has more than the {most} bytes that a block can have"
        return f"a message {head.name} of {head.size} bytes is refused: it can have {most}"

    def _answer_to(self, head: Head, parts: list[bytes]) -> tuple[Kind, Sequence[bytes]]:
        """The answer, ready to be sent. An error of the call is an answer, too; only a frame that is no request raises FrameError."""
        try:
            if head.kind is Kind.ASK:
                return Kind.DONE, _sendable([self._handler(head.name)(b"".join(parts))])
            if head.kind is Kind.PUT:
                self._kept().put(head.name, parts, head.how)
                return Kind.DONE, []
            if head.kind is Kind.GET:
                return Kind.DONE, _sendable(self._kept().get(head.name))
        except KeyError as e:
            return Kind.NOT_THERE, [_error_text(e.args[0] if e.args else e)]
        except Exception as e:
            return Kind.FAILED, [_error_text(e)]
        raise FrameError(f"{head.kind.name} is no request")

    def _handler(self, name: str) -> Handler:
        handler = self._handlers.get(name)
        if handler is None:
            raise ValueError(f"no message is called {name!r} here; there are {', '.join(sorted(self._handlers))}")
        return handler

    def _kept(self) -> Blocks:
        if self._blocks is None:
            raise ValueError("no blocks are kept here")
        return self._blocks


def _listener(host: str, port: int) -> socket.socket:
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
    listener.setblocking(False)
    return listener


def _sendable(parts: Sequence[bytes]) -> Sequence[bytes]:
    """The parts of an answer. TypeError or ValueError if they cannot be sent: a handler may be the user's, and unchecked."""
    check_count(parts)
    for part in parts:
        if not isinstance(part, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an answer is of bytes, not of {type(part).__name__}")
    return parts


def _error_text(error: object) -> bytes:
    """The first line of the error's message, as bytes. Its class, if there is no message or the message cannot be read."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return (lines[0] if lines else type(error).__name__)[:_MOST_ERROR_CHARACTERS].encode(errors="replace")


def _shut(connection: socket.socket, how: int) -> None:
    """Wakes up the thread that reads from it or writes to it."""
    try:
        socket.socket.shutdown(connection, how)  # that of an SSLSocket would send what follows unencrypted
    except OSError:  # it is closed
        pass
