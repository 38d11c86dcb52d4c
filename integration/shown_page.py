"""The page of a driver in a browser, for tests: servers for sources that are made up, and what is seen."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast

from integration.browser import Browser, Page
from kstream.http.http_server import HttpServer
from kstream.ui.page_site import page_server

Serve = Callable[..., HttpServer]


@contextmanager
def page_servers() -> Iterator[Serve]:
    """Gives what starts a server for a source, on a port, with a token; each is stopped at the end."""
    servers: list[HttpServer] = []

    def start(source: Any, port: int = 0, token: str | None = None) -> HttpServer:
        servers.append(page_server("127.0.0.1", port, source, token))
        servers[-1].start()
        return servers[-1]

    try:
        yield start
    finally:
        for server in servers:
            server.stop()


def shown(browser: Browser, server: HttpServer, view: str = "", **how: Any) -> Page:
    """A page with a view that has its figures."""
    page = browser.page(**how)
    page.open(f"{server.root}#/{view}")
    page.wait("document.querySelector('#headline').hidden === false", "headline")
    return page


def rows(page: Page, card: str) -> list[list[str]]:
    """The cells of the table in the card with this heading."""
    script = f"""[...document.querySelectorAll('.card')].filter(c => c.querySelector('h2')?.innerText === {json.dumps(card)})
        .flatMap(c => [...c.querySelectorAll('tbody tr')].map(r => [...r.children].map(d => d.innerText)))"""
    return cast("list[list[str]]", page.value(script))


def a_receiver(stream: int) -> Any:
    texts = ("streamName", "executorId", "executorHost", "lastErrorTime", "lastErrorMessage", "lastError")
    return {"streamId": stream, "isActive": stream > 0, "numErrors": 3, "numStarts": 4, **dict.fromkeys(texts, "x")}


def said_nothing(page: Page, server: HttpServer) -> None:
    """The console is empty, nothing was asked, and no request went elsewhere."""
    assert page.seen.problems == [] and page.seen.dialogs == []
    assert [url for url in page.seen.requests if not url.startswith(server.root)] == []
