"""From a request to its answer: what every site has of the router, without a socket."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.errors import StorageError
from kstream.http.access import TokenCheck
from kstream.http.messages import PLAIN, Answer, Request, json_error
from kstream.http.router import Router, Site
from kstream.testing import ManualClock


def said(text: str) -> Answer:
    return Answer("200 OK", PLAIN, text.encode())


def fail(request: Request) -> Answer:
    raise StorageError("the store is away") if request.path == "/away" else RuntimeError("a secret place")


def router(token: str | None = None, **options: Any) -> Router:
    routes = {
        "/": lambda _: said("root"),
        "/a.b": lambda _: said("file"),
        "/jobs/{job}/runs/{run}": lambda request: said(f"{request.parts['job']} {request.parts['run']}"),
        "/away": fail,
        "/bug": fail,
    }
    site = Site("a test", "no.key", "TestServer", routes, lambda request: f"no {request.path}", **options)
    return Router(site, "127.0.0.1", TokenCheck(token, ManualClock(0), site.what))


def answered(path: str, method: str = "GET", host: str | None = "localhost", **more: Any) -> tuple[int, str]:
    answer = router(**more).answer(Request(method, path, host=host))
    return int(answer.status[:3]), answer.body.decode()


def test_a_route_has_its_path_and_the_parts_that_it_names() -> None:
    assert answered("/") == (200, "root") and answered("/a.b") == (200, "file")
    assert answered("/jobs/orders/runs/7") == (200, "orders 7")


@pytest.mark.parametrize("path", ["/jobs/orders/runs/", "/jobs/a/b/runs/7", "/jobs/orders/runs/7/", "/axb", "", "/{job}"])
def test_a_path_of_no_route_is_404_with_what_the_site_says(path: str) -> None:
    assert answered(path) == (404, f"no {path}\n")


def test_a_path_that_is_written_as_a_route_is_a_path_like_any_other() -> None:
    assert answered("/jobs/{job}/runs/{run}") == (200, "{job} {run}")


@pytest.mark.parametrize("method", ["HEAD", "POST", "PUT", "DELETE", "OPTIONS", "get"])
def test_any_method_but_get_is_405_at_every_path(method: str) -> None:
    for path in ("/", "/nothing", "/bug"):
        answer = router().answer(Request(method, path, host="localhost"))
        assert (answer.status, tuple(answer.headers)) == ("405 Method Not Allowed", (("Allow", "GET"),))


def test_the_name_comes_before_the_method_the_method_before_the_token_and_the_token_before_the_path() -> None:
    assert answered("/nothing", "POST", "evil.example", token="right")[0] == 403
    assert answered("/nothing", "POST", token="right")[0] == 405
    assert answered("/nothing", token="right") == (
        401,
        "a test needs its token: open it once with ?token=…, or send Authorization: Bearer …\n",
    )
    assert router("right").answer(Request("GET", "/", host="localhost", authorization="Bearer right")).body == b"root"


def test_a_store_that_is_away_is_503_and_a_bug_is_500_that_says_nothing(caplog: pytest.LogCaptureFixture) -> None:
    assert answered("/away") == (503, "the store is away\n") and not caplog.records
    assert answered("/bug") == (500, "an error, see the log of the driver\n") and "a secret place" in caplog.text


def test_a_site_gives_errors_its_form() -> None:
    assert answered("/nothing", error=json_error) == (404, '{"error": "no /nothing"}')
    assert answered("/", host=None, error=json_error)[1].startswith('{"error": "not here under this name')
