"""The port of the metrics: what it answers, and that nothing of it is left after its end."""

from __future__ import annotations

import json
import logging
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from kstream.batch_time import Duration
from kstream.checkpoint.driver_status import DriverStatus, status_of
from kstream.errors import ConfigurationError, PortTakenError
from kstream.http_server import HttpServer, StartResponse
from kstream.metrics.metrics_server import MetricsServer
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


def test_a_connection_beyond_the_limit_is_closed_and_the_others_are_answered() -> None:
    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        start_response("200 OK", [])
        return [b"here"]

    server = HttpServer("127.0.0.1", 0, answer, "TestServer", "a test", "no.key", connections=1)
    server.start()
    try:
        first = socket.create_connection(("127.0.0.1", server.port))
        with first, socket.create_connection(("127.0.0.1", server.port)) as second:
            second.settimeout(20)
            assert second.recv(1) == b""
            first.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert first.recv(12) == b"HTTP/1.0 200"
    finally:
        server.stop()


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


@pytest.mark.parametrize(("host", "port"), [("127.0.0.1", 70_000), ("no.such.host.invalid", 0), ("", 0)])
def test_an_address_that_does_not_exist_is_a_clear_error(host: str, port: int) -> None:
    with pytest.raises(ConfigurationError, match="cannot be opened"):
        MetricsServer(host, port, CollectorRegistry(), lambda: STATUS)


def test_a_scrape_is_no_line_in_the_log(serve: Callable[[], MetricsServer], caplog: pytest.LogCaptureFixture, capfd: Any) -> None:
    with caplog.at_level(logging.INFO):
        scrape(serve().url)
    assert caplog.records == [] and capfd.readouterr() == ("", "")
