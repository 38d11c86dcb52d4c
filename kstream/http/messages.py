"""Request, Answer, and HttpError, which is an answer, too."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl

PLAIN, JSON = "text/plain; charset=utf-8", "application/json"
Headers = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Request:
    """A request.

    Attributes:
        method: such as GET.
        path: without escapes. It may hold anything.
        query: the parameters, in their order.
        host: the Host header; None without one.
        cookies: the Cookie header.
        authorization: the Authorization header.
        client: the address it came from.
        port: the port on which it came.
        parts: the parts of the path that the route names.
    """

    method: str
    path: str
    query: Sequence[tuple[str, str]] = ()
    host: str | None = None
    cookies: str = ""
    authorization: str = ""
    client: str = ""
    port: str = ""
    parts: Mapping[str, str] = field(default_factory=dict[str, str])

    @staticmethod
    def of(environ: Mapping[str, Any]) -> Request:
        """Return the request of a WSGI environment."""
        return Request(
            environ["REQUEST_METHOD"],
            str(environ["PATH_INFO"]).encode("latin-1").decode(errors="replace"),  # WSGI has bytes as Latin-1
            parse_qsl(environ.get("QUERY_STRING", ""), keep_blank_values=True),
            environ.get("HTTP_HOST"),
            environ.get("HTTP_COOKIE", ""),
            environ.get("HTTP_AUTHORIZATION", ""),
            str(environ.get("REMOTE_ADDR", "")),
            environ.get("SERVER_PORT", ""),
        )


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer to a request: its status line, its type, its bytes, and headers beside those of every answer."""

    status: str
    kind: str
    body: bytes
    headers: Headers = ()


class HttpError(Exception):
    """The request has no answer but this status and sentence. The site gives it its form."""

    def __init__(self, status: str, text: str, headers: Headers = ()) -> None:
        super().__init__(text)
        self.status, self.text, self.headers = status, text, headers


Handler = Callable[[Request], Answer]
"""Answers a GET. Called on a thread for each request, so any number at a time. It may raise HttpError, and the errors of a store."""
ErrorForm = Callable[[HttpError], Answer]


def plain_error(error: HttpError) -> Answer:
    """Return the answer that says what is wrong, as a line of text."""
    return Answer(error.status, PLAIN, f"{error.text}\n".encode(), error.headers)


def json_error(error: HttpError) -> Answer:
    """Return the answer that says what is wrong, as JSON."""
    return Answer(error.status, JSON, json.dumps({"error": error.text}).encode(), error.headers)
