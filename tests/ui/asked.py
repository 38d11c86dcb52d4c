"""Asks a page as a browser does, and a source whose answers a test sets."""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from kstream.ui.forms import BatchStatus


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(port: int, path: str, headers: dict[str, str] | None = None, method: str = "GET") -> Reply:
    """One request to the server on this port. `headers` may replace Host."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host=True)
        for name, value in ({"Host": f"127.0.0.1:{port}"} | (headers or {})).items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return Reply(answer.status, dict(answer.getheaders()), answer.read())
    finally:
        connection.close()


class FakeSource:
    """A source of which a test knows the answers."""

    def __init__(self) -> None:
        self.name = "orders"
        self.error: Exception | None = None
        self.answer: Any = None
        """What any other list answers; None is its own name."""
        self.wait: Callable[[], object] = lambda: None
        self.asked: list[Any] = []

    def application(self) -> Any:
        return {"id": "local-1", "name": self.name}

    def batches(self, statuses: frozenset[BatchStatus] | None = None, limit: int | None = None) -> Any:
        self.asked.append((statuses, limit))
        return []

    def batch(self, batch_time_ms: int) -> Any:
        return {"batchId": batch_time_ms} if batch_time_ms == 1000 else None

    def operations(self, batch_time_ms: int) -> Sequence[Any] | None:
        return [{"outputOpId": 0}] if batch_time_ms == 1000 else None

    def __getattr__(self, name: str) -> Any:
        """Any other list: its own name."""

        def answer() -> Any:
            self.wait()
            if self.error is not None:
                raise self.error
            return {"from": name} if self.answer is None else self.answer

        return answer
