"""The handshake of a connection, and the frames that client and server send each other after it.

The handshake: both ends prove that they have the token, before anything else is read. The client sends a magic number and a nonce, the
server answers with a nonce of its own. Then the client sends the HMAC of both nonces under the token, and the server answers with another
one. So the token itself is never sent, and a recorded answer is of no use. All parts have fixed sizes: the server reads 53 bytes of an
unauthenticated client, and buffers no more than a few KiB.

A frame is a head, then the name and the `how` of the call, then the parts: bodies of messages, chunks of blocks. The head says how many
parts there are and how large they are together. Above EAGER_BYTES a request sends its parts only after the server has answered GO_ON. So a
server can refuse a large request before its parts are sent, and the connection remains usable.
"""

from __future__ import annotations

import enum
import hmac
import secrets
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass

EAGER_BYTES = 64 * 1024
MOST_PARTS = 1 << 20
MOST_NAME_BYTES = 65_535
"""The longest name of a message or block, and the longest `how`: the head has two bytes for its length."""
_HEAD = struct.Struct(">BHHIQ")
_LENGTH_BYTES = 8
_MAGIC = b"KSRP\x01"
_NONCE_BYTES = 16
_PROOF_BYTES = 32
REFUSED = bytes(_PROOF_BYTES)
"""The bytes that a server sends in place of its proof to a client that failed the handshake."""


class FrameError(ConnectionError):
    """The other side sent bytes that are no frame, or closed the connection in the middle of a frame."""


class MessageKind(enum.IntEnum):
    """The kind of a frame. The first three are requests, the others are answers."""

    ASK = 1
    PUT = 2
    GET = 3
    DONE = 4
    GO_ON = 5
    NOT_THERE = 6
    FAILED = 7


@dataclass(frozen=True, slots=True)
class Head:
    """The head of a frame. `parts` is the number of parts, `size` their bytes together. `how` is the level of a PUT."""

    kind: MessageKind
    name: str = ""
    how: str = ""
    parts: int = 0
    size: int = 0


class Wire:
    """One connection, for one thread at a time. Its calls block, and raise OSError if the connection fails.

    The socket's time-out limits the silence of the other side: a call fails when no byte could be read or sent for so long. The time-out
    does not limit the whole call.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._file = connection.makefile("rb")

    def read_exactly(self, size: int) -> bytes:
        """Read `size` bytes. FrameError if the connection ends before them."""
        data = self._file.read(size)
        if len(data) < size:
            raise FrameError(f"the connection ended after {len(data)} of {size} bytes")
        return data

    def read_head(self) -> Head | None:
        """Read the next frame without its parts.

        Returns:
            The head; None if the other side has closed the connection between two frames.

        Raises:
            FrameError: the bytes are no head of a frame, or the connection ended in the middle of the head.
        """
        data = self._file.read(_HEAD.size)
        if not data:
            return None
        if len(data) < _HEAD.size:
            raise FrameError("the connection ended in the head of a frame")
        kind, name, how, parts, size = _HEAD.unpack(data)
        if parts > MOST_PARTS:
            raise FrameError(f"a frame says that it has {parts} parts; it can have {MOST_PARTS}")
        try:
            return Head(MessageKind(kind), self.read_exactly(name).decode(), self.read_exactly(how).decode(), parts, size)
        except ValueError as e:
            raise FrameError(f"not the head of a frame: {e}") from e

    def read_parts(self, head: Head) -> list[bytes]:
        """Read the parts of the frame whose head was read last. The caller must have compared `head.size` with its limit.

        Raises:
            FrameError: the parts have another size than the head says, or the connection ended before their end.
        """
        lengths = struct.unpack(f">{head.parts}Q", self.read_exactly(head.parts * _LENGTH_BYTES))
        if sum(lengths) != head.size:
            raise FrameError(f"the parts of a frame have {sum(lengths)} bytes, its head says {head.size}")
        return [self.read_exactly(length) for length in lengths]

    def request(self, kind: MessageKind, name: str, how: str, parts: Sequence[bytes]) -> Head:
        """Send a request, and return the head of the answer.

        Parts of more than EAGER_BYTES together are sent only after the server has answered GO_ON.

        Raises:
            ValueError: there are too many parts, or a name is too long. No byte was sent.
            FrameError: the connection ended before the answer.
        """
        size = sum(map(len, parts))
        if size <= EAGER_BYTES:
            self.send(kind, parts, name, how)
            return self._answer()
        self._send_all(_head(kind, name, how, parts, size))
        answer = self._answer()
        if answer.kind is not MessageKind.GO_ON:
            return answer
        self._send_parts(b"", parts, size)
        return self._answer()

    def send(self, kind: MessageKind, parts: Sequence[bytes] = (), name: str = "", how: str = "") -> None:
        """Send a whole frame. ValueError, before a byte is sent, if it has too many parts, or if a name is too long."""
        size = sum(map(len, parts))
        self._send_parts(_head(kind, name, how, parts, size), parts, size)

    def close(self) -> None:
        try:
            self._file.close()
        finally:
            self.socket.close()

    def _answer(self) -> Head:
        """Read the head of an answer. FrameError if the connection ended before it."""
        if (head := self.read_head()) is None:
            raise FrameError("the connection ended before the answer")
        return head

    def _send_parts(self, before: bytes, parts: Sequence[bytes], size: int) -> None:
        """Send the bytes `before`, the lengths of the parts, and the parts."""
        lengths = struct.pack(f">{len(parts)}Q", *map(len, parts))
        if size <= EAGER_BYTES:  # in one packet where possible
            self._send_all(b"".join([before, lengths, *parts]))
            return
        self._send_all(before + lengths)
        for part in parts:
            self._send_all(part)

    def _send_all(self, data: bytes) -> None:
        """Send all bytes. `socket.sendall` does not fit: its time-out limits the whole call, which a slow but steady reader exceeds."""
        rest = memoryview(data)
        while rest:
            rest = rest[self.socket.send(rest) :]


def _head(kind: MessageKind, name: str, how: str, parts: Sequence[bytes], size: int) -> bytes:
    """Return the bytes of a frame's head, with the name and the `how`. ValueError if there are too many parts, or if a name is too long."""
    check_count(parts)
    names = name.encode(), how.encode()
    for encoded in names:
        if len(encoded) > MOST_NAME_BYTES:
            raise ValueError(f"a name of {len(encoded)} bytes is too long for a frame; it can have {MOST_NAME_BYTES}: {encoded[:100]!r}…")
    return _HEAD.pack(kind, len(names[0]), len(names[1]), len(parts), size) + b"".join(names)


