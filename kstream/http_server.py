"""HttpServer: a small HTTP server of a driver, for metrics and for the page. It answers by a WSGI application.

It is wsgiref's, with an end: its own would leave the threads of open connections.
"""

from __future__ import annotations

import errno
import logging
import socket
import socketserver
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from kstream.errors import ConfigurationError, PortTakenError

logger = logging.getLogger(__name__)
_HIGHEST_PORT = 65_535
_PATIENCE_S = 10.0
"""Seconds for which a connection may be silent."""
_LOOK_S = 0.1
"""Seconds between two looks for the end of the server, and so the longest time that a stop waits for it."""
StartResponse = Callable[[str, list[tuple[str, str]]], Any]
App = Callable[[dict[str, Any], StartResponse], Iterable[bytes]]
"""A WSGI application. It is called on a thread for each request, so any number at a time."""


class HttpServer:
    """Listens from its creation, and answers from `start` to `stop`.

    Args:
        host: the address.
        port: the port; 0 is any free one.
        app: answers the requests.
        name: the name of its threads, such as `MetricsServer`.
        what: what it shows, for messages, such as `metrics`.
        key: the setting of the port, for messages.
        end_s: the seconds that a stop waits for answers that are being made.
        headers: headers of the answers that the server itself gives to what is no request. The application sets those of its own.
        connections: how many connections are open at a time. A further one is closed at once.

    Raises:
        PortTakenError: another process listens there.
        ConfigurationError: it cannot listen there.
    """

    def __init__(
        self,
        host: str,
        port: int,
        app: App,
        name: str,
        what: str,
        key: str,
        end_s: float = _PATIENCE_S,
        headers: Sequence[tuple[str, str]] = (),
        connections: int = 16,
    ) -> None:
        self._end_s = end_s
        try:
            if not 0 <= port <= _HIGHEST_PORT:  # getaddrinfo takes it modulo 65,536
                raise OverflowError(f"a port is at most {_HIGHEST_PORT}")
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._server = _Server(found[0][0], found[0][4][:2], app, name, what, headers, connections)
        except (OSError, OverflowError) as e:
            text = f"the port for {what} cannot be opened on {host}:{port}: {e}. Set {key} to a free port, or to 0 for any"
            if isinstance(e, OSError) and e.errno == errno.EADDRINUSE:  # another driver may have it that is about to end
                raise PortTakenError(text, place=f"{host}:{port}") from e
            raise ConfigurationError(text, key=key, value=port) from e
        self.port: int = self._server.server_address[1]
        """The port on which it listens."""
        self.root = f"http://{f'[{host}]' if ':' in host else host}:{self.port}/"
        """The address of its root."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name=name, daemon=True)

    def start(self) -> None:
        """Answer requests from now on. Call once."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections, and wait for their threads. Blocks for a moment. Call it after `start`, or without it.

        A thread whose answer takes longer than `end_s` ends with it. It is a daemon.
        """
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.close_open(self._end_s)


class _Handler(WSGIRequestHandler):
    """Reads a request. It logs nothing, and gives up on a connection that is silent."""

    timeout = _PATIENCE_S

    def end_headers(self) -> None:
        """End the headers of an answer that is not the application's."""
        for name, value in self.server.own_headers if isinstance(self.server, _Server) else ():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request is no event."""


class _Server(WSGIServer):
    """A thread for each connection. All are known, so that an end can end them."""

    def __init__(
        self, family: int, address: Any, app: App, name: str, what: str, own_headers: Sequence[tuple[str, str]], connections: int
    ) -> None:
        self.request_queue_size = connections
        self._connections = connections
        self.address_family = family
        self.own_headers = own_headers
        self._name = name
        self._what = what
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, socket.socket] = {}
        super().__init__(address, _Handler)
        self.set_app(app)  # pyright: ignore[reportArgumentType] # wsgiref's type of a start_response is stricter than its use

    def server_bind(self) -> None:
        """Bind the socket. http.server would ask a name server for the name of this host."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread of its own, or close it if there are too many, or if the system gives no more threads."""
        thread = threading.Thread(target=self._answer, args=(request, client_address), name=f"{self._name}-request", daemon=True)
        with self._lock:
            is_one_too_many = len(self._open) >= self._connections
            if not is_one_too_many:
                self._open[thread] = request
        if is_one_too_many:
            return self.shutdown_request(request)
        try:
            thread.start()
        except RuntimeError as e:
            with self._lock:
                del self._open[thread]
            logger.warning("%s: connection from %s was closed unanswered: %s", self._what, client_address[0], e)
            self.shutdown_request(request)

    def _answer(self, request: Any, client_address: Any) -> None:
        """Answer one connection."""
        try:
            self.finish_request(request, client_address)
        except Exception as e:  # the client has gone, or is silent
            logger.debug("%s: connection from %s ended: %r", self._what, client_address[0], e)
        finally:
            self.shutdown_request(request)
            with self._lock:
                del self._open[threading.current_thread()]

    def close_open(self, end_s: float) -> None:
        """Close all connections, and wait for their threads, up to `end_s` seconds for all of them."""
        with self._lock:
            still_open = dict(self._open)
        for connection in still_open.values():
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:  # it is closed already
                pass
        end = time.monotonic() + end_s
        for thread in still_open:
            thread.join(max(0.0, end - time.monotonic()))
