"""A schema registry on this machine, for tests: no real one could be installed as a package.

It speaks as much of Confluent's protocol as confluent_kafka's serializers ask for: subjects, versions, ids, references, basic
authentication. It checks no compatibility, and knows Protobuf only as the Base64 in which confluent_kafka registers it.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TypeAlias
from urllib.parse import unquote, urlsplit

Answer: TypeAlias = "tuple[int, Any]"


class RegistryServer:
    """The registry. All methods may be called from any thread.

    Attributes:
        requests: method and path of each request that was authorized, in order.
        login: user and password, as `user:password`; None lets everybody in.
        failures: so many next requests get the status 503.
        instead: status and body of every answer, as of another server at this address; None for those of the registry.
        lag: so many next requests for a schema find none, as with a follower that does not have it yet.
    """

    def __init__(self, login: str | None = None) -> None:
        self.requests: list[str] = []
        self.login = login
        self.failures = 0
        self.lag = 0
        self.instead: Answer | None = None
        self._lock = threading.Lock()
        self._schemas: list[dict[str, Any]] = []
        self._subjects: dict[str, list[int]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="RegistryServer", daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked_for(self, schema_id: int) -> int:
        """Return how often the schema of an id was asked for."""
        return sum(path == f"GET /schemas/ids/{schema_id}" for path in self.requests)

    def register(self, subject: str, schema: str, kind: str = "AVRO", references: list[dict[str, Any]] | None = None) -> int:
        """Register a schema, as a request would. Return its id."""
        return self._register(subject, {"schema": schema, "schemaType": kind, "references": references or []})[1]["id"]

    def answer(self, method: str, path: str, body: Any, login: str | None) -> Answer:
        """Return status and body of the answer to a request."""
        with self._lock:
            if self.login is not None and login != self.login:
                return 401, {"error_code": 401, "message": "Unauthorized"}
            self.requests.append(f"{method} {path}")
            if self.instead is not None:
                return self.instead
            if self.failures:
                self.failures -= 1
                return 503, {"error_code": 50301, "message": "not ready"}
            for wanted, pattern, call in self._routes():
                found = re.fullmatch(pattern, path)
                if wanted == method and found:
                    return call(*map(unquote, found.groups()), *([body] if body is not None else []))
        return 404, {"error_code": 404, "message": f"no {method} {path}"}

    def _routes(self) -> list[tuple[str, str, Callable[..., Answer]]]:
        return [
            ("POST", "/subjects/([^/]+)/versions", self._register),
            ("POST", "/subjects/([^/]+)", self._lookup),
            ("GET", "/subjects/([^/]+)/versions/([^/]+)", self._version),
            ("GET", "/schemas/ids/([0-9]+)", self._by_id),
        ]

    def _register(self, subject: str, body: dict[str, Any]) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        try:
            if schema["schemaType"] == "AVRO":
                json.loads(schema["schema"])
        except ValueError:
            return 422, {"error_code": 42201, "message": "Invalid schema"}
        if schema not in self._schemas:
            self._schemas.append(schema)
        number = self._schemas.index(schema) + 1
        versions = self._subjects.setdefault(subject, [])
        if number not in versions:
            versions.append(number)
        return 200, {"id": number}

    def _lookup(self, subject: str, body: dict[str, Any]) -> Answer:
        schema = {"schemaType": "AVRO", "references": [], **body}
        for version, number in enumerate(self._subjects.get(subject, []), 1):
            if self._schemas[number - 1] == schema:
                return 200, self._described(subject, version, number)
        return 404, {"error_code": 40403, "message": "Schema not found"}

    def _version(self, subject: str, version: str) -> Answer:
        versions = self._subjects.get(subject, [])
        at = len(versions) if version in ("latest", "-1") else int(version)
        if not 1 <= at <= len(versions):
            return 404, {"error_code": 40401, "message": "Subject not found"}
        return 200, self._described(subject, at, versions[at - 1])

    def _by_id(self, number: str) -> Answer:
        lags, self.lag = self.lag > 0, max(0, self.lag - 1)
        if lags or not 1 <= int(number) <= len(self._schemas):
            return 404, {"error_code": 40403, "message": "Schema not found"}
        return 200, self._schemas[int(number) - 1]

    def _described(self, subject: str, version: int, number: int) -> dict[str, Any]:
        return {"subject": subject, "version": version, "id": number, **self._schemas[number - 1]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._reply("GET", None)

            def do_POST(self) -> None:
                self._reply("POST", json.loads(self.rfile.read(int(self.headers["Content-Length"]))))

            def _reply(self, method: str, body: Any) -> None:
                _, _, login = self.headers.get("Authorization", "").partition("Basic ")
                status, answer = registry.answer(method, urlsplit(self.path).path, body, base64.b64decode(login).decode() or None)
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        return Handler


@contextmanager
def registry_server(login: str | None = None) -> Generator[RegistryServer]:
    """Run a registry during a `with` block."""
    server = RegistryServer(login)
    try:
        yield server
    finally:
        server.close()
