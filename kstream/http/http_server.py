"""HttpServer: a small HTTP server of a driver. It shows one site on one port.

It is wsgiref's, with an end: its own would leave the threads of open connections. A connection has one request, whose head must come soon.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
import socketserver
import threading
import time
import weakref
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal
from wsgiref.simple_server import ServerHandler, WSGIRequestHandler, WSGIServer

from kstream.clock import Clock, SystemClock
from kstream.errors import ConfigurationError, PortTakenError
from kstream.http.access import TokenCheck
from kstream.http.messages import Request
from kstream.http.router import Router, Site

logger = logging.getLogger(__name__)
_HIGHEST_PORT = 65_535
_PATIENCE_S = 10.0
"""Seconds from a connection to the end of the head of its request, and for a client to take a piece of its answer."""
_PIECE = 65_536
"""The bytes of a piece. A client that takes a few bytes now and then makes no progress."""
_STALLED_S = 2.0
"""Seconds after which a client that has not taken a piece gives its place to another connection."""
_LOOK_S = 0.1
"""Seconds between two looks for the end of the server and for late heads, and so the longest time that a stop waits for it."""
_LONGEST_LINE = 65_536
"""The most bytes of the first line of a request, as in wsgiref."""
_NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
"""Errors of a system that has no more files or memory for a connection. It still waits in the queue of the port."""
_ALL_ADDRESSES = ("0.0.0.0", "::", "")
_StartResponse = Callable[[str, list[tuple[str, str]]], Any]
_App = Callable[[dict[str, Any], _StartResponse], Iterable[bytes]]


def _root(host: str, port: int) -> str:
    """Return the address of a server for others."""
    return f"http://{_name_for_others(host)}:{port}/".replace("%", "%25")  # before the zone of an address


def _name_for_others(host: str) -> str:
    """Return the host in an address. For all addresses it is SPARK_PUBLIC_DNS, as of Spark's UI, else the name of this machine."""
    if host in _ALL_ADDRESSES:
        return os.environ.get("SPARK_PUBLIC_DNS") or socket.gethostname()
    return f"[{host}]" if ":" in host else host


class HttpServer:
    """Listens from its creation, and answers from `start` to `stop`.

    Args:
        site: what it shows.
        host: the address.
        port: the port; 0 is any free one.
        token: the token that a request needs; None needs none.
        clock: counts the delays of answers to wrong tokens.
        seconds: a clock in seconds that never falls. It tells how old a connection is.

    Raises:
        PortTakenError: another process listens there.
        ConfigurationError: it cannot listen there.
    """

    def __init__(
        self,
        site: Site,
        host: str,
        port: int,
        token: str | None = None,
        clock: Clock | None = None,
        seconds: Callable[[], float] = time.monotonic,
    ) -> None:
        self._site = site
        self._tokens = TokenCheck(token, clock or SystemClock(), site.what)
        self._router = Router(site, host, self._tokens)
        try:
            if not 0 <= port <= _HIGHEST_PORT:  # getaddrinfo takes it modulo 65,536
                raise OverflowError(f"a port is at most {_HIGHEST_PORT}")
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            self._server = _Server(site, found[0][0], found[0][4], self._respond, seconds)
        except (OSError, OverflowError, UnicodeError) as e:  # UnicodeError: the host is no name at all
            text = f"the port for {site.what} cannot be opened on {host}:{port}: {e}. Set {site.key} to a free port, or to 0 for any"
            if isinstance(e, OSError) and e.errno == errno.EADDRINUSE:  # another driver may have it that is about to end
                raise PortTakenError(text, place=f"{host}:{port}") from e
            raise ConfigurationError(text, key=site.key, value=port) from e
        self.port: int = self._server.server_address[1]
        """The port on which it listens."""
        self.root = _root(host, self.port)
        """The address of its root, for others."""
        self.url = self.root + site.entry
        """The address of what is shown first, without a token."""
        self._thread = threading.Thread(target=self._server.serve_forever, args=(_LOOK_S,), name=site.thread, daemon=True)

    def _respond(self, environ: dict[str, Any], start_response: _StartResponse) -> Iterable[bytes]:
        """Answer a request. The WSGI application."""
        answer = self._router.answer(Request.of(environ))
        start_response(answer.status, [("Content-Type", answer.kind), *self._site.headers, *answer.headers])
        return [answer.body]

    def start(self) -> None:
        """Answer requests from now on. Call once."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port and all connections, and wait for their threads. Blocks for a moment. Call it after `start`, or without it.

        The wait ends after the `end_s` of the site. A thread that still makes its answer then ends with the process.
        """
        self._tokens.stop()
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.close_open(self._site.end_s)


