"""UiServer: the port of the page. `/` is the page, `/static/…` its script and style, and `/api/v1/…` the figures as JSON.

The paths of the JSON are those of Spark's REST for streaming. A path of a request opens no file: all files are read
before. docs/page.md tells of the token.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any, cast
from urllib.parse import parse_qsl, quote, unquote, urlencode

from kstream.clock import Clock, SystemClock
from kstream.errors import CheckpointError, ConfigurationError, StorageError
from kstream.http_server import PLAIN, Answer, HttpServer, Request, is_loopback
from kstream.ui.access import TokenAnswer, TokenCheck
from kstream.ui.forms import BatchStatus
from kstream.ui.page_source import PageSource
from kstream.ui.settings import UI_HOST, UI_PORT, UI_TOKEN

COOKIE = "kstream_token_{port}_{mark}"
"""The cookie with the token. A browser sends the cookies of a host to all its ports, so each server has its own name. Through two tunnels
two servers may seem to be one host with one port, so the token has a part in the name."""
PROOF = "kstream_proof_{port}_{mark}"
"""The cookie of a browser that has shown the right token. Wrong tokens of others are not in its way."""
PAGE = "index.html"
_KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
"""The type of a file by the end of its name. Other files are not shown."""
HEADERS = (
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cache-Control", "no-store"),
)
"""Every answer has them."""
_ROOT = "/api/v1/applications"
_BATCH = re.compile(r"batches/(\d{1,15})(/operations)?")
_STATUSES: Mapping[str, BatchStatus] = {
    "processing": "PROCESSING",
    "queued": "QUEUED",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "held": "HELD",
    "retrying": "RETRYING",
    "pending": "PENDING",
}
_LISTS: Mapping[str, Callable[[PageSource], Any]] = {
    "statistics": lambda source: source.statistics(),
    "timeline": lambda source: source.timeline(),
    "receivers": lambda source: source.receivers(),
    "lag": lambda source: source.lag(),
    "decisions": lambda source: source.decisions(),
    "ledger": lambda source: source.ledger(),
    "settings": lambda source: source.settings(),
}
"""The last part of a path → the answer."""


class UiServer(HttpServer):
    """An HTTP server for one source. It listens from its creation, and answers from `start` to `stop`.

    Args:
        host: the address.
        port: the port; 0 is any free one.
        source: what it shows.
        token: the token that a request needs; None needs none, which only an address of this machine may have.
        clock: counts the delays of answers to wrong tokens.

    Raises:
        PortTakenError: another process listens there.
        ConfigurationError: it cannot listen there, or others than this machine reach it and there is no token, or the token is no text that
            every client can send.
    """

    what = "the page"
    key = UI_PORT.key
    own_headers = HEADERS
    connections = 64
    """A browser keeps up to six connections, and a page may be open in several."""
    end_s = 1.0
    """An answer that reads the ledger waits for the store, which may be away."""

    def __init__(self, host: str, port: int, source: PageSource, token: str | None = None, clock: Clock | None = None) -> None:
        if not token and not is_loopback(host):
            raise ConfigurationError(f"a page on {host} needs a token: others than this machine reach it", key=UI_HOST.key, value=host)
        if token and not (token.isascii() and token.isprintable() and token == token.strip()):
            raise ConfigurationError("the token of the page must be printable ASCII, without a space at its ends", key=UI_TOKEN.key)
        self._tokens = TokenCheck(token or None, clock or SystemClock())
        super().__init__(host, port)
        self._source = source
        self.url = self.root
        """The address of the page for a person, without a token."""

    def stop(self) -> None:
        """Close the port and all connections, and wait for their threads, a second at most. Call it after `start`, or without it."""
        self._tokens.stop()
        super().stop()

    def answer(self, request: Request) -> Answer:
        """Answer a GET. Blocks for a moment if its token is wrong."""
        path = str(request["PATH_INFO"]).encode("latin-1").decode(errors="replace")  # WSGI has bytes as Latin-1
        query = parse_qsl(request.get("QUERY_STRING", ""), keep_blank_values=True)
        try:
            return _refused(self._tokens, request, path, query) or _answer(self._source, path, query)
        except (StorageError, CheckpointError) as e:
            return _error("503 Service Unavailable", str(e))

    def error(self, status: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
        return _error(status, text, headers)


def _answer(source: PageSource, path: str, query: list[tuple[str, str]]) -> Answer:
    """Answer a request that may see everything."""
    file = _files().get(path)
    if file is not None:
        return file
    if path == _ROOT:
        return _json([source.application()])
    below = f"{_ROOT}/{source.application()['id']}/streaming/"
    if path.startswith(below):
        return _of_application(source, path[len(below) :], query)
    return _error("404 Not Found", "there is no such application: see /api/v1/applications" if path.startswith(_ROOT) else "not here")


def _refused(tokens: TokenCheck, request: Request, path: str, query: list[tuple[str, str]]) -> Answer | None:
    """Return the answer to a request without the right token; None if it may go on. A token of the query becomes a cookie."""
    if not tokens.is_needed:
        return None
    name, proof = (form.format(port=request["SERVER_PORT"], mark=tokens.mark) for form in (COOKIE, PROOF))
    cookies = request.get("HTTP_COOKIE", "")
    by_query = next((value for key, value in query if key == "token"), None)
    # The cookie is first, for only who had the token knows its name. A proxy may add a Bearer of its own, and a link may have an old token.
    given = _cookie(cookies, name) or by_query or _bearer(request.get("HTTP_AUTHORIZATION", ""))
    if given is None:
        return _unauthorized("the page needs its token: open it once with ?token=…, or send Authorization: Bearer …")
    verdict = tokens.check(given, str(request.get("REMOTE_ADDR", "")), _cookie(cookies, proof))
    if verdict is TokenAnswer.WRONG:
        return _unauthorized("the token is wrong")
    if verdict is TokenAnswer.TOO_MANY:
        text = "there were too many wrong tokens: for some seconds no token is looked at"
        return _error("429 Too Many Requests", text, (("Retry-After", "2"),))
    if by_query is None:
        return None
    rest = urlencode([(key, value) for key, value in query if key != "token"])
    place = f"./{quote(path.rpartition('/')[2])}{'?' if rest else ''}{rest}"  # relative: it names no host, and a proxy may add a path
    # Lax, as a link to the page on another site, such as a chat, leads to this redirect. A request changes nothing, and others cannot read.
    made = [(proof, tokens.proof), (name, quote(given, safe=""))]
    set_cookies = [("Set-Cookie", f"{key}={value}; Path=/; HttpOnly; SameSite=Lax") for key, value in made]
    return Answer("303 See Other", PLAIN, b"", (("Location", place), *set_cookies))


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


def _of_application(source: PageSource, rest: str, query: list[tuple[str, str]]) -> Answer:
    """Answer a request below the path of the application.

    Args:
        source: what is shown.
        rest: the path below `…/streaming/`.
        query: the parameters.
    """
    if rest in _LISTS:
        return _json(_LISTS[rest](source))
    if rest == "batches":
        return _batches(source, query)
    found = _BATCH.fullmatch(rest)
    if found is None:
        return _error("404 Not Found", f"below streaming/ there are batches, {', '.join(_LISTS)}")
    time_ms = int(found[1])
    known = source.operations(time_ms) if found[2] else source.batch(time_ms)
    return _error("404 Not Found", f"batch {time_ms} is not known, or no longer") if known is None else _json(known)


def _batches(source: PageSource, query: list[tuple[str, str]]) -> Answer:
    """Answer a request for the list of batches; 400 for a parameter without meaning."""
    statuses = [value.lower() for key, value in query if key == "status"]
    limits = [value for key, value in query if key == "limit"]
    if any(status not in _STATUSES for status in statuses):
        return _error("400 Bad Request", f"status is one of {', '.join(_STATUSES)}")
    if any(not limit.isascii() or not limit.isdecimal() or len(limit) > 9 for limit in limits):
        return _error("400 Bad Request", "limit is a number")
    chosen: frozenset[BatchStatus] = frozenset(_STATUSES[status] for status in statuses)
    return _json(source.batches(chosen or None, int(limits[-1]) if limits else None))


def _json(value: Any) -> Answer:
    """Return an answer with a JSON value. An input of the user may have facts that JSON has not: those become null or text."""
    try:
        text = json.dumps(value, separators=(",", ":"), default=str, allow_nan=False)
    except (ValueError, TypeError):
        text = json.dumps(_plain(value), separators=(",", ":"), default=str, allow_nan=False)
    return Answer("200 OK", "application/json", text.encode())


def _plain(value: Any) -> Any:
    """Return a value with null for numbers that JSON has not, and with texts for keys. Pure."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _plain(each) for key, each in cast("dict[Any, Any]", value).items()}
        case list() | tuple():
            return [_plain(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _error(status: str, text: str, headers: tuple[tuple[str, str], ...] = ()) -> Answer:
    """Return an answer with an error, as JSON."""
    return Answer(status, "application/json", json.dumps({"error": text}).encode(), headers)


def _unauthorized(text: str) -> Answer:
    """Return the answer to a request that needs another token."""
    return _error("401 Unauthorized", text, (("WWW-Authenticate", "Bearer"),))


@cache
def _files() -> Mapping[str, Answer]:
    """Return the files of the page by their paths. They are read once; they may be in a zip."""
    known = [file for file in (resources.files("kstream.ui") / "static").iterdir() if PurePath(file.name).suffix in _KINDS]
    return {
        "/" if file.name == PAGE else f"/static/{file.name}": Answer("200 OK", _KINDS[PurePath(file.name).suffix], file.read_bytes())
        for file in known
    }
