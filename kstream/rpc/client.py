"""RpcClient: messages and blocks to one RpcServer."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.rpc.credentials import CERTIFICATE_NAME, RpcCredentials, client_context
from kstream.rpc.wire import AuthenticationError, FrameError, MessageKind, Wire, client_handshake

MOST_ANSWER_BYTES = 1024 * 1024 * 1024
"""The largest answer that a client reads."""
_MOST_IDLE_S = 60.0
"""Seconds without a call after which a client does not use a connection again. A server keeps it longer (`server.IDLE_S`)."""


class RpcClient:
    """A client of one RpcServer. Thread-safe; every call blocks.

    The first call connects. A connection serves one call at a time and is kept for the next one. A call fails when the server has been
    silent for `timeout_s` seconds, that is when no byte could be read from it or sent to it. A large block may take longer than that.
    """

    def __init__(self, host: str, port: int, credentials: RpcCredentials, timeout_s: float = 30.0) -> None:
        self.place = f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
        self._address = (host, port)
        self._token = credentials.token
        self._tls = client_context(credentials)
        self._timeout = timeout_s
        self._lock = threading.Lock()
        self._idle: list[tuple[Wire, float]] = []

    def ask(self, what: str, body: bytes = b"") -> bytes:
        """Send a message, and return its answer. Blocks.

        Args:
            what: the name of the message.
            body: the argument of the server's handler.

        Raises:
            KeyError: the handler raised a KeyError.
            ValueError: the name is too long.
            RpcRefusedError: the server has other credentials.
            RpcUnreachableError: the server does not answer.
            RpcError: the handler failed, or the message is too large for the server.
        """
        [answer] = self._call(what, MessageKind.ASK, what, "", [body])
        return answer

    def put(self, block_id: str, chunks: Sequence[bytes], level: str = "") -> None:
        """Store a block. Block until the server has it.

        Args:
            block_id: the id of the block.
            chunks: its bytes.
            level: passed on to the server's `Blocks.put`.

        Raises:
            ValueError: there are too many chunks for a block, or its id or the level is too long.
            RpcError: the server did not store the block; the subclasses are those of `ask`.
        """
        self._call(f"put {block_id}", MessageKind.PUT, block_id, level, chunks)

    def get(self, block_id: str) -> list[bytes]:
        """Return the chunks of a block. Blocks.

        Raises:
            KeyError: the server does not have the block.
            ValueError: the id is too long.
            RpcError: the call failed; the subclasses are those of `ask`.
        """
        return self._call(f"get {block_id}", MessageKind.GET, block_id, "", [])

    def close(self) -> None:
        """Close the connections that no call is using. Idempotent; a later call connects again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for wire, _ in idle:
            wire.close()

    def _call(self, what: str, kind: MessageKind, name: str, how: str, parts: Sequence[bytes]) -> list[bytes]:
        """Send a request over an idle connection or a new one, and return the parts of the answer. Raises as `ask`."""
        try:
            wire = self._idle_connection() or self._connect()
        except (AuthenticationError, ssl.SSLCertVerificationError) as e:  # the certificate belongs to the credentials, as the token does
            raise RpcRefusedError(
                f"{self.place} refused {what!r}: it belongs to another application, or to an earlier start of this one", place=self.place
            ) from e
        except OSError as e:
            raise self._unreachable(what, e) from e
        try:
            head = wire.request(kind, name, how, parts)
            if head.size > MOST_ANSWER_BYTES:
                raise FrameError(f"the answer has {head.size} bytes; it can have {MOST_ANSWER_BYTES}")
            answer = wire.read_parts(head)
        except OSError as e:
            wire.close()
            raise self._unreachable(what, e) from e
        except BaseException:
            wire.close()
            raise
        with self._lock:
            self._idle.append((wire, time.monotonic()))
        if head.kind is MessageKind.DONE:
            return answer
        text = b"".join(answer).decode(errors="replace")
        if head.kind is MessageKind.NOT_THERE:
            raise KeyError(text)
        raise RpcError(f"{self.place} could not do {what!r}: {text}", place=self.place)

    def _unreachable(self, what: str, error: OSError) -> RpcUnreachableError:
        return RpcUnreachableError(f"{self.place} did not answer {what!r}: {error}", place=self.place)

    def _idle_connection(self) -> Wire | None:
        """Take the last used idle connection that is still open; None if there is none. Connections that have ended are closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                wire, since = self._idle.pop()
            if time.monotonic() - since < _MOST_IDLE_S and not _readable(wire.socket):
                return wire
            wire.close()

    def _connect(self) -> Wire:
        """Make a connection, with TLS if the credentials have a certificate, and do the handshake. OSError if one of these fails."""
        connection = socket.create_connection(self._address, self._timeout)
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                connection = self._tls.wrap_socket(connection, server_hostname=CERTIFICATE_NAME)
            wire = Wire(connection)
            client_handshake(wire, self._token)
        except BaseException:
            connection.close()
            raise
        return wire


def _readable(connection: socket.socket) -> bool:
    """Return whether something can be read from an idle connection. If so, the server has closed it."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
