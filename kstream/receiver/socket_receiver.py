"""SocketReceiver: records from the bytes of a TCP server. It reconnects after a refused connection, and at the end of the stream."""

from __future__ import annotations

import codecs
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from kstream.loop import THREADS
from kstream.receiver.block_writer import PackedLines
from kstream.receiver.receiver import Receiver

logger = logging.getLogger(__name__)
_CHUNK = 65536
Converter = Callable[[BinaryIO], Iterable[Any]]


class SocketReceiver(Receiver):
    """A receiver of records from a TCP connection. The texts and the delays of its restarts are Spark's.

    Threads of the supervisor replace `_connection`; a thread of the receiver reads from it.
    """

    def __init__(self, host: str, port: int, converter: Converter, storageLevel: Any = None) -> None:
        """Make a receiver; `onStart` connects it.

        Args:
            host: The host of the server.
            port: The port of the server.
            converter: Gets the connection as a binary file, and yields the records as they arrive. Called on the receiver's thread.
            storageLevel: As of `Receiver`.
        """
        super().__init__(storageLevel)
        self._host = host
        self._port = port
        self._converter = converter
        self._connection: socket.socket | None = None

    def onStart(self) -> None:
        """Connect, and start the thread that receives. Blocks while it connects; a failure restarts the receiver."""
        logger.info("Connecting to %s:%d", self._host, self._port)
        try:
            connection = socket.create_connection((self._host, self._port))
        except OSError as e:
            self.restart(f"Error connecting to {self._host}:{self._port}", e)
            return
        self._connection = connection
        if self.isStopped():  # a stop came while this was connecting
            self.onStop()
            return
        logger.info("Connected to %s:%d", self._host, self._port)
        THREADS.thread(lambda: self._receive(connection), "Socket Receiver").start()

    def onStop(self) -> None:
        """Close the connection, which ends the thread that receives."""
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)
            logger.info("Closed socket to %s:%d", self._host, self._port)

    def _receive(self, connection: socket.socket) -> None:
        """Store the records of a connection until it ends; then restart the receiver, unless it is stopped. On a thread of its own."""
        try:
            with connection.makefile("rb") as file:
                if self._converter is lines_of:  # many lines at once
                    for lines in line_chunks_of(file):
                        if self._ended(connection):
                            return
                        self.storeEach(lines)
                else:
                    for record in self._converter(file):
                        if self._ended(connection):
                            return
                        self.store(record)
            if not self._ended(connection):
                self.restart("Socket data stream had no more data")
        except Exception as e:
            if not self._ended(connection):  # otherwise the stop has closed the connection
                logger.warning("Error receiving data: %s", e)
                self.restart("Error receiving data", e)
        finally:
            _close(connection)

    def _ended(self, connection: socket.socket) -> bool:
        """Return whether reading should end: the receiver is stopped, or a later connection has replaced this one."""
        return self.isStopped() or self._connection is not connection

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_connection": None}


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Yield the lines of a UTF-8 text, which end with LF, CR or CRLF. The text after the last line end is a line, too.

    Blocks until lines arrive.
    """
    for lines in line_chunks_of(file):
        yield from lines


def line_chunks_of(file: BinaryIO) -> Iterator[PackedLines]:
    """Yield the lines that `lines_of` yields, in groups of lines that arrived together. Blocks until lines arrive."""
    decode = codecs.getincrementaldecoder("utf-8")("replace").decode
    rest, after_cr = "", False
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    while data := read(_CHUNK):
        text = decode(data)
        if after_cr and text:
            text, after_cr = text.removeprefix("\n"), False
        after_cr = text.endswith("\r") or (after_cr and not text)
        if "\r" in text:
            text = text.replace("\r\n", "\n").replace("\r", "\n")
        whole, end, rest = (rest + text).rpartition("\n")
        if end:
            yield PackedLines(whole)
    rest += decode(b"", True)
    if rest:
        yield PackedLines(rest)


def _close(connection: socket.socket) -> None:
    """Close a connection, and wake up a thread that reads from it."""
    try:
        connection.shutdown(socket.SHUT_RDWR)  # wakes up a reader in another thread; close alone does not
    except OSError:
        pass
    connection.close()
