"""The handshake: both ends of a connection prove that they have the token, before anything else is read.

The client sends a magic number and a nonce, the server answers with a nonce of its own. Then the client sends the HMAC of both nonces under
the token, and the server answers with another one. So the token itself is never sent, and a recorded answer is of no use. All parts have
fixed sizes: of an unauthenticated client the server looks at 53 bytes and buffers no more than a few KiB.
"""

from __future__ import annotations

import hmac
import logging
import secrets
import threading

from kstream.clock import Clock
from kstream.rpc.wire import Wire

logger = logging.getLogger(__name__)
_MAGIC = b"KSRP\x01"
_NONCE_BYTES = 16
_PROOF_BYTES = 32
REFUSED = bytes(_PROOF_BYTES)
"""What a server sends to an unauthenticated client, in place of its proof."""
_LOG_EVERY_MS = 60_000
_MOST_ADDRESSES = 1000


class AuthenticationError(ConnectionError):
    """The other end does not have the token."""


def client_handshake(wire: Wire, token: str) -> None:
    """Do the client's part. AuthenticationError if one of the two ends does not accept the other; else OSError."""
    mine = secrets.token_bytes(_NONCE_BYTES)
    wire.socket.sendall(_MAGIC + mine)
    nonces = mine + wire.read_exactly(_NONCE_BYTES)
    wire.socket.sendall(_proof(token, b"client", nonces))
    answer = wire.read_exactly(_PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(token, b"server", nonces)):
        raise AuthenticationError("the two ends have different tokens")


def server_handshake(wire: Wire, token: str) -> None:
    """Do the server's part. AuthenticationError if the client has no token: send it REFUSED. OSError if the client goes away first."""
    if wire.read_exactly(len(_MAGIC)) != _MAGIC:
        raise AuthenticationError("the client sent no handshake")
    theirs = wire.read_exactly(_NONCE_BYTES)
    mine = secrets.token_bytes(_NONCE_BYTES)
    wire.socket.sendall(mine)
    if not hmac.compare_digest(wire.read_exactly(_PROOF_BYTES), _proof(token, b"client", theirs + mine)):
        raise AuthenticationError("the client does not have the context's token")
    wire.socket.sendall(_proof(token, b"server", theirs + mine))


def _proof(token: str, side: bytes, nonces: bytes) -> bytes:
    return hmac.digest(token.encode(), side + nonces, "sha256")


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
