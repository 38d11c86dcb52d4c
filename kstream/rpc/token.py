"""The token by which the processes of one context know each other."""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow.flight as fl

logger = logging.getLogger(__name__)
HEADER = "authorization"
_SCHEME = "Bearer "


def header(token: str) -> tuple[bytes, bytes]:
    """What a client sends with each call."""
    return HEADER.encode(), (_SCHEME + token).encode()


class TokenGate(fl.ServerMiddlewareFactory):  # pyright: ignore[reportUntypedBaseClass] – pyarrow says nothing of its types
    """Refuses calls without the token: before their bodies are read where they come in a stream, before anything is done in any case."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._expected = (_SCHEME + token).encode()
        self._lock = threading.Lock()
        self._refused = 0

    @property
    def refused(self) -> int:
        """Calls that were turned away."""
        with self._lock:
            return self._refused

    def start_call(self, info: Any, headers: Mapping[str, Sequence[str]]) -> None:
        """Called by Flight, on the call's thread."""
        given = headers.get(HEADER, ())
        if len(given) == 1 and hmac.compare_digest(given[0].encode(), self._expected):
            return
        with self._lock:
            self._refused += 1
            count = self._refused
        logger.warning("a call without the context's token was refused (%d so far)", count)
        raise fl.FlightUnauthenticatedError("this port belongs to another application: a call needs its token")
