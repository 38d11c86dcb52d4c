"""The stored form of every record: one canonical JSON object with its kind, version and checksum.

Canonical: sorted keys, no white space, ASCII. A record is valid only if encoding what was parsed gives the very same bytes, so any
flipped byte is found, in the checksum as well as outside it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from kstream.errors import CorruptRecordError, FormatVersionError

VERSION = 1
VERSIONS = {"graph": 2}
"""The versions of the kinds whose form has changed; VERSION is that of all others."""


def _canonical(record: dict[str, Any]) -> bytes:
    return json.dumps(record, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode("ascii")


def encode(kind: str, fields: dict[str, Any]) -> bytes:
    """Bytes of a record of `kind`. `fields` must be JSON values; TypeError or ValueError otherwise."""
    record = {**fields, "kind": kind, "version": VERSIONS.get(kind, VERSION)}
    digest = hashlib.sha256(_canonical(record)).hexdigest()
    return _canonical({**record, "checksum": digest})


def decode(kind: str, data: bytes, path: str) -> dict[str, Any]:
    """The fields of a record of `kind`; CorruptRecordError or FormatVersionError naming `path` otherwise."""
    try:
        record = json.loads(data)
    except ValueError as e:
        raise _corrupt(path, f"not JSON: {e}") from e
    if not isinstance(record, dict) or record.get("kind") != kind:
        raise _corrupt(path, f"not a record of kind {kind!r}")
    version, supported = record.get("version"), VERSIONS.get(kind, VERSION)
    if isinstance(version, int) and version > supported:
        raise FormatVersionError(
            f"{path} has format version {version}, this kstream reads up to {supported}: upgrade kstream to read it",
            path=path, version=version, supported=supported,
        )  # fmt: skip
    fields = {k: v for k, v in record.items() if k not in ("kind", "version", "checksum")}
    try:
        whole = encode(kind, fields) == data
    except ValueError:  # a damaged number can read as infinity, which is no JSON value
        whole = False
    if not whole:
        raise _corrupt(path, "its checksum does not fit its bytes")
    return fields


def check_name(path: str, fields: Mapping[str, Any], named: Mapping[str, int]) -> None:
    """Compare what the name of a record says with what the record itself says.

    Args:
        path: where the record lies, for the message.
        fields: what `decode` returned.
        named: the fields that the name gives too, with their values there.

    Raises:
        CorruptRecordError: a value differs. Names both.
    """
    if all(fields.get(key) == value for key, value in named.items()):
        return
    inside = ", ".join(f"{key} {fields.get(key)}" for key in named)
    outside = ", ".join(f"{key} {value}" for key, value in named.items())
    raise CorruptRecordError(
        f"{path} holds the record of {inside}, but its name says {outside}: the file was copied or renamed. Give the file its own name "
        "back, or, if it is a copy, move it out of the checkpoint.",
        path=path,
        reason=f"holds the record of {inside}",
    )


def _corrupt(path: str, reason: str) -> CorruptRecordError:
    return CorruptRecordError(
        f"{path} is damaged ({reason}). Its batch may have run. Restore the file from a copy, or give the batch up with "
        "--forget-batch (its offsets are then read again by the next batch).",
        path=path,
        reason=reason,
    )
