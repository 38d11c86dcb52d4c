"""A source that keeps what nobody has acknowledged: numbers over TCP, sent again from the last acknowledged one on.

Beside the server the receiver that reads from it. One connection counts at a time, the newest: what an older one acknowledges is not heard.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from kstream import Receiver

_CHUNK = 65536


class AckedSource:
    """Sends `rate` numbers a second, in lines, from 0; an answer `n` acknowledges all up to n."""

    def __init__(self, rate: int) -> None:
        self.rate = rate
        self._server = socket.create_server(("127.0.0.1", 0))
        self._lock = threading.Condition()
        self._connection: socket.socket | None = None
        self._acked = -1
        self._sent = -1
        self._produced = 0
        self.resent: set[int] = set()
        self._producing = True
        self._closed = False
        for work in (self._accept, self._produce):
            threading.Thread(target=work, daemon=True).start()

    @property
    def port(self) -> int:
        return self._server.getsockname()[1]

    @property
    def acked(self) -> int:
        """How many are acknowledged: 0 … acked − 1."""
        with self._lock:
            return self._acked + 1

    @property
    def produced(self) -> int:
        with self._lock:
            return self._produced

    def stop_producing(self) -> None:
        self._producing = False

    def wait(self, reached: Callable[[AckedSource], bool], patience: float) -> None:
        end = time.monotonic() + patience
        while not reached(self):
            assert time.monotonic() < end, f"{self.acked} of {self.produced} are acknowledged, and no more"
            time.sleep(0.05)

    def close(self) -> None:
        self._closed = True
        self._server.close()
        if self._connection is not None:
            self._connection.close()

    def _produce(self) -> None:
        begin, before = time.monotonic(), 0
        while not self._closed and self._producing:
            time.sleep(0.1)
            now = int((time.monotonic() - begin) * self.rate)
            with self._lock:
                self._produced += now - before
                self._lock.notify_all()
            before = now

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with self._lock:
                old, self._connection = self._connection, connection
                self.resent.update(range(self._acked + 1, self._sent + 1))
                self._lock.notify_all()
            if old is not None:
                with suppress(OSError):
                    old.shutdown(socket.SHUT_RDWR)
            threading.Thread(target=self._send, args=(connection,), daemon=True).start()
            threading.Thread(target=self._hear, args=(connection,), daemon=True).start()

    def _send(self, connection: socket.socket) -> None:
        with self._lock:
            at = self._acked + 1
        while True:
            with self._lock:
                self._lock.wait_for(lambda at=at: self._produced > at or self._connection is not connection)
                if self._connection is not connection:
                    return
                until = self._produced
                self._sent = max(self._sent, until - 1)
            try:
                connection.sendall("".join(f"{n}\n" for n in range(at, until)).encode())
            except OSError:
                return
            at = until

    def _hear(self, connection: socket.socket) -> None:
        with suppress(OSError, ValueError), connection.makefile("r") as answers:
            for line in answers:
                with self._lock:
                    if self._connection is not connection:
                        return
                    self._acked = max(self._acked, int(line))
                    self._lock.notify_all()


class AckedReceiver(Receiver):
    """Acknowledges what it has read when it is stored: what came at once is a block."""

    def __init__(self, port: int) -> None:
        super().__init__()
        self.port = port

    def onStart(self) -> None:
        threading.Thread(target=self._run, daemon=True).start()

    def onStop(self) -> None: ...

    def _run(self) -> None:
        try:
            with socket.create_connection(("127.0.0.1", self.port), 10) as connection:
                rest = b""
                while not self.isStopped():
                    data = connection.recv(_CHUNK)
                    if not data:
                        raise OSError("the source hung up")
                    *lines, rest = (rest + data).split(b"\n")
                    if lines:
                        self.storeAll(list(map(int, lines)))
                        connection.sendall(lines[-1] + b"\n")
        except Exception as e:
            if not self.isStopped():
                self.restart("reading from the source failed", e, 200)
