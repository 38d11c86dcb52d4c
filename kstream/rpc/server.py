"""RpcServer: a TCP port that answers messages and keeps blocks, for clients that have the token."""

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
from kstream.rpc.wire import EAGER_BYTES, REFUSED, AuthenticationError, FrameError, Head, MessageKind, Wire, check_count, server_handshake

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[bytes], bytes]
"""The function that answers a message. It runs on the thread of the client's connection, and may block.

The client gets a KeyError of the handler as a KeyError, and every other error as an RpcError.
"""

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
IDLE_S = 300.0
"""Seconds without a byte received, or without a byte that could be sent, after which the server closes a connection."""
_HANDSHAKE_S = 30.0
_MOST_UNAUTHENTICATED = 256
_LAST_ANSWERS_S = 0.5
_MOST_ERROR_CHARACTERS = 10_000
_LOG_EVERY_MS = 60_000
_MOST_ADDRESSES = 1000


class Blocks(Protocol):
    """The blocks that clients put (`kstream.receiver.block_store` implements it). Many threads call it at once."""

    def put(self, block_id: str, chunks: Sequence[bytes], level: str) -> None:
        """Keep a block. `level` is the argument of `RpcClient.put`. The client gets an error as an RpcError."""
        ...

    def get(self, block_id: str) -> Sequence[bytes]:
        """Return the chunks of a block. KeyError if there is no such block."""
        ...


