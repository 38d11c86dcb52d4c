"""Confluent's framing of a value: a zero byte, the id of its schema in four bytes, big-endian, and the value.

Confluent's serializers may also put a schema's GUID into a header of the record. Such values have no frame, and are refused here.
"""

from __future__ import annotations

import struct

HEAD = 5
"""The bytes before the value."""
_FRAME = struct.Struct(">bI")


def schema_id_of(raw: bytes) -> int:
    """Return the schema id of a framed value. Pure.

    Raises:
        ValueError: the value is not framed.
    """
    if len(raw) < HEAD or raw[0]:
        begin = raw[:HEAD].hex(" ") or "nothing"
        raise ValueError(
            f"the value begins with {begin}, not with a zero byte and a schema id: no serializer of a schema registry wrote it"
        )
    return int.from_bytes(raw[1:HEAD], "big")


def frame_of(schema_id: int) -> bytes:
    """Return what stands before a value of a schema. Pure."""
    return _FRAME.pack(0, schema_id)
