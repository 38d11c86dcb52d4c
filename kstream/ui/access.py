"""Who may see the page: the token, the answers to wrong ones, and the name by which a browser asks for the page.

A page on another site may let the browser of a person ask this server by a name of its own (DNS rebinding). So a server that only this
machine reaches answers only to names of this machine. A server that others reach needs a token, which a foreign page does not have.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
import threading

from kstream.clock import Clock

logger = logging.getLogger(__name__)
_LOCAL = ("localhost", "127.0.0.1", "::1")
_TOKEN_BYTES = 24
_FIRST_MS, _LONGEST_MS = 100, 2000
"""The milliseconds by which the answer to the first wrong token comes late, and the most by which one does."""
_FORGET_MS = 60_000
"""After so many milliseconds without a wrong token the count begins anew."""
_MOST_WAITING = 4
"""How many answers to wrong tokens wait at a time. They occupy connections of the server, and all others must find one."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address. Pure."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def make_token() -> str:
    """Return a new token, which nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def is_allowed_host(header: str | None, listening: str) -> bool:
    """Return whether a request may be answered that names the server so. Pure.

    Args:
        header: the Host header; None without one.
        listening: the address on which the server listens.
    """
    if not is_loopback(listening):
        return True
    name = (header or "").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name in (*_LOCAL, listening)


def delay_ms(wrong: int) -> int:
    """Return by how many milliseconds the answer to the n-th wrong token in a row comes late. Pure."""
    return min(_LONGEST_MS, _FIRST_MS * 2 ** min(wrong - 1, 10))


class TokenCheck:
    """Compares tokens, and delays the answers to wrong ones. All methods may be called from any thread.

    A right token is never delayed, whatever wrong ones come meanwhile.

    Args:
        token: the token; None needs none.
        clock: counts the delays.
    """

    def __init__(self, token: str | None, clock: Clock) -> None:
        self._token = None if token is None else token.encode()
        self._clock = clock
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._in_a_row = 0
        self._last_ms = 0
        self._waiting = 0
        self._refused = 0

    @property
    def is_needed(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    @property
    def refused(self) -> int:
        """How many wrong tokens there were."""
        with self._lock:
            return self._refused

    def is_right(self, given: str) -> bool:
        """Return whether a token is the right one. Takes the same time for all wrong ones of a length."""
        return self._token is None or hmac.compare_digest(self._token, given.encode(errors="surrogateescape"))

    def count_wrong(self, client: str) -> bool:
        """Count a wrong token, and block for as long as its answer is to come late.

        Args:
            client: the address it came from, for the log.

        Returns:
            False if too many answers wait already: this one must come at once, and say no more than that.
        """
        with self._lock:
            now = self._clock.monotonic_ms()
            self._in_a_row = 1 if now - self._last_ms > _FORGET_MS else self._in_a_row + 1
            self._last_ms = now
            self._refused += 1
            due, count, waits = now + delay_ms(self._in_a_row), self._refused, self._waiting < _MOST_WAITING
            self._waiting += waits
        if str(count).strip("0") == "1":  # the first, the tenth, the hundredth
            logger.warning("the page has refused a wrong token from %s, the %d. since its start", client, count)
        if not waits:
            return False
        try:
            while (left := due - self._clock.monotonic_ms()) > 0 and not self._ended.is_set():
                self._clock.wait(left, self._ended)
        finally:
            with self._lock:
                self._waiting -= 1
        return True

    def stop(self) -> None:
        """Delay no answer any more, and end the delays that run."""
        self._ended.set()
