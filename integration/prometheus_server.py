"""A real Prometheus that scrapes one address each second and evaluates the alerts of docs/monitoring."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from integration.system_programs import program

RULES = Path(__file__).resolve().parent.parent / "docs" / "monitoring" / "rules.yaml"
PATIENCE_S = 60.0


class PrometheusError(Exception):
    """Prometheus did not start, or what was waited for did not come."""


class Prometheus:
    """A Prometheus in a process of its own, on a free port of this machine.

    Args:
        directory: its data and its log.
        target: host and port to scrape, as the job `kstream-test`.
    """

    def __init__(self, directory: Path, target: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port: int = free.getsockname()[1]
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [str(RULES)],
            "scrape_configs": [{"job_name": "kstream-test", "static_configs": [{"targets": [target]}]}],
        }
        (directory / "prometheus.yaml").write_text(yaml.safe_dump(config))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and return when it answers. PrometheusError if it does not."""
        command = [
            program("prometheus") or "prometheus",
            f"--config.file={self._directory / 'prometheus.yaml'}",
            f"--storage.tsdb.path={self._directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self._port}",
        ]
        with open(self._directory / "prometheus.log", "ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        self.wait(self._is_ready, "to become ready")

    def stop(self) -> None:
        """End it; returns when it is gone."""
        if self._process is not None:
            self._process.terminate()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()

    def _is_ready(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            raise PrometheusError(self._log())
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/-/ready", timeout=5):
                return True
        except (urllib.error.URLError, OSError):
            return False

    def get(self, path: str, **parameters: str) -> Any:
        """The `data` of an answer of its API. PrometheusError with Prometheus' words if it refuses."""
        url = f"http://127.0.0.1:{self._port}/api/v1/{path}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=20) as answer:
                return json.load(answer)["data"]
        except urllib.error.HTTPError as e:
            raise PrometheusError(f"{parameters}: {e.read().decode(errors='replace')}") from None

    def values(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """The samples of an instant query: labels and value."""
        return [(each["metric"], float(each["value"][1])) for each in self.get("query", query=expression)["result"]]

    def firing(self) -> set[str]:
        """The alerts that fire now."""
        return {alert["labels"]["alertname"] for alert in self.get("alerts")["alerts"] if alert["state"] == "firing"}

    def wait(self, reached: Callable[[], Any], what: str) -> None:
        """Return when `reached()` is true. PrometheusError if it does not become true."""
        end = time.monotonic() + PATIENCE_S
        while not reached():
            if time.monotonic() > end:
                raise PrometheusError(f"Prometheus did not come {what} within {PATIENCE_S:g} s:\n{self._log()}")
            time.sleep(0.1)

    def _log(self) -> str:
        return (self._directory / "prometheus.log").read_text(errors="replace")[-4000:]


@contextmanager
def running_prometheus(directory: Path, target: str) -> Iterator[Prometheus]:
    """A Prometheus for the length of a with block."""
    server = Prometheus(directory, target)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def promtool(*words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Run promtool, and return what it said."""
    return subprocess.run([program("promtool") or "promtool", *words], input=stdin, capture_output=True, check=False, env=dict(os.environ))
