"""The port of the page: paths, headers, names, the token."""

from __future__ import annotations

import hashlib
import http.client
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from kstream.errors import ConfigurationError, PortTakenError, StorageError
from kstream.http import access
from kstream.http.access import delay_ms
from kstream.http.http_server import HttpServer
from kstream.ui.page_site import HEADERS, page_server, page_site
from kstream.ui.settings import UI_TOKEN
from tests.clocks import SteppedClock
from tests.ui.asked import FakeSource, Reply, ask

STREAMING = "/api/v1/applications/local-1/streaming/"
Serve = Callable[..., HttpServer]


@pytest.fixture
def source() -> FakeSource:
    return FakeSource()


@pytest.fixture
def clock() -> SteppedClock:
    return SteppedClock()


@pytest.fixture
def serve(source: FakeSource, clock: SteppedClock) -> Iterator[Serve]:
    made: list[HttpServer] = []

    def make(token: str | None = None, host: str = "127.0.0.1") -> HttpServer:
        made.append(page_server(host, 0, source, token, clock))
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.stop()


class Opaque:
    def __str__(self) -> str:
        return "opaque"


def cookie_name(port: int, token: str) -> str:
    return f"kstream_token_{port}_{hashlib.sha256(token.encode()).hexdigest()[:8]}"


def has_all_headers(reply: Reply) -> bool:
    return all(reply.headers.get(name) == value for name, value in HEADERS)


def test_the_page_and_its_files_are_there_with_their_types(serve: Serve) -> None:
    port = serve().port
    page = ask(port, "/")
    assert page.status == 200 and page.headers["Content-Type"] == "text/html; charset=utf-8" and b"<!doctype html>" in page.body.lower()
    named = re.findall(rb'(?:src|href)="(static/[^"]+)"', page.body)
    assert len(named) > 2
    kinds = {"js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8", "svg": "image/svg+xml"}
    for path in map(bytes.decode, named):
        reply = ask(port, f"/{path}")
        assert (reply.status, reply.headers["Content-Type"]) == (200, kinds[path.rpartition(".")[2]])


@pytest.mark.parametrize(
    "path",
    [
        "/index.html", "/static/", "/static/..", "/static/../ui_server.py", "/static/%2e%2e/ui_server.py", "/static//etc/passwd",
        "/static/..%2fui_server.py", "/static/page.js/", "/etc/passwd", "/api", "/api/v1/applications/", "/static/page.js%00",
    ],
)  # fmt: skip
def test_no_path_opens_a_file(serve: Serve, path: str) -> None:
    reply = ask(serve().port, path)
    assert reply.status == 404 and "error" in reply.json and has_all_headers(reply)


def test_each_answer_is_json_at_its_path(serve: Serve) -> None:
    port = serve().port
    assert ask(port, "/api/v1/applications").json == [{"id": "local-1", "name": "orders"}]
    for name in ("statistics", "timeline", "receivers", "lag", "decisions", "ledger", "settings"):
        reply = ask(port, STREAMING + name)
        assert (reply.status, reply.headers["Content-Type"], reply.json) == (200, "application/json", {"from": name})
    assert ask(port, STREAMING + "batches/1000").json == {"batchId": 1000}
    assert ask(port, STREAMING + "batches/1000/operations").json == [{"outputOpId": 0}]


@pytest.mark.parametrize("path", ["batches/2000", "batches/2000/operations", "batches/1000/", "batches/x", "batches/-1", "nothing", ""])
def test_what_is_not_there_is_404_with_the_reason(serve: Serve, path: str) -> None:
    reply = ask(serve().port, STREAMING + path)
    assert reply.status == 404 and reply.json["error"]
    assert ask(serve().port, "/api/v1/applications/other/streaming/statistics").status == 404


def test_batches_are_chosen_by_status_and_limit(serve: Serve, source: FakeSource) -> None:
    port = serve().port
    for query in ("", "?status=failed&status=HELD&limit=5", "?limit=0"):
        assert ask(port, f"{STREAMING}batches{query}").status == 200
    assert source.asked == [(None, None), (frozenset({"FAILED", "HELD"}), 5), (None, 0)]
    for query in ("?status=odd", "?limit=-1", "?limit=x", "?limit=", "?limit=1e9", "?limit=²"):
        assert ask(port, f"{STREAMING}batches{query.replace('²', '%C2%B2')}").status == 400


