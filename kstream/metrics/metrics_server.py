"""MetricsServer: the port that answers scrapes: `/metrics` for Prometheus, `/json` with the same values, `/status` with the status now.

The form of `/metrics` is prometheus_client's.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from kstream.checkpoint.driver_status import DriverStatus, status_fields
from kstream.http_server import App, HttpServer, StartResponse, is_allowed_host
from kstream.metrics.settings import METRICS_PORT

logger = logging.getLogger(__name__)
_PROMETHEUS = ("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
_PLAIN = ("Content-Type", "text/plain; charset=utf-8")
_JSON = ("Content-Type", "application/json")
_HEADERS = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))
"""Every answer has them."""


class MetricsServer(HttpServer):
    """An HTTP server for one registry.

    Args:
        host: the address.
        port: the port; 0 is any free one.
        registry: what it shows.
        status: returns the status of the driver at this moment. Any thread.

    Raises:
        PortTakenError: another process listens there.
        ConfigurationError: it cannot listen there.
    """

    what = "metrics"
    key = METRICS_PORT.key
    own_headers = _HEADERS

    def __init__(self, host: str, port: int, registry: CollectorRegistry, status: Callable[[], DriverStatus]) -> None:
        super().__init__(host, port, _app(registry, status, host))
        self.url = f"{self.root}metrics"
        """The address for Prometheus."""


def _app(registry: CollectorRegistry, status: Callable[[], DriverStatus], host: str) -> App:
    """Return the application that answers by path. On a `host` that only this machine reaches, it answers to names of this machine only."""

    def answer(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        def start(line: str, *headers: tuple[str, str]) -> None:
            start_response(line, [*headers, *_HEADERS])

        try:
            if not is_allowed_host(environ.get("HTTP_HOST"), host):
                start("403 Forbidden", _PLAIN)
                return [b"metrics are not here under this name: ask for localhost, or for the address that this port listens on\n"]
            match environ["REQUEST_METHOD"], environ["PATH_INFO"]:
                case "GET", "/metrics":
                    body = generate_latest(registry)  # OpenMetrics, if a client likes it better, would cost twice as much
                    start("200 OK", _PROMETHEUS)
                    return [body]
                case "GET", "/json":
                    body = json.dumps(as_json(registry)).encode()
                    start("200 OK", _JSON)
                    return [body]
                case "GET", "/status":
                    body = json.dumps(status_fields(status())).encode()
                    start("200 OK", _JSON)
                    return [body]
                case "GET", "/":
                    start("200 OK", _PLAIN)
                    return [b"/metrics  for Prometheus\n/json     the same values as JSON\n/status   as in the status record\n"]
                case "GET", _:
                    start("404 Not Found", _PLAIN)
                    return [b"there are /metrics, /json and /status\n"]
                case _:
                    start("405 Method Not Allowed", _PLAIN, ("Allow", "GET"))
                    return [b"only GET\n"]
        except Exception:
            logger.exception("metrics: a request was not answered")
            start("500 Internal Server Error", _PLAIN)
            return [b"an error, see the log of the driver\n"]

    return answer


def as_json(registry: CollectorRegistry) -> dict[str, Any]:
    """Return the values of a registry as JSON values: for each metric its type, and its samples with their names and labels."""
    return {
        metric.name: {
            "type": metric.type,
            "help": metric.documentation,
            "samples": [{"name": sample.name, "labels": sample.labels, "value": sample.value} for sample in metric.samples],
        }
        for metric in registry.collect()
    }
