"""PortForwarder: a port of this machine that leads to the port of an embedded broker.

librdkafka's mock cluster takes any free port, and cannot be given one. So clients begin at this port: the first answer names the broker's
own port, and all later connections go there.
"""

from __future__ import annotations

import socket
import socketserver
import threading

HOST = "127.0.0.1"
_PIECE = 65_536


class PortForwarder:
    """Forwards each connection to another port of this machine. Its threads end with the process.

    Attributes:
        port: the port on which it listens.
    """

    def __init__(self, port: int, target: int) -> None:
        """Open the port, and forward from now on.

        Args:
            port: the port; 0 is any free one.
            target: the port to which the connections go.

        Raises:
            OSError: the port cannot be opened. The errno is EADDRINUSE if another process has it.
        """
        self._server = _ForwardingServer(port, target)
        self.port: int = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, name="PortForwarder", daemon=True).start()

    def close(self) -> None:
        """Close the port. Open connections stay until one of their ends closes them. Blocks for a moment."""
        self._server.shutdown()
        self._server.server_close()


class _ForwardedConnection(socketserver.BaseRequestHandler):
    """Forwards one connection, on a thread of its own."""

    def handle(self) -> None:
        """Copy bytes both ways until both ends are closed. Blocks."""
        assert isinstance(self.server, _ForwardingServer)
        try:
            broker = socket.create_connection((HOST, self.server.target))
        except OSError:  # the broker has ended: the client sees a closed connection
            return
        with broker:
            back = threading.Thread(target=_copy, args=(broker, self.request), name="PortForwarder-back", daemon=True)
            back.start()
            _copy(self.request, broker)
            back.join()


class _ForwardingServer(socketserver.ThreadingTCPServer):
    allow_reuse_address = True  # a broker that was just ended leaves connections that wait for their time-out
    daemon_threads = True
    block_on_close = False

    def __init__(self, port: int, target: int) -> None:
        self.target = target
        super().__init__((HOST, port), _ForwardedConnection)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy bytes until one of the connections ends; then the other ends, too. Blocks."""
    try:
        while piece := source.recv(_PIECE):
            sink.sendall(piece)
    except OSError:
        pass
    for connection in (source, sink):
        try:
            connection.shutdown(socket.SHUT_RDWR)
        except OSError:  # it is closed already
            pass