class _Answering(ServerHandler):
    """Makes one answer. wsgiref prints its errors on standard error."""

    def log_exception(self, exc_info: Any) -> None:
        """Log the error that ended an answer. One of the connection is no event: the client has gone, or does not read."""
        level = logging.DEBUG if isinstance(exc_info[1], OSError) else logging.ERROR
        logger.log(level, "an answer was not sent whole", exc_info=exc_info)


class AnswerWriter:
    """Sends an answer piece by piece, so that the timeout of the connection counts for each of them and not for the whole.

    Args:
        connection: to the client.
        on_send: called before each piece.
    """

    def __init__(self, connection: socket.socket, on_send: Callable[[], None]) -> None:
        self._connection = connection
        self._on_send = on_send

    def write(self, data: bytes) -> int:
        """Send all of it, and return its length. Blocks on the client.

        Raises:
            OSError: the client has gone, or has not taken a piece in time.
        """
        for begin in range(0, len(data), _PIECE):
            self._on_send()
            self._connection.sendall(memoryview(data)[begin : begin + _PIECE])
        return len(data)

    def flush(self) -> None:
        """Do nothing: all is sent."""


class _Handler(WSGIRequestHandler):
    """Reads a request and answers it. It logs no request, and gives up on a connection that is silent."""

    timeout = _PATIENCE_S

    def handle(self) -> None:
        """Answer the request, if its head is whole and in time. As in wsgiref, but for where errors go."""
        self.raw_requestline = self.rfile.readline(_LONGEST_LINE + 1)
        if len(self.raw_requestline) > _LONGEST_LINE:
            self.requestline = self.request_version = self.command = ""
            self.send_error(414)
            return
        if not self.parse_request() or not isinstance(self.server, _Server) or not self.server.begin_answer():
            return
        out: Any = AnswerWriter(self.connection, self.server.on_send)
        answering = _Answering(self.rfile, out, self.get_stderr(), self.get_environ(), multithread=False)
        answering.request_handler = self  # pyright: ignore[reportAttributeAccessIssue] # wsgiref's own ServerHandler reads it
        answering.run(self.server.get_app())  # pyright: ignore[reportArgumentType] # it may be None for wsgiref; here it is set

    def end_headers(self) -> None:
        """Add the headers of the site to an answer that wsgiref itself gives, such as 414, and end its headers."""
        for name, value in self.server.site.headers if isinstance(self.server, _Server) else ():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: a request is no event."""


@dataclass(slots=True)
class _Connection:
    """A connection.

    Attributes:
        since: the moment from which it is open; while its answer is sent, that of the last piece.
        does: `ask` until the head of the request is there, `answer` while the answer is made, then `send`. The server has ended one that
            is `ended`.
    """

    socket: socket.socket
    since: float
    does: Literal["ask", "answer", "send", "ended"] = "ask"


class _Server(WSGIServer):
    """A thread for each connection. All are known, so that an end can end them."""

    def __init__(self, site: Site, family: int, address: Any, app: _App, seconds: Callable[[], float]) -> None:
        self.site = site
        self.request_queue_size = site.connections
        self._seconds = seconds
        self.address_family = family
        self._lock = threading.Lock()
        self._open: dict[threading.Thread, _Connection] = {}
        """In the order in which they came."""
        self._pause = threading.Event()
        super().__init__(address, _Handler)
        _listening.add(self)
        self.set_app(app)  # pyright: ignore[reportArgumentType] # wsgiref's type of a start_response is stricter than its use

    def server_bind(self) -> None:
        """Bind the socket. http.server would ask a name server for the name of this host."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])
        self.setup_environ()

    def get_request(self) -> tuple[socket.socket, Any]:
        """Return a new connection. Without a free file for it wait a moment: socketserver tries again at once, and again."""
        try:
            return super().get_request()
        except OSError as e:
            if e.errno in _NO_ROOM:
                self._pause.wait(_LOOK_S)
            raise

    def service_actions(self) -> None:
        """End the connections whose heads are late. The server's own thread calls it after each look."""
        with self._lock:
            latest = self._seconds() - _PATIENCE_S
            late = [each for each in self._open.values() if each.does == "ask" and each.since <= latest]
            for connection in late:
                connection.does = "ended"
        for connection in late:
            _shut(connection.socket)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer a connection on a thread of its own. Without room or a thread for it, close it."""
        thread = threading.Thread(target=self._answer, args=(request, client_address), name=f"{self.site.thread}-request", daemon=True)
        if not self._make_room(thread, request):
            return self.shutdown_request(request)
        try:
            thread.start()
        except RuntimeError as e:
            with self._lock:
                del self._open[thread]
            logger.warning("%s: connection from %s was closed unanswered: %s", self.site.what, client_address[0], e)
            self.shutdown_request(request)

    def _make_room(self, thread: threading.Thread, request: socket.socket) -> bool:
        """Take a connection in, if need be in place of another one. Return False if there is no room."""
        with self._lock:
            is_full = sum(each.does != "ended" for each in self._open.values()) >= self.site.connections
            gives_way = self._that_gives_way() if is_full else None
            if is_full and gives_way is None:
                return False
            if gives_way is not None:
                gives_way.does = "ended"
            self._open[thread] = _Connection(request, self._seconds())
        if gives_way is not None:
            _shut(gives_way.socket)
        return True

    def _that_gives_way(self) -> _Connection | None:
        """Return the connection whose place a further one takes; None if all are answered and their clients read. Call it under the lock.

        A client that does not read its answer is first: one without a whole head may just have come.
        """
        latest = self._seconds() - _STALLED_S
        stalled = [each for each in self._open.values() if each.does == "send" and each.since <= latest]
        asking = (each for each in self._open.values() if each.does == "ask")
        return min(stalled, key=lambda each: each.since, default=None) or next(asking, None)

    def begin_answer(self) -> bool:
        """Return whether the connection of this thread may be answered. False if the server has ended it meanwhile."""
        with self._lock:
            connection = self._open[threading.current_thread()]
            if connection.does == "ask":
                connection.does = "answer"
            return connection.does == "answer"

    def on_send(self) -> None:
        """Note that the client of this thread's connection has taken all pieces of its answer before this one."""
        with self._lock:
            connection = self._open[threading.current_thread()]
            if connection.does != "ended":
                connection.does, connection.since = "send", self._seconds()

    def _answer(self, request: Any, client_address: Any) -> None:
        """Read the request of a connection, answer it and close the connection. On the thread of the connection; raises nothing."""
        try:
            self.finish_request(request, client_address)
        except Exception as e:  # the client has gone, or is silent
            logger.debug("%s: connection from %s ended: %r", self.site.what, client_address[0], e)
        finally:
            self.shutdown_request(request)
            with self._lock:
                del self._open[threading.current_thread()]

    def close_open(self, end_s: float) -> None:
        """Close all connections, and wait for their threads, up to `end_s` seconds for all of them."""
        with self._lock:
            still_open = dict(self._open)
        for connection in still_open.values():
            _shut(connection.socket)
        end = time.monotonic() + end_s
        for thread in still_open:
            thread.join(max(0.0, end - time.monotonic()))


_listening: weakref.WeakSet[_Server] = weakref.WeakSet()


def _close_in_child() -> None:
    """Close the ports in a process that was forked from this one: else they would stay open after the end of this process."""
    for server in list(_listening):
        server.socket.close()


os.register_at_fork(after_in_child=_close_in_child)


def _shut(connection: socket.socket) -> None:
    """End a connection that another thread reads or writes. It wakes up, and closes it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # it is closed already
        pass
