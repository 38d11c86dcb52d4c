"""The server of a port: whose connection gives way, how long a client may take, and which route answers."""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kstream.http import http_server
from kstream.http.http_server import HttpServer
from kstream.http.messages import Answer
from kstream.http.router import Site
from tests.metrics.scraped import fetch


@pytest.fixture
def serve_few() -> Iterator[Callable[..., HttpServer]]:
    """Serves what a function returns, by default to one connection at a time."""
    made: list[HttpServer] = []

    def make(body: Callable[[], bytes], connections: int = 1, seconds: Callable[[], float] = lambda: 0.0) -> HttpServer:
        routes = {"/": lambda _: Answer("200 OK", "text/plain", body())}
        site = Site("a test", "no.key", "TestServer", routes, lambda _: "there is /", connections=connections)
        made.append(HttpServer(site, "127.0.0.1", 0, seconds=seconds))
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.stop()


def connected(server: HttpServer) -> socket.socket:
    """A connection whose reads fail before the server gives up on one that is silent."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


REQUEST = b"GET / HTTP/1.0\r\nHost: localhost\r\n\r\n"


def test_a_connection_without_a_request_gives_its_place_to_a_further_one(serve_few: Callable[..., HttpServer]) -> None:
    server = serve_few(lambda: b"here")
    with connected(server) as first, connected(server) as second:
        assert is_closed(first)
        second.sendall(REQUEST)
        assert second.recv(12) == b"HTTP/1.0 200"


def test_a_connection_that_is_being_answered_keeps_its_place_and_a_further_one_is_closed(
    serve_few: Callable[..., HttpServer],
) -> None:
    begun, may_end = threading.Event(), threading.Event()

    def answer() -> bytes:
        begun.set()
        assert may_end.wait(20)
        return b"here"

    server = serve_few(answer)
    with connected(server) as first:
        first.sendall(REQUEST)
        assert begun.wait(20)
        with connected(server) as second:
            assert is_closed(second)
        may_end.set()
        assert first.recv(12) == b"HTTP/1.0 200"


def test_a_head_that_comes_byte_by_byte_has_ten_seconds_in_all(serve_few: Callable[..., HttpServer]) -> None:
    now = [0.0]
    server = serve_few(lambda: b"here", connections=2, seconds=lambda: now[0])
    with connected(server) as slow:
        slow.sendall(b"GET / HTTP/1.0\r\nA: b\r\n")
        fetch(server.root)  # connections are accepted in their order
        now[0] = 9.9
        slow.sendall(b"C: d\r\n")
        assert fetch(server.root) == b"here"
        now[0] = 10.0
        assert is_closed(slow)


def test_an_answer_that_takes_longer_than_a_head_may_is_not_ended(serve_few: Callable[..., HttpServer]) -> None:
    now, begun, may_end = [0.0], threading.Event(), threading.Event()

    def answer() -> bytes:
        if not begun.is_set():
            begun.set()
            assert may_end.wait(20)
        return b"here"

    server = serve_few(answer, connections=3, seconds=lambda: now[0])
    with connected(server) as asking:
        asking.sendall(REQUEST)
        assert begun.wait(20)
        with connected(server) as silent:
            fetch(server.root)  # connections are accepted in their order
            now[0] = 10.0
            assert is_closed(silent), "the server has looked for late heads, and ends them in their order"
        may_end.set()
        assert asking.recv(12) == b"HTTP/1.0 200"


LARGE = 100_000_000
"""Bytes of an answer that does not fit into the buffers of a connection."""


def received(connection: socket.socket, size: int) -> int:
    """How many bytes come, up to `size`."""
    count = 0
    while count < size and (piece := connection.recv(min(1_000_000, size - count))):
        count += len(piece)
    return count


def test_a_client_that_does_not_read_its_answer_gives_its_place_to_a_further_one(serve_few: Callable[..., HttpServer]) -> None:
    now, large = [0.0], [True]
    server = serve_few(lambda: b"x" * LARGE if large else b"here", seconds=lambda: now[0])
    with connected(server) as deaf:
        deaf.sendall(REQUEST)
        assert deaf.recv(12) == b"HTTP/1.0 200"
        large.clear()
        with connected(server) as second:
            assert is_closed(second), "the first one has made progress just now"
        for _ in range(20):  # the first one may still fill its buffers
            now[0] += 2.0
            with connected(server) as further:
                further.sendall(REQUEST)
                if not is_closed(further):
                    break
        else:
            raise AssertionError("it keeps its place")
        assert received(deaf, LARGE) < LARGE


def test_a_client_that_does_not_read_gives_way_before_one_whose_request_may_be_on_its_way(
    serve_few: Callable[..., HttpServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, sends, may_go_on = [0.0], threading.Event(), threading.Event()

    class Stuck(http_server.AnswerWriter):
        """Its client takes nothing."""

        def write(self, data: bytes) -> int:
            self._on_send()
            sends.set()
            assert may_go_on.wait(20)
            return super().write(data)

    server = serve_few(lambda: b"here", connections=2, seconds=lambda: now[0])
    with connected(server) as deaf, monkeypatch.context() as patch:
        patch.setattr(http_server, "AnswerWriter", Stuck)
        deaf.sendall(REQUEST)
        assert sends.wait(20)
        patch.undo()
        now[0] = 2.0
        with connected(server) as asking, connected(server) as further:
            assert is_closed(deaf)
            for connection in (asking, further):
                connection.sendall(REQUEST)
                assert connection.recv(12) == b"HTTP/1.0 200"
        may_go_on.set()


def test_a_slow_client_keeps_its_place_as_long_as_it_reads(serve_few: Callable[..., HttpServer]) -> None:
    now = [0.0]
    server = serve_few(lambda: b"x" * LARGE, seconds=lambda: now[0])
    with socket.socket() as slow:
        slow.settimeout(5)
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        slow.connect(("127.0.0.1", server.port))
        slow.sendall(REQUEST)
        piece, count = LARGE // 15, 0
        for _ in range(12):  # seconds
            count += received(slow, piece)  # more than the buffers hold, so the server has sent more meanwhile
            now[0] += 1.0
            with connected(server) as further:
                assert is_closed(further)
        assert count == 12 * piece and count + received(slow, 2 * LARGE) > LARGE, "the whole answer and its head"


def test_each_piece_of_an_answer_has_the_patience_of_the_server_for_itself() -> None:
    """The timeout of a socket counts for a call of `sendall`."""
    done: list[Any] = []

    class Connection:
        def sendall(self, data: memoryview) -> None:
            done.append(bytes(data))

    connection: Any = Connection()
    answer = bytes(range(250)) * 600
    assert http_server.AnswerWriter(connection, lambda: done.append("sends")).write(answer) == len(answer)
    assert done[::2] == ["sends"] * 3 and [len(piece) for piece in done[1::2]] == [65_536, 65_536, 150_000 - 2 * 65_536]
    assert b"".join(done[1::2]) == answer


def test_a_client_that_does_not_read_its_answer_prints_nothing(
    serve_few: Callable[..., HttpServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: Any
) -> None:
    monkeypatch.setattr(http_server._Handler, "timeout", 1.0)
    logged = threading.Event()
    monkeypatch.setattr(caplog.handler, "emit", lambda record, emit=caplog.handler.emit: (emit(record), logged.set()))
    server = serve_few(lambda: b"x" * 50_000_000)
    with caplog.at_level(logging.DEBUG, logger="kstream"), connected(server) as deaf:
        deaf.sendall(REQUEST)
        assert logged.wait(20)
    assert [record.levelname for record in caplog.records] == ["DEBUG"] and "was not sent whole" in caplog.text
    assert capfd.readouterr() == ("", "")
