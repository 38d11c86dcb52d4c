"""A TCP server's lines, and what happens when it refuses, hangs up and comes back."""

from __future__ import annotations

import io
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pytest
from pyspark.cloudpickle import dumps, loads

from kstream.receiver import ReceiverSupervisor, SocketReceiver, lines_of
from kstream.testing import ManualClock
from tests.receivers import ListSink

PATIENCE = 20.0


class Server:
    """Takes connections one after the other on a port of its own."""

    def __init__(self, port: int = 0) -> None:
        self.listener = socket.create_server(("127.0.0.1", port))
        self.listener.settimeout(PATIENCE)
        self.port: int = self.listener.getsockname()[1]

    def accept(self) -> socket.socket:
        connection, _ = self.listener.accept()
        connection.settimeout(PATIENCE)
        return connection

    def close(self) -> None:
        self.listener.close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


class Run:
    """A socket receiver under its supervisor; `wait` blocks until so many records are stored."""

    def __init__(self, port: int, converter: Callable[[BinaryIO], Any] = lines_of) -> None:
        self.clock = ManualClock(0)
        self.stored: list[Any] = []
        self.changed = threading.Condition()
        self.news: list[Any] = []
        self.receiver = SocketReceiver("127.0.0.1", port, converter)
        blocks = ListSink()
        add = blocks.add
        blocks.add = lambda record: (add(record), self._note(record))[0]
        self.supervisor = ReceiverSupervisor(self.receiver, 0, blocks, self.clock, 2000, self._hear)
        self.supervisor.start()

    def _note(self, record: Any) -> None:
        with self.changed:
            self.stored.append(record)
            self.changed.notify_all()

    def _hear(self, news: Any) -> None:
        with self.changed:
            self.news.append(news)
            self.changed.notify_all()

    def wait(self, count: int) -> list[Any]:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.stored) >= count, PATIENCE), self.stored
            return list(self.stored)

    def wait_stopped(self, count: int = 1) -> list[Any]:
        with self.changed:
            assert self.changed.wait_for(lambda: sum(n.kind == "stopped" for n in self.news) >= count, PATIENCE), self.news
            return [n for n in self.news if n.kind == "stopped"]


@pytest.fixture
def runs() -> Iterator[Callable[..., Run]]:
    made: list[Run] = []

    def make(*args: Any) -> Run:
        made.append(Run(*args))
        return made[-1]

    yield make
    for run in made:
        run.supervisor.stop(5.0)


def test_lines_arrive_in_order_as_they_are_sent(server: Server, runs: Callable[..., Run]) -> None:
    """Spark behaviour IS1."""
    run = runs(server.port)
    connection = server.accept()
    for number in range(1, 6):
        connection.sendall(f"line {number}\n".encode())
        assert run.wait(number)[-1] == f"line {number}"
    assert run.stored == [f"line {number}" for number in range(1, 6)]
    connection.close()


def test_when_the_server_hangs_up_it_is_connected_to_again(
    server: Server, runs: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = runs(server.port)
    connection = server.accept()
    connection.sendall(b"one\ntwo")
    connection.close()
    assert run.wait(2) == ["one", "two"], "what stands behind the last line end is a line, too"
    (stopped,) = run.wait_stopped()
    assert stopped.message == "Restarting receiver with delay 2000 ms: Socket data stream had no more data"
    assert stopped.message in caplog.messages
    run.clock.wait_for_waiters()
    run.clock.advance(2000)
    again = server.accept()
    again.sendall(b"three\n")
    assert run.wait(3) == ["one", "two", "three"]
    again.close()


def test_a_server_that_is_not_there_is_asked_again_every_two_seconds(runs: Callable[..., Run]) -> None:
    server = Server()
    server.close()
    run = runs(server.port)
    for tries in (1, 2, 3):
        stopped = run.wait_stopped(tries)[-1]
        assert stopped.message == f"Restarting receiver with delay 2000 ms: Error connecting to 127.0.0.1:{server.port}"
        assert isinstance(stopped.error, ConnectionRefusedError)
        if tries == 3:
            server = Server(server.port)
        run.clock.wait_for_waiters()
        run.clock.advance(2000)
    connection = server.accept()
    connection.sendall(b"there\n")
    assert run.wait(1) == ["there"]
    connection.close()
    server.close()


def test_a_converter_that_raises_means_to_connect_again(server: Server, runs: Callable[..., Run]) -> None:
    def numbers(file: BinaryIO) -> Iterator[int]:
        return (int(line) for line in lines_of(file))

    run = runs(server.port, numbers)
    connection = server.accept()
    connection.sendall(b"1\nx\n2\n")
    stopped = run.wait_stopped()[0]
    assert stopped.message.endswith("Error receiving data") and isinstance(stopped.error, ValueError)
    assert run.stored == [1]
    connection.close()


def test_a_converter_of_the_users_reads_the_connection_as_a_file(server: Server, runs: Callable[..., Run]) -> None:
    def pairs(file: BinaryIO) -> Iterator[bytes]:
        while pair := file.read(2):
            yield pair

    run = runs(server.port, pairs)
    connection = server.accept()
    connection.sendall(b"aabbc")
    connection.close()
    assert run.wait(3) == [b"aa", b"bb", b"c"]


def test_a_stop_closes_the_connection_and_nothing_connects_again(
    server: Server, runs: Callable[..., Run], caplog: pytest.LogCaptureFixture
) -> None:
    run = runs(server.port)
    connection = server.accept()
    connection.sendall(b"one\n")
    run.wait(1)
    with caplog.at_level(logging.INFO):
        assert run.supervisor.stop(PATIENCE)
        assert connection.recv(1) == b""
    connection.close()
    heard = [record for record in caplog.records if record.name.endswith("socket_receiver")]
    assert any("Closed socket" in record.getMessage() for record in heard)
    assert [record.getMessage() for record in heard if record.levelno > logging.INFO] == []
    assert len(run.news) == 2


def test_it_can_be_stored_with_a_graph(server: Server, runs: Callable[..., Run]) -> None:
    run = runs(server.port)
    server.accept().close()
    run.wait_stopped()
    again = loads(dumps(run.receiver))
    assert (again._host, again._port, again._connection) == ("127.0.0.1", server.port, None)


class Chunks:
    """A file that gives one chunk a read."""

    def __init__(self, *chunks: bytes) -> None:
        self.chunks = list(chunks)

    def read(self, _count: int) -> bytes:
        return self.chunks.pop(0) if self.chunks else b""


def test_lines_end_with_lf_cr_or_crlf_wherever_the_network_cuts_them() -> None:
    data = "a\nb\r\nc\rd\n\n\r\nü€\n\r\rlast".encode()
    expected = ["a", "b", "c", "d", "", "", "ü€", "", "", "last"]
    assert list(lines_of(io.BytesIO(data))) == expected
    for size in (1, 2, 3, 5):
        chunks = [data[at : at + size] for at in range(0, len(data), size)]
        found: Any = lines_of(Chunks(*chunks))  # pyright: ignore
        assert list(found) == expected, f"chunks of {size}"


def test_a_line_is_given_as_soon_as_its_end_is_there() -> None:
    given = lines_of(Chunks(b"a\r", b"\nb", b"\xff\n"))  # pyright: ignore
    assert next(given) == "a" and next(given) == "b\ufffd" and list(given) == []
