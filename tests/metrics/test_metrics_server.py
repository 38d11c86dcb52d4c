"""The port of the metrics: what it answers, and that nothing of it is left after its end."""

from __future__ import annotations

import errno
import http.client
import json
import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kstream import http_server
from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus, status_of
from kstream.conf import Settings
from kstream.errors import ConfigurationError, PortTakenError
from kstream.http_server import Answer, HttpServer, Request
from kstream.metrics.metrics_server import MetricsServer
from kstream.metrics.metrics_system import MetricsSystem
from tests.metrics.scraped import fetch, scrape


class One(Collector):
    """A metric, or an error."""

    def __init__(self) -> None:
        self.error: Exception | None = None

    def collect(self) -> Any:
        if self.error is not None:
            raise self.error
        yield GaugeMetricFamily("kstream_one", "One.", value=1)


STATUS = DriverStatus("orders", 3, "host-1", 4711, 1_700_000_000_123, 1_700_000_060_456, Duration(1000))


@pytest.fixture
def one() -> One:
    return One()


@pytest.fixture
def serve(one: One) -> Iterator[Callable[[], MetricsServer]]:
    made: list[MetricsServer] = []

    def make() -> MetricsServer:
        registry = CollectorRegistry()
        registry.register(one)
        made.append(MetricsServer("127.0.0.1", 0, registry, lambda: STATUS))
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.stop()


def test_on_all_addresses_the_metrics_are_at_the_name_of_this_machine() -> None:
    """The status record has the address, and `kstream status` may run on another machine."""
    server = MetricsServer("0.0.0.0", 0, CollectorRegistry(), lambda: STATUS)
    server.stop()
    assert server.url == f"http://{socket.gethostname()}:{server.port}/metrics"


def test_the_address_may_be_asked_for_while_the_system_stops() -> None:
    class Stopping(MetricsSystem):
        """Its server is there at the first look, and not at the second."""

        @property
        def _server(self) -> Any:
            return self.answers.pop(0)

        @_server.setter
        def _server(self, server: Any) -> None:  # type: ignore[override]
            self.answers = [SimpleNamespace(url="http://host:1/metrics"), server]

    system = Stopping(Settings({}))
    assert system.url == "http://host:1/metrics"


def refused(url: str, method: str = "GET") -> int:
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(urllib.request.Request(url, method=method), timeout=20)
    caught.value.close()
    return caught.value.code


def of_the_server() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("MetricsServer")]


def test_both_forms_have_the_same_values(serve: Callable[[], MetricsServer]) -> None:
    assert scrape(serve().url) == {"kstream_one": 1.0}


def test_the_root_names_what_there_is_and_nothing_else_is_there(serve: Callable[[], MetricsServer]) -> None:
    root = serve().url.removesuffix("metrics")
    assert all(path in fetch(root) for path in (b"/metrics", b"/json", b"/status"))
    assert status_of(json.loads(fetch(root + "status"))) == STATUS
    assert refused(root + "favicon.ico") == 404
    assert refused(root + "metrics", "POST") == 405


def test_it_listens_on_this_machine_only(serve: Callable[[], MetricsServer]) -> None:
    assert serve()._server.socket.getsockname()[0] == "127.0.0.1"


