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

from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus, status_of
from kstream.conf import Settings
from kstream.errors import ConfigurationError, PortTakenError
from kstream.http import http_server
from kstream.http.http_server import HttpServer
from kstream.metrics.metrics_site import metrics_site
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


def server_of(registry: CollectorRegistry, host: str = "127.0.0.1", port: int = 0) -> HttpServer:
    return HttpServer(metrics_site(registry, lambda: STATUS), host, port)


@pytest.fixture
def serve(one: One) -> Iterator[Callable[[], HttpServer]]:
    made: list[HttpServer] = []

    def make() -> HttpServer:
        registry = CollectorRegistry()
        registry.register(one)
        made.append(server_of(registry))
        made[-1].start()
        return made[-1]

    yield make
    for server in made:
        server.stop()


def test_on_all_addresses_the_metrics_are_at_the_name_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status record has the address, and `kstream status` may run on another machine."""
    monkeypatch.delenv("SPARK_PUBLIC_DNS", raising=False)
    server = server_of(CollectorRegistry(), "0.0.0.0")
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


def test_both_forms_have_the_same_values(serve: Callable[[], HttpServer]) -> None:
    assert scrape(serve().url) == {"kstream_one": 1.0}


def test_the_root_names_what_there_is_and_nothing_else_is_there(serve: Callable[[], HttpServer]) -> None:
    root = serve().url.removesuffix("metrics")
    assert all(path in fetch(root) for path in (b"/metrics", b"/json", b"/status"))
    assert status_of(json.loads(fetch(root + "status"))) == STATUS
    assert refused(root + "favicon.ico") == 404
    assert refused(root + "metrics", "POST") == 405


def test_it_listens_on_this_machine_only(serve: Callable[[], HttpServer]) -> None:
    assert serve()._server.socket.getsockname()[0] == "127.0.0.1"


def test_an_error_of_a_scrape_is_in_the_log_and_the_next_scrape_is_answered(
    serve: Callable[[], HttpServer], one: One, caplog: pytest.LogCaptureFixture
) -> None:
    server = serve()
    one.error = RuntimeError("a bug")
    assert refused(server.url) == 500
    assert "a bug" in caplog.text
    one.error = None
    assert scrape(server.url) == {"kstream_one": 1.0}


def test_after_its_end_port_and_threads_are_free_even_if_a_client_stays_silent(serve: Callable[[], HttpServer]) -> None:
    server = serve()
    with socket.create_connection(("127.0.0.1", server.port)) as silent:
        fetch(server.url)  # connections are accepted in their order
        assert "MetricsServer-request" in of_the_server()
        server.stop()
        assert of_the_server() == []
        assert silent.recv(1) == b""
    with socket.create_server(("127.0.0.1", server.port)):
        pass


def test_a_connection_for_which_there_is_no_thread_is_closed_and_the_next_one_is_answered(
    serve: Callable[[], HttpServer], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
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


def test_a_port_that_is_taken_is_one_error_with_the_setting(serve: Callable[[], HttpServer]) -> None:
    port = serve().port
    with pytest.raises(PortTakenError, match=rf"127.0.0.1:{port}.*spark.streaming.kstream.metrics.port") as caught:
        server_of(CollectorRegistry(), "127.0.0.1", port)
    assert caught.value.retriable  # a supervisor starts the driver again


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("a..b", 0), ("", 0)])
def test_an_address_that_does_not_exist_is_a_clear_error(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        server_of(CollectorRegistry(), host, port)


def test_a_scrape_is_no_line_in_the_log(serve: Callable[[], HttpServer], caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
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
    serve: Callable[[], HttpServer], host: str | None
) -> None:
    status, headers = status_for(serve().url, host)
    assert status == 403 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"


@pytest.mark.parametrize("host", ["localhost:9404", "127.0.0.1:9404", "[::1]", "LOCALHOST"])
def test_a_scraper_on_this_machine_is_answered_by_each_of_its_names(serve: Callable[[], HttpServer], host: str) -> None:
    status, headers = status_for(serve().url, host)
    assert status == 200 and headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"


def test_a_scraper_elsewhere_may_name_the_driver_as_it_likes() -> None:
    server = server_of(CollectorRegistry(), "0.0.0.0")
    server.start()
    try:
        assert [status_for(server.url, host)[0] for host in ("driver-7.example:9404", "10.0.0.7", None)] == [200, 200, 200]
    finally:
        server.stop()


def test_a_server_without_a_free_file_waits_before_it_accepts_again(
    serve: Callable[[], HttpServer], monkeypatch: pytest.MonkeyPatch
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


def test_a_process_that_was_forked_does_not_keep_the_port(serve: Callable[[], HttpServer]) -> None:
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
        server_of(CollectorRegistry(), "fe80::1%eth0", 0)
    assert bound == [("fe80::1", 0, 0, 2)]