def check_count(parts: Sequence[bytes]) -> None:
    """Raise ValueError if a frame cannot have so many parts."""
    if len(parts) > MOST_PARTS:
        raise ValueError(f"{len(parts)} chunks are too many for one block; it can have {MOST_PARTS}")


# -- the handshake


class AuthenticationError(ConnectionError):
    """The other end does not have the token."""


def client_handshake(wire: Wire, token: str) -> None:
    """Do the client's part of the handshake. Blocks.

    Raises:
        AuthenticationError: the two ends have different tokens.
        OSError: the connection failed.
    """
    mine = secrets.token_bytes(_NONCE_BYTES)
    wire.socket.sendall(_MAGIC + mine)
    nonces = mine + wire.read_exactly(_NONCE_BYTES)
    wire.socket.sendall(_proof(token, b"client", nonces))
    answer = wire.read_exactly(_PROOF_BYTES)
    if not hmac.compare_digest(answer, _proof(token, b"server", nonces)):
        raise AuthenticationError("the two ends have different tokens")


def server_handshake(wire: Wire, token: str) -> None:
    """Do the server's part of the handshake. Blocks.

    Raises:
        AuthenticationError: the client does not have the token. The caller should send it REFUSED.
        OSError: the client closed the connection first, or the connection failed.
    """
    if wire.read_exactly(len(_MAGIC)) != _MAGIC:
        raise AuthenticationError("the client sent no handshake")
    theirs = wire.read_exactly(_NONCE_BYTES)
    mine = secrets.token_bytes(_NONCE_BYTES)
    wire.socket.sendall(mine)
    if not hmac.compare_digest(wire.read_exactly(_PROOF_BYTES), _proof(token, b"client", theirs + mine)):
        raise AuthenticationError("the client does not have the context's token")
    wire.socket.sendall(_proof(token, b"server", theirs + mine))


def _proof(token: str, side: bytes, nonces: bytes) -> bytes:
    """Return the HMAC by which one side, `client` or `server`, proves the token for these nonces."""
    return hmac.digest(token.encode(), side + nonces, "sha256")