def test_an_error_of_a_scrape_is_in_the_log_and_the_next_scrape_is_answered(
    serve: Callable[[], MetricsServer], one: One, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    one.error = RuntimeError("a bug")
    assert refused(server.url) == 500
    assert "a bug" in caplog.text
    one.error = None
    assert scrape(server.url) == {"kstream_one": 1.0}


def test_after_its_end_port_and_threads_are_free_even_if_a_client_stays_silent(serve: Callable[[], MetricsServer]) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        fetch(server.url)  # connections are accepted in their order
        assert "MetricsServer-request" in of_the_server()
        server.stop()
        assert of_the_server() == []
        assert silent.recv(1) == b""
    with socket.create_server(("127.0.0.1", server.port)):
        pass


class SmallServer(HttpServer):
    what = "a test"
    key = "no.key"

    def __init__(self, body: Callable[[], bytes], seconds: Callable[[], float]) -> None:
        super().__init__("127.0.0.1", 0, seconds)
        self._body = body

    def answer(self, request: Request) -> Answer:
        return Answer("200 OK", "text/plain", self._body())


@pytest.fixture
def serve_few() -> Iterator[Callable[..., HttpServer]]:
    """Serves what a function returns, by default to one connection at a time."""
    made: list[HttpServer] = []

    def make(body: Callable[[], bytes], connections: int = 1, seconds: Callable[[], float] = lambda: 0.0) -> HttpServer:
        made.append(type("SmallServer", (SmallServer,), {"connections": connections})(body, seconds))
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
    monkeypatch.setattr(http_server._Handler, "timeout", 0.05)
    logged = threading.Event()
    monkeypatch.setattr(caplog.handler, "emit", lambda record, emit=caplog.handler.emit: (emit(record), logged.set()))
    server = serve_few(lambda: b"x" * 50_000_000)
    with caplog.at_level(logging.DEBUG, logger="kstream"), connected(server) as deaf:
        deaf.sendall(REQUEST)
        assert logged.wait(20)
    assert [record.levelname for record in caplog.records] == ["DEBUG"] and "was not sent whole" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_a_connection_for_which_there_is_no_thread_is_closed_and_the_next_one_is_answered(
    serve: Callable[[], MetricsServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.settimeout(20)
        assert connection.recv(1) == b""
    assert "closed unanswered: can't start new thread" in caplog.text
    assert fetch(f"{server.url}")


def test_a_port_that_is_taken_is_one_error_with_the_setting(serve: Callable[[], MetricsServer]) -> None:
    port = serve().port
    with pytest.raises(PortTakenError, match=rf"127.0.0.1:{port}.*spark.streaming.kstream.metrics.port") as caught:
        MetricsServer("127.0.0.1", port, CollectorRegistry(), lambda: STATUS)
    assert caught.value.retriable  # a supervisor starts the driver again


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("a..b", 0), ("", 0)])
def test_an_address_that_does_not_exist_is_a_clear_error(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        MetricsServer(host, port, CollectorRegistry(), lambda: STATUS)


def test_a_scrape_is_no_line_in_the_log(serve: Callable[[], MetricsServer], caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    with caplog.at_level(logging.INFO):
        scrape(serve().url)
    assert caplog.records == [] and capfd.readouterr() == ("", "")


def status_for(url: str, host: str | None) -> tuple[int, dict[str, str]]:
    """The status and the headers of an answer to a request that names the server so."""
    connection = http.client.HTTPConnection("127.0.0.1", int(url.rpartition(":")[2].partition("/")[0]), timeout=20)
    with closing(connection):
        connection.putrequest("GET", "/metrics", skip_host=True)
        if host is not None:
            connection.putheader("Host", host)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders())


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:9404", "", None])
def test_another_site_cannot_read_the_metrics_of_this_machine_by_a_name_of_its_own(
    serve: Callable[[], MetricsServer], host: str | None
) -> None:
    status, headers = status_for(serve().url, host)
    assert status == 403 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost:9404", "127.0.0.1:9404", "[::1]", "LOCALHOST"])
def test_a_scraper_on_this_machine_is_answered_by_each_of_its_names(serve: Callable[[], MetricsServer], host: str) -> None:
    status, headers = status_for(serve().url, host)
    assert status == 200 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"


def test_a_scraper_elsewhere_may_name_the_driver_as_it_likes() -> None:
    server = MetricsServer("0.0.0.0", 0, CollectorRegistry(), lambda: STATUS)
    server.start()
    try:
        assert [status_for(server.url, host)[0] for host in ("driver-7.example:9404", "10.0.0.7", None)] == [200, 200, 200]
    finally:
        server.stop()


def test_a_server_without_a_free_file_waits_before_it_accepts_again(
    serve: Callable[[], MetricsServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve()
    accept, errors = server._server.socket.accept, [OSError(errno.EMFILE, "too many open files")] * 3
    waits: list[float] = []

    class Full:
        """The socket of a process that has no file left, three times."""

        def __getattr__(self, name: str) -> Any:
            return getattr(server_socket, name)

        def accept(self) -> Any:
            if errors:
                raise errors.pop()
            return accept()

    server_socket = server._server.socket
    monkeypatch.setattr(server._server._pause, "wait", waits.append)
    monkeypatch.setattr(server._server, "socket", Full())
    assert fetch(server.url)
    assert waits == [0.1] * 3


def test_a_process_that_was_forked_does_not_keep_the_port(serve: Callable[[], MetricsServer]) -> None:
    server = serve()
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(reads, 1)
        os._exit(0)
    try:
        server.stop()
        with socket.create_server(("127.0.0.1", server.port)):
            pass
    finally:
        os.write(writes, b"x")
        os.waitpid(child, 0)
        os.close(reads)
        os.close(writes)


def test_the_zone_of_an_address_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without it `fe80::1%eth0` cannot be bound."""
    bound: list[Any] = []
    found = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fe80::1", 0, 0, 2))]

    def bind(server: Any) -> None:
        bound.append(server.server_address)
        raise OSError("no such address here")

    monkeypatch.setattr(socket, "getaddrinfo", lambda *_args, **_options: found)
    monkeypatch.setattr(http_server._Server, "server_bind", bind)
    with pytest.raises(ConfigurationError):
        MetricsServer("fe80::1%eth0", 0, CollectorRegistry(), lambda: STATUS)
    assert bound == [("fe80::1", 0, 0, 2)]
