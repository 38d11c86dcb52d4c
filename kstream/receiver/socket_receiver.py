"""SocketReceiver: what a TCP server sends, turned into records; connects again when it is refused or the stream ends."""

from __future__ import annotations

import codecs
import logging
import socket
from collections.abc import Callable, Iterable, Iterator
from typing import Any, BinaryIO

from kstream.loop import THREADS
from kstream.receiver.block_chunks import TextLines
from kstream.receiver.receiver import Receiver

logger = logging.getLogger(__name__)
_CHUNK = 65536
Converter = Callable[[BinaryIO], Iterable[Any]]


class SocketReceiver(Receiver):
    """`converter(file)` gets the connection as a binary file to read and gives records, for as long as they come.

    What it says when it has to connect again, and how long it waits, are Spark's.
    """

    def __init__(self, host: str, port: int, converter: Converter, storageLevel: Any = None) -> None:
        super().__init__(storageLevel)
        self._host = host
        self._port = port
        self._converter = converter
        self._connection: socket.socket | None = None

    def onStart(self) -> None:
        logger.info("Connecting to %s:%d", self._host, self._port)
        try:
            connection = socket.create_connection((self._host, self._port))
        except OSError as e:
            self.restart(f"Error connecting to {self._host}:{self._port}", e)
            return
        self._connection = connection
        if self.isStopped():  # while it connected
            self.onStop()
            return
        logger.info("Connected to %s:%d", self._host, self._port)
        THREADS.thread(lambda: self._receive(connection), "Socket Receiver").start()

    def onStop(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            _close(connection)
            logger.info("Closed socket to %s:%d", self._host, self._port)

    def _receive(self, connection: socket.socket) -> None:
        try:
            with connection.makefile("rb") as file:
                if self._converter is lines_of:  # as they come: many at once
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
            if not self._ended(connection):  # else it is the stop that closed it
                logger.warning("Error receiving data: %s", e)
                self.restart("Error receiving data", e)
        finally:
            _close(connection)

    def _ended(self, connection: socket.socket) -> bool:
        """Whether this connection is not to be read any more: stopped, or a later one has taken its place."""
        return self.isStopped() or self._connection is not connection

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_connection": None}


def lines_of(file: BinaryIO) -> Iterator[str]:
    """Lines of UTF-8 as they come, ended by LF, CR or CRLF; what stands behind the last end is a line, too, when the server hangs up."""
    for lines in line_chunks_of(file):
        yield from lines


def line_chunks_of(file: BinaryIO) -> Iterator[TextLines]:
    """The same, those together that have come together."""
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
            yield TextLines(whole)
    rest += decode(b"", True)
    if rest:
        yield TextLines(rest)


def _close(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)  # a reader in another thread wakes up, which close alone does not do
    except OSError:
        pass
    connection.close()