class Refusals:
    """A counter of refused connections, which logs them at most once a minute for each address. Any thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._count = 0
        self._by_address: dict[str, tuple[int, int]] = {}
        """For each address: when its refusals were logged last, and how many came since."""

    @property
    def count(self) -> int:
        """The number of refused connections of all addresses."""
        with self._lock:
            return self._count

    def add(self, address: str, reason: str) -> None:
        """Count a refused connection; log it if the address was not logged within the last minute."""
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
        """Return the name under which refusals of an address are counted: the address itself. Call this under the lock.

        Beyond _MOST_ADDRESSES addresses, further ones share one entry, so that they fill neither the log nor the memory.
        """
        if address in self._by_address or len(self._by_address) < _MOST_ADDRESSES:
            return address
        self._by_address = {known: (at, n) for known, (at, n) in self._by_address.items() if now - at < _LOG_EVERY_MS}
        return address if len(self._by_address) < _MOST_ADDRESSES else "other addresses"


class RpcServer:
    """A server that listens from its construction until `close`.

    A client proves that it has the token before the server reads anything else from it. At most _MOST_UNAUTHENTICATED connections may
    be unauthenticated: beyond that number the oldest of them is closed.

    Threads: one thread accepts connections, and each connection has a thread. `_changed` guards the connections and `_closing`.
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
        """Listen on the port, and start the thread that accepts connections.

        Args:
            credentials: The token that clients must prove, and the certificate if calls are encrypted.
            handlers: The handlers, by the names of their messages.
            blocks: The blocks that clients put and get; None if the server keeps no blocks.
            host: The address to bind.
            port: The port to bind; 0 lets the system choose. The attribute `port` has the result.
            most_message: The most bytes of a message. A larger one is refused before its body is read.
            most_block: The most bytes of a block. A larger one is refused before its body is read.
            clock: Limits the log lines about refused connections; None is the machine's clock.

        Raises:
            RpcError: the server cannot listen on the address and port.
        """
        self._token = credentials.token
        self._tls = server_context(credentials)
        self._handlers = dict(handlers)
        self._blocks = blocks
        self._most = {MessageKind.ASK: most_message, MessageKind.PUT: most_block}
        self._refusals = Refusals(clock or SystemClock())
        self._changed = threading.Condition()
        self._closing = False
        self._unauthenticated: dict[socket.socket, None] = {}
        self._open: dict[socket.socket, bool] = {}
        """For each connection that has proved the token: whether the server is answering a call on it."""
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
        """The number of refused connections. Nearly all of them did not prove the token. Any thread."""
        return self._refusals.count

    def answer(self, handlers: Mapping[str, Handler]) -> None:
        """Add handlers, by the names of their messages. A new handler replaces an old one of the same name."""
        self._handlers = {**self._handlers, **handlers}

    def close(self) -> None:
        """Free the port and close all connections. Idempotent.

        Block until calls under way are answered, for half a second at most.
        """
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
        """Accept connections until `close`."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._listener, selectors.EVENT_READ)
            selector.register(self._wake, selectors.EVENT_READ)
            while not self._closing:
                selector.select()
                try:
                    connection, address = self._listener.accept()
                except BlockingIOError:
                    continue
                except OSError as e:  # for example: no file descriptors are left
                    self._refusals.add("any address", f"no connection can be accepted: {e}")
                    time.sleep(0.1)
                    continue
                self._begin(connection, str(address[0]))

    def _begin(self, accepted: socket.socket, address: str) -> None:
        """Start the thread of a new connection. If too many connections are unauthenticated, shut the oldest of them."""
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
        except (OSError, RuntimeError) as e:  # the client has gone already, or the process can start no more threads
            self._refusals.add(address, f"it could not be served: {e}")
            with self._changed:
                self._unauthenticated.pop(connection, None)
            connection.close()

    # -- the thread of a connection

    def _serve(self, connection: socket.socket, address: str) -> None:
        """Authenticate the client, and answer its calls until the connection ends. Runs on the connection's thread."""
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
        """Do the handshakes of TLS and of the token. If the client fails one, count the refusal, tell the client, and return False."""
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
        """Move the connection to those that have proved the token. Return False if the server has shut it meanwhile."""
        with self._changed:
            known = connection in self._unauthenticated
            self._unauthenticated.pop(connection, None)
            if self._closing or not known:
                return False
            self._open[connection] = False
            return True

    def _talk(self, wire: Wire, connection: socket.socket) -> None:
        """Answer calls until the client closes the connection, or the server is closing."""
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
        """Read the parts of a request and send its answer. Refuse a request that is too large."""
        if refusal := self._too_large(head):
            if head.size <= EAGER_BYTES:
                wire.read_parts(head)  # the client has sent these parts already
            wire.send(MessageKind.FAILED, [refusal.encode()])
            return
        if head.size > EAGER_BYTES:
            wire.send(MessageKind.GO_ON)
        kind, parts = self._answer_to(head, wire.read_parts(head))
        wire.send(kind, parts)

    def _too_large(self, head: Head) -> str:
        """Return the text of the refusal of a request that is too large; "" for any other request."""
        most = self._most.get(head.kind, 0)
        if head.size <= most:
            return ""
        if head.kind is MessageKind.PUT:
            return f"block {head.name} is refused: it has more than the {most} bytes that a block can have"
        return f"a message {head.name} of {head.size} bytes is refused: it can have {most}"

    def _answer_to(self, head: Head, parts: list[bytes]) -> tuple[MessageKind, Sequence[bytes]]:
        """Return the kind and the parts of the answer. An error of the handler becomes an answer. FrameError if the frame is no request."""
        try:
            if head.kind is MessageKind.ASK:
                return MessageKind.DONE, _sendable([self._handler(head.name)(b"".join(parts))])
            if head.kind is MessageKind.PUT:
                self._kept().put(head.name, parts, head.how)
                return MessageKind.DONE, []
            if head.kind is MessageKind.GET:
                return MessageKind.DONE, _sendable(self._kept().get(head.name))
        except KeyError as e:
            return MessageKind.NOT_THERE, [_error_text(e.args[0] if e.args else e)]
        except Exception as e:
            return MessageKind.FAILED, [_error_text(e)]
        raise FrameError(f"{head.kind.name} is no request")

    def _handler(self, name: str) -> Handler:
        """Return the handler of a message. ValueError if there is none."""
        handler = self._handlers.get(name)
        if handler is None:
            raise ValueError(f"no message is called {name!r} here; there are {', '.join(sorted(self._handlers))}")
        return handler

    def _kept(self) -> Blocks:
        """Return the blocks of this server. ValueError if it keeps none."""
        if self._blocks is None:
            raise ValueError("no blocks are kept here")
        return self._blocks


def _listener(host: str, port: int) -> socket.socket:
    """Make a listening socket whose `accept` does not block. OSError."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((host, port), family=family, backlog=socket.SOMAXCONN)
    listener.setblocking(False)
    return listener


def _sendable(parts: Sequence[bytes]) -> Sequence[bytes]:
    """Check and return the parts of an answer, because no type checker may have seen the handler.

    Raises:
        ValueError: there are too many parts.
        TypeError: a part is not `bytes`.
    """
    check_count(parts)
    for part in parts:
        if not isinstance(part, bytes):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"an answer is of bytes, not of {type(part).__name__}")
    return parts


def _error_text(error: object) -> bytes:
    """Return the first line of the error's message as bytes; the name of its class if it has no message or `str` of it fails."""
    try:
        lines = str(error).strip().splitlines()
    except Exception:
        lines = []
    return (lines[0] if lines else type(error).__name__)[:_MOST_ERROR_CHARACTERS].encode(errors="replace")


def _shut(connection: socket.socket, how: int) -> None:
    """Shut a connection down. This wakes up the thread that reads from it or writes to it. Any thread; never raises OSError."""
    try:
        socket.socket.shutdown(connection, how)  # an SSLSocket's own `shutdown` would make it send later bytes unencrypted
    except OSError:  # the connection is closed already
        pass
