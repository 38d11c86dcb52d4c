"""The site of the page. `/` is the page, `/static/…` its script and style, and `/api/v1/…` the figures as JSON.

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
from typing import Any, TypeVar, cast

from kstream.clock import Clock
from kstream.errors import ConfigurationError
from kstream.http.access import is_loopback
from kstream.http.http_server import HttpServer
from kstream.http.messages import JSON, Answer, Handler, HttpError, Request, json_error
from kstream.http.router import NOT_FOUND, Site
from kstream.ui.forms import BatchStatus
from kstream.ui.page_source import PageSource
from kstream.ui.settings import UI_HOST, UI_PORT, UI_TOKEN

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
_TIME = re.compile(r"\d{1,15}")
Form = TypeVar("Form")
_STATUSES: Mapping[str, BatchStatus] = {
    "processing": "PROCESSING",
    "queued": "QUEUED",
    "completed": "COMPLETED",
    "failed": "FAILED",
    "held": "HELD",
    "retrying": "RETRYING",
    "pending": "PENDING",
}


def page_server(host: str, port: int, source: PageSource, token: str | None = None, clock: Clock | None = None) -> HttpServer:
    """Return the server of a page. It listens.

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
    if not token and not is_loopback(host):
        raise ConfigurationError(f"a page on {host} needs a token: others than this machine reach it", key=UI_HOST.key, value=host)
    if token and not (token.isascii() and token.isprintable() and token == token.strip()):
        raise ConfigurationError("the token of the page must be printable ASCII, without a space at its ends", key=UI_TOKEN.key)
    return HttpServer(page_site(source), host, port, token or None, clock)


def page_site(source: PageSource) -> Site:
    """Return what the port of the page shows. A browser keeps up to six connections, and a page may be open in several."""
    return Site(
        what="the page",
        key=UI_PORT.key,
        thread="UiServer",
        routes={
            **{path: lambda _, file=file: file for path, file in _files().items()},
            _ROOT: lambda _: _json([source.application()]),
            **{f"{_ROOT}/{{id}}/streaming/{path}": _handler(source, answer) for path, answer in _STREAMING.items()},
        },
        missing=lambda request: _missing(source, request),
        error=json_error,
        headers=HEADERS,
        connections=64,
        end_s=1.0,  # an answer that reads the ledger waits for the store, which may be away
    )


def _handler(source: PageSource, answer: Callable[[PageSource, Request], Any]) -> Handler:
    """Return the handler of a path below that of the application: `answer` as JSON. HttpError if the path names another one."""

    def handler(request: Request) -> Answer:
        if request.parts["id"] != source.application()["id"]:
            raise HttpError(NOT_FOUND, _missing(source, request))
        return _json(answer(source, request))

    return handler


def _missing(source: PageSource, request: Request) -> str:
    """Return what to say to a request for a path that is not there."""
    if request.path.startswith(f"{_ROOT}/{source.application()['id']}/streaming/"):
        return _NOTHING_ELSE
    return "there is no such application: see /api/v1/applications" if request.path.startswith(_ROOT) else "not here"


def _chosen(request: Request) -> tuple[frozenset[BatchStatus] | None, int | None]:
    """Return the statuses and the limit that a request for batches names. HttpError for a parameter without meaning. Pure."""
    statuses = [value.lower() for key, value in request.query if key == "status"]
    limits = [value for key, value in request.query if key == "limit"]
    if any(status not in _STATUSES for status in statuses):
        raise HttpError("400 Bad Request", f"status is one of {', '.join(_STATUSES)}")
    if any(not limit.isascii() or not limit.isdecimal() or len(limit) > 9 for limit in limits):
        raise HttpError("400 Bad Request", "limit is a number")
    chosen: frozenset[BatchStatus] = frozenset(_STATUSES[status] for status in statuses)
    return chosen or None, int(limits[-1]) if limits else None


def _known(find: Callable[[int], Form | None], request: Request) -> Form:
    """Return what is known of the batch that a request names. HttpError if it is not known."""
    if not _TIME.fullmatch(request.parts["time"]):
        raise HttpError(NOT_FOUND, _NOTHING_ELSE)
    time_ms = int(request.parts["time"])
    found = find(time_ms)
    if found is None:
        raise HttpError(NOT_FOUND, f"batch {time_ms} is not known, or no longer")
    return found


_STREAMING: Mapping[str, Callable[[PageSource, Request], Any]] = {
    "batches": lambda source, request: source.batches(*_chosen(request)),
    "batches/{time}": lambda source, request: _known(source.batch, request),
    "batches/{time}/operations": lambda source, request: _known(source.operations, request),
    "statistics": lambda source, _: source.statistics(),
    "timeline": lambda source, _: source.timeline(),
    "receivers": lambda source, _: source.receivers(),
    "lag": lambda source, _: source.lag(),
    "decisions": lambda source, _: source.decisions(),
    "ledger": lambda source, _: source.ledger(),
    "settings": lambda source, _: source.settings(),
}
"""The path below `…/streaming/` → the answer."""
_NOTHING_ELSE = f"below streaming/ there are {', '.join(path for path in _STREAMING if '/' not in path)}"


def _json(value: Any) -> Answer:
    """Return an answer with a JSON value. An input of the user may have facts that JSON has not: those become null or text."""
    try:
        text = json.dumps(value, separators=(",", ":"), default=str, allow_nan=False)
    except (ValueError, TypeError):
        text = json.dumps(_plain(value), separators=(",", ":"), default=str, allow_nan=False)
    return Answer("200 OK", JSON, text.encode())


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


@cache
def _files() -> Mapping[str, Answer]:
    """Return the files of the page by their paths. They are read once; they may be in a zip."""
    known = [file for file in (resources.files("kstream.ui") / "static").iterdir() if PurePath(file.name).suffix in _KINDS]
    return {
        "/" if file.name == PAGE else f"/static/{file.name}": Answer("200 OK", _KINDS[PurePath(file.name).suffix], file.read_bytes())
        for file in known
    }
