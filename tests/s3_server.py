"""An S3 server in this process: moto's, behind a door that counts requests, makes them atomic, and misbehaves when told."""

from __future__ import annotations

import logging
import threading
import urllib.request
from collections.abc import Callable, Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Fault = Callable[[str, str], str | None]
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "kstream-tests", "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-tests", "AWS_REGION": "us-east-1"}


class S3Server:
    """`most_keys`: of a page of a list. `requests` holds (method, path) of each since `take`. `fault(method, path)` may say, of a request:

    "503" or "409" (refused, nothing done), "lost" (done, and then answered with 500), "token" (400 with a session token in its body),
    "501" (conditions are not implemented), "ignore" (the condition is not looked at).
    """

    def __init__(self, port: int = 0) -> None:
        self._inner: Application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()  # moto looks first and stores then
        self.requests: list[tuple[str, str]] = []
        self.fault: Fault = lambda _method, _path: None
        self.most_keys = 1000
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._server = make_server("127.0.0.1", port, self._answer, threaded=True, request_handler=_Quiet)
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="s3-server", daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.endpoint}/{name}", method="PUT")
        with urllib.request.urlopen(request, timeout=30):
            pass

    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def take(self) -> list[tuple[str, str]]:
        with self._lock:
            taken, self.requests = self.requests, []
        return taken

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"]
            self.requests.append((method, path))
            fault = self.fault(method, path)
            if fault in ("503", "409", "501"):
                return _error(environ, start, fault, "SlowDown", "")
            if fault == "token":
                return _error(environ, start, "400", "ExpiredToken", "<Token-0>the-session-token</Token-0>")
            if "list-type=2" in environ.get("QUERY_STRING", ""):
                environ["QUERY_STRING"] += f"&max-keys={self.most_keys}"
            if fault == "ignore":
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if fault == "lost":
                list(self._inner(environ, lambda *_: lambda _: None))
                return _error({}, start, "500", "InternalError", "")
            return list(self._inner(environ, start))


class _Quiet(WSGIRequestHandler):
    def log_request(self, *_: Any) -> None:
        pass


def _error(environ: dict[str, Any], start: Callable[..., Any], status: str, code: str, more: str) -> Iterable[bytes]:
    if environ.get("CONTENT_LENGTH"):
        environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
    body = f'<?xml version="1.0"?>\n<Error><Code>{code}</Code>{more}</Error>'.encode()
    start(f"{status} {code}", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]
