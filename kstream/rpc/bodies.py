"""The bodies of messages: JSON objects."""

from __future__ import annotations

import json
from typing import Any


def to_body(**fields: Any) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def of_body(body: bytes) -> dict[str, Any]:
    """Return the fields of a message's body."""
    return json.loads(body)
