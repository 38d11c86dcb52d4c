"""The stored form of one partition of a state: frames, each with a digest of its own, so that an error names the damaged file.

    KSTATE\\0 version(1)                                    8 bytes
    kind(1) elements(8) length(8) digest(16) payload        a frame; numbers big-endian
    …
    E elements in all(8) 0(8) digest(16)                    the end

A frame of kind P holds a pickled list of elements. A frame of kind B holds a single element of type `bytes`, which is not pickled:
mapWithState encodes its state itself. A frame's digest is blake2b over the digest of the frame before, its own head and its payload. So a
frame that is missing, doubled or out of place does not fit. A file without the last line was cut.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kstream.errors import CorruptRecordError, FormatVersionError

VERSION = 1
_MAGIC = b"KSTATE\0"
_START = _MAGIC + bytes([VERSION])
_HEAD = struct.Struct(">cQQ")
_DIGEST = 16
_PICKLED, _RAW, _END = b"P", b"B", b"E"
_SMALL, _LARGE = 1 << 18, 1 << 22
"""Payload sizes in bytes. After a frame below `_SMALL` the next takes twice as many elements; after one above `_LARGE`, half as many."""
_MOST = 1 << 16
"""The maximum number of elements in a frame."""


def encode_state(elements: Iterable[Any], dumps: Callable[[list[Any]], bytes]) -> bytes:
    """Encode the elements of a partition as the bytes of a file. Keeps their order.

    Args:
        elements: the state of one partition.
        dumps: pickles a list of elements.
    """
    parts, digest, total = [_START], b"", 0
    for kind, count, payload in _frames(elements, dumps):
        head = _HEAD.pack(kind, count, len(payload))
        digest = _digest(digest, head, payload)
        parts += [head, digest, payload]
        total += count
    head = _HEAD.pack(_END, total, 0)
    return b"".join([*parts, head, _digest(digest, head, b"")])


def decode_state(data: bytes, place: str, loads: Callable[[bytes], list[Any]]) -> Iterator[Any]:
    """Decode the elements of a file, in their order. Each frame is unpickled when the iteration reaches it.

    Args:
        data: the whole file.
        place: the path of the file, for messages.
        loads: unpickles a list of elements.

    Raises:
        CorruptRecordError: the digest of a frame does not fit; all digests are checked before this function returns. The iteration raises
            it if elements cannot be unpickled.
        FormatVersionError: a newer kstream has written the file.
    """
    frames = _checked(memoryview(data), place)
    return (element for kind, payload in frames for element in ([bytes(payload)] if kind == _RAW else _load(payload, place, loads)))


def _load(payload: memoryview, place: str, loads: Callable[[bytes], list[Any]]) -> list[Any]:
    """Unpickle the elements of a frame. CorruptRecordError if that fails."""
    try:
        return loads(bytes(payload))
    except Exception as e:
        raise _corrupt(place, f"its elements cannot be unpickled, {type(e).__name__}: {e}") from e


def _checked(data: memoryview, place: str) -> list[tuple[bytes, memoryview]]:
    """Check the version and all digests of a file; return kind and payload of each frame. CorruptRecordError, FormatVersionError."""
    version = data[len(_MAGIC)] if bytes(data[: len(_MAGIC)]) == _MAGIC and len(data) > len(_MAGIC) else 0
    if version > VERSION:
        raise FormatVersionError(
            f"{place} has format version {version}, this kstream reads up to {VERSION}: upgrade kstream to read it",
            path=place,
            version=version,
            supported=VERSION,
        )
    if version != VERSION:
        raise _corrupt(place, "it does not begin as a file of state does")
    frames, digest, total, at = list[tuple[bytes, memoryview]](), b"", 0, len(_START)
    while True:
        body = at + _HEAD.size + _DIGEST
        if len(data) < body:
            raise _corrupt(place, f"it is cut after {len(data)} bytes")
        head = bytes(data[at : at + _HEAD.size])
        kind, count, length = _HEAD.unpack(head)
        payload = data[body : body + length]
        digest = _digest(digest, head, payload)
        if digest != bytes(data[at + _HEAD.size : body]):
            raise _corrupt(place, f"the frame at byte {at} has other bytes than were written")
        at = body + length
        if kind == _END:
            if count != total or at != len(data):
                raise _corrupt(place, f"it holds {total} elements where {count} were written, or continues after its end")
            return frames
        frames.append((kind, payload))
        total += count


def _frames(elements: Iterable[Any], dumps: Callable[[list[Any]], bytes]) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield kind, number of elements and payload of each frame."""
    size, chunk = 64, list[Any]()
    for element in elements:
        if type(element) is bytes:
            if chunk:
                yield _PICKLED, len(chunk), dumps(chunk)
                chunk = []
            yield _RAW, 1, element
            continue
        chunk.append(element)
        if len(chunk) >= size:
            payload = dumps(chunk)
            yield _PICKLED, len(chunk), payload
            size = min(size * 2, _MOST) if len(payload) < _SMALL else max(size // 2, 1) if len(payload) > _LARGE else size
            chunk = []
    if chunk:
        yield _PICKLED, len(chunk), dumps(chunk)


def _digest(*parts: bytes | memoryview) -> bytes:
    """Return the blake2b digest of the parts, one after the other."""
    digest = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        digest.update(part)
    return digest.digest()


def _corrupt(place: str, reason: str) -> CorruptRecordError:
    """Return the error about a damaged file of state."""
    return CorruptRecordError(
        f"{place} is damaged ({reason}): the state it holds cannot be restored. Restore the file from a copy, or start with a new "
        "checkpoint directory.",
        path=place,
        reason=reason,
    )
