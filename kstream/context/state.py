"""StreamingContextState: where a context is in its life."""

from __future__ import annotations

import enum


class StreamingContextState(enum.Enum):
    """INITIALIZED (streams may be added) → ACTIVE → STOPPED."""

    INITIALIZED = "initialized"
    ACTIVE = "active"
    STOPPED = "stopped"