def test_every_answer_has_the_headers_also_an_error(serve: Serve, source: FakeSource) -> None:
    port = serve().port
    source.error = RuntimeError("a bug")
    replies = [
        ask(port, "/"), ask(port, "/api/v1/applications"), ask(port, "/nothing"), ask(port, "/", method="POST"),
        ask(port, STREAMING + "lag"), ask(port, "/", {"Host": "evil.example"}), ask(serve("right").port, "/"),
        ask(serve("right").port, "/?token=wrong"), ask(serve("right").port, "/?token=right"),
    ]  # fmt: skip
    assert [reply.status for reply in replies] == [200, 200, 404, 405, 500, 403, 401, 401, 303]
    assert all(has_all_headers(reply) for reply in replies)
    assert replies[3].headers["Allow"] == "GET"


def test_no_other_site_shows_the_page_in_a_frame_and_nothing_comes_from_elsewhere() -> None:
    """A frame lets another site take the clicks of a person for its own."""
    policy = dict(part.split(" ", 1) for part in dict(HEADERS)["Content-Security-Policy"].split("; "))
    assert policy["frame-ancestors"] == "'none'"
    assert policy["default-src"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert {value for key, value in policy.items() if key.endswith("-src") and key != "default-src"} == {"'self'"}


def test_a_request_that_the_server_refuses_itself_is_answered_with_the_headers(serve: Serve) -> None:
    reply = ask(serve().port, "/", {f"X-{number}": "<script>" for number in range(200)})
    assert reply.status == 431 and has_all_headers(reply) and b"<script>" not in reply.body


def test_a_bug_is_told_by_the_log_and_not_by_the_answer(serve: Serve, source: FakeSource, caplog: pytest.LogCaptureFixture) -> None:
    source.error = RuntimeError("a secret place")
    reply = ask(serve().port, STREAMING + "lag")
    assert reply.status == 500 and b"secret place" not in reply.body and "a secret place" in caplog.text


def test_a_store_that_is_away_is_503_with_its_error(serve: Serve, source: FakeSource) -> None:
    source.error = StorageError("the store is away")
    reply = ask(serve().port, STREAMING + "ledger")
    assert (reply.status, reply.json) == (503, {"error": "the store is away"})


def test_a_name_that_is_markup_comes_out_as_json_text(serve: Serve, source: FakeSource) -> None:
    source.name = "</script><img src=x onerror=alert(1)>\u2028\r\nSet-Cookie: a=b\u0000"
    reply = ask(serve().port, "/api/v1/applications")
    assert json.loads(reply.body) == [{"id": "local-1", "name": source.name}]
    assert reply.headers["Content-Type"] == "application/json" and "Set-Cookie" not in reply.headers
    assert b"\r" not in reply.body and b"\x00" not in reply.body and reply.body.isascii()


@pytest.mark.parametrize(
    ("facts", "shown"),
    [
        ({"ratio": float("nan"), "most": [(1, float("-inf"))]}, {"ratio": None, "most": [[1, None]]}),
        ({"by": {(1, 2): {"of": 3.5}}, "at": {4: Opaque()}}, {"by": {"(1, 2)": {"of": 3.5}}, "at": {"4": "opaque"}}),
        ({"by": {None: float("inf")}}, {"by": {"None": None}}),
    ],
    ids=["numbers", "keys", "both"],
)
def test_facts_of_an_input_that_json_has_not_are_null_or_text(serve: Serve, source: FakeSource, facts: object, shown: object) -> None:
    def refuse(constant: str) -> float:
        raise AssertionError(f"no browser reads {constant}")

    source.answer = facts
    reply = ask(serve().port, STREAMING + "statistics")
    assert reply.status == 200 and json.loads(reply.body, parse_constant=refuse) == shown


def test_another_page_cannot_ask_by_a_name_of_its_own(serve: Serve) -> None:
    port = serve().port
    assert ask(port, "/", {"Host": "localhost"}).status == 200
    refused = ask(port, STREAMING + "statistics", {"Host": f"evil.example:{port}"})
    assert refused.status == 403 and b"statistics" not in refused.body


def test_with_a_token_nothing_is_shown_without_it(serve: Serve) -> None:
    port = serve("right").port
    for path in ("/", "/static/page.js", "/api/v1/applications", STREAMING + "statistics", "/nothing"):
        reply = ask(port, path)
        assert reply.status == 401 and reply.headers["WWW-Authenticate"] == "Bearer"
    assert ask(port, "/", {"Authorization": "Bearer right"}).status == 200
    assert ask(port, "/", {"Authorization": "bearer  right"}).status == 200
    assert ask(port, "/", {"Authorization": "Basic right"}).status == 401


def test_a_token_in_the_address_becomes_a_cookie_and_leaves_the_address(serve: Serve) -> None:
    port = serve("rig;ht").port
    reply = ask(port, STREAMING + "batches?limit=5&token=rig%3Bht")
    assert reply.status == 303 and reply.headers["Location"] == "./batches?limit=5"
    cookie = reply.headers["Set-Cookie"]
    assert cookie == f"{cookie_name(port, 'rig;ht')}=rig%3Bht; Path=/; HttpOnly; SameSite=Lax"
    assert ask(port, "/", {"Cookie": f"other=1; {cookie.partition(';')[0]}"}).status == 200
    assert ask(port, "/", {"Cookie": f"{cookie_name(port, 'rig;ht')}=wrong"}).status == 401


def test_the_pages_of_two_drivers_on_one_host_do_not_take_each_others_tokens(serve: Serve) -> None:
    one, other = serve("first").port, serve("second").port
    cookies = "; ".join(f"{cookie_name(port, token)}={token}" for port, token in ((one, "first"), (other, "second")))
    assert [ask(port, "/", {"Cookie": cookies}).status for port in (one, other)] == [200, 200]


def test_two_drivers_that_have_one_port_behind_two_tunnels_do_not_take_each_others_tokens(serve: Serve, clock: SteppedClock) -> None:
    one = serve("first")
    cookies = f"{cookie_name(one.port, 'second')}=second; {cookie_name(one.port, 'first')}=first"
    assert ask(one.port, "/", {"Cookie": cookies}).status == 200 and not clock.waits
    assert ask(one.port, "/", {"Cookie": f"{cookie_name(one.port, 'second')}=second"}).status == 401 and not clock.waits


def test_a_browser_with_the_right_cookie_may_send_other_tokens_as_well(serve: Serve, clock: SteppedClock) -> None:
    """A proxy adds a Bearer of its own, and a bookmark has the token of an earlier driver."""
    port = serve("right").port
    cookie = {"Cookie": f"{cookie_name(port, 'right')}=right"}
    assert ask(port, "/", {**cookie, "Authorization": "Bearer of-the-proxy"}).status == 200
    reply = ask(port, "/?token=old", cookie)
    assert (reply.status, reply.headers["Location"]) == (303, "./")
    assert reply.headers["Set-Cookie"].startswith(f"{cookie_name(port, 'right')}=right;")
    assert ask(port, "/?token=right", {"Authorization": "Bearer of-the-proxy"}).status == 303
    assert not clock.waits


@pytest.mark.parametrize("token", ["hünter2", "hunter2\t", "hunter\n2", " hunter2", "hunter2 "])
def test_a_token_that_not_every_client_can_send_is_refused_at_the_start_and_not_shown(source: FakeSource, token: str) -> None:
    with pytest.raises(ConfigurationError, match="printable ASCII") as caught:
        page_server("127.0.0.1", 0, source, token)
    assert "nter" not in str(caught.value) and caught.value.facts == {"key": UI_TOKEN.key}


def test_browsers_may_keep_many_connections_open(serve: Serve) -> None:
    port = serve().port
    with ExitStack() as kept:
        for _ in range(40):
            kept.enter_context(socket.create_connection(("127.0.0.1", port)))
        assert ask(port, "/").status == 200


@pytest.mark.parametrize("path", ["//evil.example", "/%2F%2Fevil.example", "/%5Cevil.example", "/a%0d%0aX:%20y/", "//evil.example/%2e%2e"])
def test_the_redirect_names_no_other_host(serve: Serve, path: str) -> None:
    reply = ask(serve("right").port, f"{path}?token=right")
    place = reply.headers["Location"]
    assert place.startswith("./") and "//" not in place and "\\" not in place and "X" not in reply.headers


def test_wrong_tokens_are_answered_slower_each_time_and_the_right_one_at_once(serve: Serve, clock: SteppedClock) -> None:
    port = serve("right").port
    replies = [
        ask(port, "/?token=wrong"),
        ask(port, "/", {"Authorization": "Bearer x"}),
        ask(port, "/", {"Cookie": f"{cookie_name(port, 'right')}=x"}),
    ]
    assert [reply.status for reply in replies] == [401, 401, 401] and clock.waits == [delay_ms(n) for n in (1, 2, 3)]
    assert all(b"right" not in reply.body for reply in replies)
    assert ask(port, "/", {"Authorization": "Bearer right"}).status == 200 and len(clock.waits) == 3


def test_a_browser_with_the_right_token_is_not_kept_out_by_guesses_from_its_own_address(
    serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "delay_ms", lambda wrong: 0)
    port = serve("right").port
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with closing(connection):
        connection.request("GET", "/?token=right")
        cookies = "; ".join(each.partition(";")[0] for each in connection.getresponse().headers.get_all("Set-Cookie") or ())
    statuses = [ask(port, f"/?token={n}").status for n in range(100)]
    assert statuses == [401] * 20 + [429] * 80
    refused = ask(port, "/", {"Authorization": "Bearer right"})
    assert (refused.status, refused.headers["Retry-After"]) == (429, "2") and has_all_headers(refused)
    assert ask(port, "/", {"Cookie": cookies}).status == 200


@pytest.mark.parametrize("token", [None, ""])
def test_without_a_token_a_server_that_others_reach_is_not_made(source: FakeSource, token: str | None) -> None:
    with pytest.raises(ConfigurationError, match="needs a token"):
        page_server("0.0.0.0", 0, source, token)


def test_on_all_addresses_the_page_is_at_the_name_of_this_machine(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPARK_PUBLIC_DNS", raising=False)
    server = page_server("0.0.0.0", 0, source, "right")
    server.stop()
    assert server.url == f"http://{socket.gethostname()}:{server.port}/"


def test_in_a_container_the_page_is_at_the_name_that_spark_is_to_tell_others(source: FakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_PUBLIC_DNS", "127.0.0.1")
    server = page_server("0.0.0.0", 0, source, "right")
    server.stop()
    assert server.url == f"http://127.0.0.1:{server.port}/"
    monkeypatch.setenv("SPARK_PUBLIC_DNS", "driver.example.org")
    server = page_server("127.0.0.1", 0, source)
    server.stop()
    assert server.url == f"http://127.0.0.1:{server.port}/"


def test_a_port_that_is_taken_and_one_that_is_none_name_the_setting(serve: Serve, source: FakeSource) -> None:
    with pytest.raises(PortTakenError, match=r"spark\.streaming\.kstream\.ui\.port"):
        page_server("127.0.0.1", serve().port, source)
    with pytest.raises(ConfigurationError, match="the port for the page cannot be opened"):
        page_server("127.0.0.1", 70_000, source)


def test_its_end_does_not_wait_long_for_an_answer_that_hangs(source: FakeSource) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def hang() -> None:
        begun.set()
        assert may_end.wait(20)

    source.wait = hang
    server = HttpServer(replace(page_site(source), end_s=0.01), "127.0.0.1", 0)
    server.start()
    with socket.create_connection(("127.0.0.1", server.port)) as asking:
        asking.sendall(f"GET {STREAMING}ledger HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
        assert begun.wait(20)
        server.stop()
        (hanging,) = (thread for thread in threading.enumerate() if thread.name == "UiServer-request")
    may_end.set()
    hanging.join(20)


def test_after_its_end_nothing_is_left_of_it(serve: Serve) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)):
        ask(server.port, "/")
        server.stop()
    assert [thread.name for thread in threading.enumerate() if thread.name.startswith("UiServer")] == []
