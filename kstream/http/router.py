"""Site: the routes of a port, as a table. Router: from a request to its answer, for every site alike."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from kstream.errors import CheckpointError, StorageError
from kstream.http.access import TokenCheck, is_allowed_host
from kstream.http.messages import Answer, ErrorForm, Handler, Headers, HttpError, Request, plain_error

logger = logging.getLogger(__name__)
NOT_FOUND = "404 Not Found"
_PART = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True, slots=True)
class Site:
    """What a port shows.

    Attributes:
        what: what it is, for messages, such as `metrics`.
        key: the setting of its port, for messages.
        thread: the name of the server's thread, and the beginning of the names of its others.
        routes: path → handler. A part in braces, as in `/batches/{time}`, is any text without a slash: the request has it in its `parts`.
        missing: returns what to say to a request for a path that no route has.
        entry: the path of what is shown first, below the root.
        error: gives an error its form.
        headers: the headers of every answer.
        connections: how many connections are open at a time. For a further one that client is closed which has made no progress with its
            answer for longest, 2 seconds at least. Without one it is the oldest without a whole head; if all have theirs, the further one.
        end_s: the seconds that a stop waits for answers that are being made.
    """

    what: str
    key: str
    thread: str
    routes: Mapping[str, Handler]
    missing: Callable[[Request], str]
    entry: str = ""
    error: ErrorForm = plain_error
    headers: Headers = ()
    connections: int = 16
    end_s: float = 10.0


class Router:
    """Answers the requests of a site. Any number of threads at a time.

    Args:
        site: what is shown.
        host: the address on which the server listens.
        tokens: who may see it.
    """

    def __init__(self, site: Site, host: str, tokens: TokenCheck) -> None:
        self._site, self._host, self._tokens = site, host, tokens
        self._exact = {path: handler for path, handler in site.routes.items() if not _PART.search(path)}
        self._patterns = [(_pattern(path), handler) for path, handler in site.routes.items() if _PART.search(path)]

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request, also to one that fails. Blocks for a moment if its token is wrong."""
        try:
            return self._answer(request)
        except HttpError as e:
            error = e
        except (StorageError, CheckpointError) as e:
            error = HttpError("503 Service Unavailable", str(e))
        except Exception:
            logger.exception("%s: a request was not answered", self._site.what)
            error = HttpError("500 Internal Server Error", "an error, see the log of the driver")
        return self._site.error(error)

    def _answer(self, request: Request) -> Answer:
        """Answer a GET by an allowed name of the server and with the right token. HttpError for any other request.

        On a host that only this machine reaches, only names of this machine are allowed.
        """
        if not is_allowed_host(request.host, self._host):
            raise HttpError("403 Forbidden", "not here under this name: ask for localhost, or for the address that this port listens on")
        if request.method != "GET":
            raise HttpError("405 Method Not Allowed", "only GET", (("Allow", "GET"),))
        return self._tokens.admit(request) or self._routed(request)

    def _routed(self, request: Request) -> Answer:
        """Answer a request that is admitted, by the handler of its path. HttpError for a path that no route has."""
        if request.path in self._exact:
            return self._exact[request.path](request)
        for pattern, handler in self._patterns:
            if found := pattern.fullmatch(request.path):
                return handler(replace(request, parts=found.groupdict()))
        raise HttpError(NOT_FOUND, self._site.missing(request))


def _pattern(path: str) -> re.Pattern[str]:
    """Return the expression for the paths of a route. Pure."""
    texts = _PART.split(path)  # text, name, text, name, …, text
    return re.compile("".join(f"(?P<{text}>[^/]+)" if n % 2 else re.escape(text) for n, text in enumerate(texts)))
