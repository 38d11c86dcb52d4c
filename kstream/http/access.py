"""Who may ask: the names of the server, the token, and the answers to wrong ones.

A server that only this machine reaches answers only to names of this machine (`is_allowed_host`). A server that others reach needs a token,
which a page of another site does not have.

A token may be a word that a person has chosen, so guesses are few: a bucket leaks one a second, and while it is full no token is compared.
It is the bucket of all strangers. An address that has shown the right token has a bucket of its own. A browser that has shown it has a
proof, a second secret, and needs no room in a bucket: behind a proxy it has the address of those who guess.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import secrets
import threading
from collections import OrderedDict
from enum import Enum
from typing import TypeVar
from urllib.parse import quote, unquote, urlencode

from kstream.clock import Clock
from kstream.http.messages import PLAIN, Answer, HttpError, Request

logger = logging.getLogger(__name__)
_TOKEN_BYTES = 24
_FIRST_MS, _LONGEST_MS = 100, 2000
"""The milliseconds by which the answer to the first wrong token comes late, and the most by which one does."""
_FORGET_MS = 60_000
"""After so many milliseconds without a wrong token the count begins anew."""
_MOST_WAITING = 4
"""How many answers to wrong tokens wait at a time. They occupy connections of the server, and all others must find one."""
_GUESSES = 20
"""How many different wrong tokens fill a bucket."""
_LEAK_MS = 1000
"""After so many milliseconds a bucket has room for one more."""
_MOST_ADDRESSES, _MOST_WRONG = 1000, 1000
"""How many addresses and how many wrong tokens are remembered: those that came last."""
COOKIE = "kstream_token_{port}_{mark}"
"""The cookie with the token. A browser sends the cookies of a host to all its ports, so each server has its own name. Through two tunnels
two servers may seem to be one host with one port, so the token has a part in the name."""
PROOF = "kstream_proof_{port}_{mark}"
"""The cookie of a browser that has shown the right token. Wrong tokens of others are not in its way."""
_LOCAL = ("localhost", "127.0.0.1", "::1")
Key = TypeVar("Key")
Kept = TypeVar("Kept")


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address. Pure."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def is_allowed_host(header: str | None, listening: str) -> bool:
    """Return whether a request may be answered that names the server so. Pure.

    A page on another site may let the browser of a person ask this server by a name of its own (DNS rebinding). So a server that only this
    machine reaches answers only to names of this machine.

    Args:
        header: the Host header; None without one.
        listening: the address on which the server listens.
    """
    if not is_loopback(listening):
        return True
    name = (header or "").lower()
    name = name[1:].partition("]")[0] if name.startswith("[") else name.partition(":")[0]
    return name in (*_LOCAL, listening)


def make_token() -> str:
    """Return a new token, which nobody can guess."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def delay_ms(wrong: int) -> int:
    """Return by how many milliseconds the answer to the n-th wrong token in a row comes late. Pure."""
    return min(_LONGEST_MS, _FIRST_MS * 2 ** min(wrong - 1, 10))


class TokenAnswer(Enum):
    """What a server says to a token."""

    RIGHT = "right"
    WRONG = "wrong"
    TOO_MANY = "too many"
    """There were too many wrong ones. Perhaps nobody has compared this one."""


class LeakyBucket:
    """Counts guesses, and forgets one every second. Its owner's lock guards it."""

    def __init__(self) -> None:
        self._empty_ms = 0
        """When all guesses so far are forgotten."""

    def has_room(self, now_ms: int) -> bool:
        """Return whether a further guess is allowed."""
        return self._empty_ms + _LEAK_MS <= now_ms + _GUESSES * _LEAK_MS

    def add(self, now_ms: int) -> None:
        """Count a guess."""
        self._empty_ms = max(self._empty_ms, now_ms) + _LEAK_MS


