"""An S3 server: moto's, behind a door that counts requests, makes them atomic, and misbehaves when told.

In this process: `server = S3Server()`. In one of its own: `with running_s3() as s3: s3.go_away(); s3.come_back()`.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]
Fault = Callable[[str, str], str | None]
BUCKET = "checkpoints"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "kstream-tests", "AWS_SECRET_ACCESS_KEY": "s3cr3t-of-the-tests", "AWS_REGION": "us-east-1"}


class S3Server:
    """`requests` holds (method, path) of each since `take`; `most_keys` is the page of a list. `fault(method, path)` may say of one:

    "503" or "409" (refused, nothing done), "lost" (done, and then answered with 500), "token" (400 with a session token in its body),
    "501" (conditions are not implemented), "ignore" (the condition is not looked at).
    """

    def __init__(self, bind: str = "127.0.0.1", port: int = 0) -> None:
        self._inner: Application = DomainDispatcherApplication(create_backend_app)
        self._lock = threading.Lock()  # moto looks first and stores then
        self.requests: list[tuple[str, str]] = []
        self.most_keys = 1000
        self.fault: Fault = lambda _method, _path: None
        logging.getLogger("werkzeug").setLevel(logging.ERROR)
        self._bind, self._port = bind, port
        self._away = True
        self.come_back()
        with urllib.request.urlopen(urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT"), timeout=60):
            pass

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def come_back(self) -> None:
        """Listens, on the same port as before; what was stored is still there. Nothing happens if it is there."""
        if not self._away:
            return
        self._away = False
        self._server = make_server(self._bind, self._port, self._answer, threaded=True, request_handler=_Quiet)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, name="s3-server", daemon=True).start()

    def go_away(self) -> None:
        """Connections are refused from now on."""
        self._away = True
        self._server.shutdown()
        self._server.server_close()

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
            if fault == "ignore":
                environ.pop("HTTP_IF_NONE_MATCH", None)
            if "list-type=2" in environ.get("QUERY_STRING", ""):
                environ["QUERY_STRING"] += f"&max-keys={self.most_keys}"
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


class S3Process:
    """The same server in a process of its own, told by lines of its standard input; it ends when that ends."""

    def __init__(self, command: Sequence[str] = (sys.executable, "-m", "integration.s3_server")) -> None:
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.endpoint = str(self._answer())

    def url(self, path: str) -> str:
        return f"s3://{BUCKET}/{path}"

    def environment(self) -> dict[str, str]:
        return {**CREDENTIALS, "AWS_ENDPOINT_URL": self.endpoint}

    def go_away(self) -> None:
        self._ask("go_away")

    def come_back(self) -> None:
        self._ask("come_back")

    def take(self) -> list[tuple[str, str]]:
        """(method, path) of each request since the last time."""
        return [(method, path) for method, path in self._ask("take")]

    def stop(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(30)

    def _ask(self, what: str) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what}\n")
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the S3 server ended with {self._process.wait(30)}")
        return json.loads(line)


@contextmanager
def running_s3() -> Iterator[S3Process]:
    s3 = S3Process()
    try:
        yield s3
    finally:
        s3.stop()


def main(bind: str = "127.0.0.1", port: str = "0") -> None:
    server = S3Server(bind, int(port))
    print(json.dumps(server.endpoint), flush=True)
    for line in sys.stdin:
        print(json.dumps(getattr(server, line.strip())()), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
