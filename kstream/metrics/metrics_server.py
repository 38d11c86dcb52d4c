"""MetricsServer: the port that answers scrapes: `/metrics` for Prometheus, `/json` with the same values, `/status` with the status now.

The form of `/metrics` is prometheus_client's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from kstream.checkpoint.driver_status import DriverStatus, status_fields
from kstream.http_server import PLAIN, Answer, HttpServer, Request
from kstream.metrics.settings import METRICS_PORT

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


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
    own_headers = (("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store"))

    def __init__(self, host: str, port: int, registry: CollectorRegistry, status: Callable[[], DriverStatus]) -> None:
        super().__init__(host, port)
        self._registry, self._status = registry, status
        self.url = f"{self.root}metrics"
        """The address for Prometheus."""

    def answer(self, request: Request) -> Answer:
        match request["PATH_INFO"]:
            case "/metrics":  # OpenMetrics, if a client likes it better, would cost twice as much
                return Answer("200 OK", _PROMETHEUS, generate_latest(self._registry))
            case "/json":
                return Answer("200 OK", "application/json", json.dumps(as_json(self._registry)).encode())
            case "/status":
                return Answer("200 OK", "application/json", json.dumps(status_fields(self._status())).encode())
            case "/":
                text = b"/metrics  for Prometheus\n/json     the same values as JSON\n/status   as in the status record\n"
                return Answer("200 OK", PLAIN, text)
            case _:
                return self.error("404 Not Found", "there are /metrics, /json and /status")


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
