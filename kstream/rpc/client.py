"""RpcClient: messages and blocks to one RpcServer."""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections.abc import Sequence

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.rpc.credentials import CERTIFICATE_NAME, RpcCredentials
from kstream.rpc.encryption import client_context
from kstream.rpc.handshake import AuthenticationError, client_handshake
from kstream.rpc.server import bracketed
from kstream.rpc.wire import FrameError, Kind, Wire

MOST_ANSWER_BYTES = 1024 * 1024 * 1024
_MOST_IDLE_S = 60.0
"""A connection that was idle for longer is not used again. A server keeps it longer (`server.IDLE_S`)."""


class RpcClient:
    """Thread-safe. Connects with the first call; a connection serves one call at a time and is kept for the next one.

    A call blocks. It fails when the server has been silent for `timeout_s` seconds: no byte could be read from it or sent to it. A large
    block may take longer than that.
    """

    def __init__(self, host: str, port: int, credentials: RpcCredentials, timeout_s: float = 30.0) -> None:
        self.place = f"{bracketed(host)}:{port}"
        self._address = (host, port)
        self._token = credentials.token
        self._tls = client_context(credentials)
        self._timeout = timeout_s
        self._lock = threading.Lock()
        self._idle: list[tuple[Wire, float]] = []

    def ask(self, what: str, body: bytes = b"") -> bytes:
        """The answer to a message. KeyError if its handler raised one; RpcRefusedError, RpcUnreachableError, RpcError."""
        [answer] = self._call(what, Kind.ASK, what, "", [body])
        return answer

    def put(self, name: str, chunks: Sequence[bytes], how: str = "") -> None:
        """Returns when the server has kept the block; `how` is for it to understand. Errors as of `ask`."""
        self._call(f"put {name}", Kind.PUT, name, how, chunks)

    def get(self, name: str) -> list[bytes]:
        """The chunks of a block. KeyError if it is not there; else errors as of `ask`."""
        return self._call(f"get {name}", Kind.GET, name, "", [])

    def close(self) -> None:
        """Closes the connections that no call is using. Idempotent; a later call connects again."""
        with self._lock:
            idle, self._idle = self._idle, []
        for wire, _ in idle:
            wire.close()

    def _call(self, what: str, kind: Kind, name: str, how: str, parts: Sequence[bytes]) -> list[bytes]:
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
        if head.kind is Kind.DONE:
            return answer
        said = b"".join(answer).decode(errors="replace")
        if head.kind is Kind.NOT_THERE:
            raise KeyError(said)
        raise RpcError(f"{self.place} could not do {what!r}: {said}", place=self.place)

    def _unreachable(self, what: str, error: OSError) -> RpcUnreachableError:
        return RpcUnreachableError(f"{self.place} did not answer {what!r}: {error}", place=self.place)

    def _idle_connection(self) -> Wire | None:
        """One that is still open, the last used first; the others are closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                wire, since = self._idle.pop()
            if time.monotonic() - since < _MOST_IDLE_S and not _readable(wire.socket):
                return wire
            wire.close()

    def _connect(self) -> Wire:
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
    """Whether an idle connection has something to read. It has that only if the server closed the connection."""
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    return bool(poll.poll(0))
