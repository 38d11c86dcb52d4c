"""The site of the metrics: `/metrics` for Prometheus, `/json` with the same values, `/status` with the status now.

The form of `/metrics` is prometheus_client's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest

from kstream.checkpoint.driver_status import DriverStatus, status_fields
from kstream.http.messages import JSON, PLAIN, Answer
from kstream.http.router import Site
from kstream.metrics.settings import METRICS_PORT

_PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"
_ROOT = b"/metrics  for Prometheus\n/json     the same values as JSON\n/status   as in the status record\n"


def metrics_site(registry: CollectorRegistry, status: Callable[[], DriverStatus]) -> Site:
    """Return what the port of the metrics shows.

    Args:
        registry: the metrics.
        status: returns the status of the driver at this moment. Any thread.
    """
    return Site(
        what="metrics",
        key=METRICS_PORT.key,
        thread="MetricsServer",
        routes={
            "/": lambda _: Answer("200 OK", PLAIN, _ROOT),
            # OpenMetrics, if a client likes it better, would cost twice as much
            "/metrics": lambda _: Answer("200 OK", _PROMETHEUS, generate_latest(registry)),
            "/json": lambda _: _json(as_json(registry)),
            "/status": lambda _: _json(status_fields(status())),
        },
        missing=lambda _: "there are /metrics, /json and /status",
        entry="metrics",
        headers=(("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")),
    )


def _json(value: Any) -> Answer:
    return Answer("200 OK", JSON, json.dumps(value).encode())


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