class TokenCheck:
    """Compares tokens, and delays the answers to wrong ones. All methods may be called from any thread.

    The right token is neither delayed nor refused if it comes with the proof. Nor is it from an address that has shown it before, unless
    others guess from there.

    Args:
        token: the token; None needs none.
        clock: counts the delays.
        what: what it guards, for messages, such as `the page`.
    """

    def __init__(self, token: str | None, clock: Clock, what: str) -> None:
        self._token = None if token is None else token.encode()
        self._what = what
        self._clock = clock
        self.proof = make_token()
        """Only who has shown the right token to this server has it."""
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._strangers = LeakyBucket()
        self._known: OrderedDict[str, LeakyBucket] = OrderedDict()
        self._wrong: OrderedDict[bytes, None] = OrderedDict()
        self._in_a_row = 0
        self._last_ms = 0
        self._waiting = 0
        self._refused = 0

    @property
    def mark(self) -> str:
        """What tells this token from others in the name of a cookie. It says nothing of the token. "" without one."""
        return "" if self._token is None else hashlib.sha256(self._token).hexdigest()[:8]

    @property
    def is_needed(self) -> bool:
        """Whether a token is needed."""
        return self._token is not None

    @property
    def refused(self) -> int:
        """How many wrong tokens there were, without those that were not compared."""
        with self._lock:
            return self._refused

    def admit(self, request: Request) -> Answer | None:
        """Return None if the request may go on; for a right token in its query the answer that makes it a cookie and leads back here.

        Blocks for a moment if the token is wrong.

        Raises:
            HttpError: the request has not the right token.
        """
        if not self.is_needed:
            return None
        name, proof = (form.format(port=request.port, mark=self.mark) for form in (COOKIE, PROOF))
        by_query = next((value for key, value in request.query if key == "token"), None)
        # The cookie is first, for only who had the token knows its name. A proxy may add a Bearer of its own, and a link an old token.
        given = _cookie(request.cookies, name) or by_query or _bearer(request.authorization)
        if given is None:
            raise _unauthorized(f"{self._what} needs its token: open it once with ?token=…, or send Authorization: Bearer …")
        verdict = self.check(given, request.client, _cookie(request.cookies, proof))
        if verdict is TokenAnswer.WRONG:
            raise _unauthorized("the token is wrong")
        if verdict is TokenAnswer.TOO_MANY:
            text = "there were too many wrong tokens: for some seconds no token is looked at"
            raise HttpError("429 Too Many Requests", text, (("Retry-After", "2"),))
        if by_query is None:
            return None
        rest = urlencode([(key, value) for key, value in request.query if key != "token"])
        place = f"./{quote(request.path.rpartition('/')[2])}{'?' if rest else ''}{rest}"  # relative: no host, and a proxy may add a path
        # Lax, as a link to the page on another site, such as a chat, leads here. A request changes nothing, and others cannot read.
        made = [(proof, self.proof), (name, quote(given, safe=""))]
        set_cookies = [("Set-Cookie", f"{key}={value}; Path=/; HttpOnly; SameSite=Lax") for key, value in made]
        return Answer("303 See Other", PLAIN, b"", [("Location", place), *set_cookies])

    def check(self, given: str, client: str, proof: str | None = None) -> TokenAnswer:
        """Judge a token. Blocks for as long as the answer to a wrong one is to come late.

        Args:
            given: the token.
            client: the address it came from.
            proof: the proof that came with it; None without one.

        Returns:
            RIGHT or WRONG; or TOO_MANY, at once, if too many answers wait, or it was not compared.
        """
        if self._token is None:
            return TokenAnswer.RIGHT
        has_proof = proof is not None and hmac.compare_digest(self.proof.encode(), _bytes(proof))
        with self._lock:
            verdict = self._compare(self._token, _bytes(given), client, has_proof)
        if verdict is not TokenAnswer.WRONG:
            return verdict
        return TokenAnswer.WRONG if self._wait_for_answer(client) else TokenAnswer.TOO_MANY

    def _compare(self, token: bytes, given: bytes, client: str, has_proof: bool) -> TokenAnswer:
        """Judge a token, and count it if it is wrong. Call it under the lock. Takes the same time for all wrong ones of a length."""
        now = self._clock.monotonic_ms()
        name = hashlib.sha256(given).digest()
        if name in self._wrong:  # a page with an old cookie asks again and again; nobody learns anything by it
            return TokenAnswer.WRONG
        bucket = self._known.get(client, self._strangers)
        if not has_proof and not bucket.has_room(now):
            return TokenAnswer.TOO_MANY
        if hmac.compare_digest(token, given):
            _remember(self._known, client, self._known.get(client) or LeakyBucket(), _MOST_ADDRESSES)
            return TokenAnswer.RIGHT
        bucket.add(now)
        _remember(self._wrong, name, None, _MOST_WRONG)
        return TokenAnswer.WRONG

    def _wait_for_answer(self, client: str) -> bool:
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
            logger.warning("%s has refused a wrong token from %s, the %d. since its start", self._what, client, count)
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


def _bearer(header: str) -> str | None:
    """Return the token of an Authorization header; None without one. Pure."""
    scheme, _, token = header.partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


def _cookie(header: str, name: str) -> str | None:
    """Return the value of a cookie in a Cookie header; None without it. Pure."""
    for part in header.split(";"):
        key, _, value = part.strip().partition("=")
        if key == name and value:
            return unquote(value)
    return None


def _unauthorized(text: str) -> HttpError:
    """Return the answer to a request that needs another token."""
    return HttpError("401 Unauthorized", text, (("WWW-Authenticate", "Bearer"),))


def _bytes(text: str) -> bytes:
    """Return the bytes of what a client has sent. Pure."""
    return text.encode(errors="surrogateescape")


def _remember(kept: OrderedDict[Key, Kept], key: Key, value: Kept, most: int) -> None:
    """Put an entry at the end, and forget the oldest one beyond a number."""
    kept[key] = value
    kept.move_to_end(key)
    if len(kept) > most:
        kept.popitem(last=False)
