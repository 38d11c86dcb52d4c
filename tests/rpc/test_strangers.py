"""Whoever does not have the token is refused before anything of his is read, and fills neither the memory nor the log."""

from __future__ import annotations

import logging
import resource
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.rpc import RpcClient, RpcCredentials, RpcServer
from kstream.rpc.server import Refusals
from kstream.rpc.wire import Wire, client_handshake
from kstream.testing import ManualClock

CREDENTIALS = RpcCredentials.new()
BODY = bytes(200_000_000)
AT_ONCE = 8
PATIENCE = 120.0

SERVER = """
import sys
from kstream.rpc import RpcCredentials, RpcServer
from tests.rpc.test_strangers import peak_mb
server = RpcServer(RpcCredentials(sys.stdin.readline().strip()), {"peak": lambda _: str(peak_mb()).encode()})
print(server.port, flush=True)
sys.stdin.read()
"""


def peak_mb() -> int:
    """The most resident memory that this process has had. Where there is no /proc, that of the process that started it counts, too."""
    with suppress(FileNotFoundError), open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) // 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024**2


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Of a server in a process of its own."""
    process = subprocess.Popen([sys.executable, "-c", SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(CREDENTIALS.token + "\n")
    process.stdin.flush()
    yield int(process.stdout.readline())
    process.stdin.close()
    process.wait(PATIENCE)


def ask_with_another_token(port: int) -> None:
    RpcClient("127.0.0.1", port, RpcCredentials("wrong"), PATIENCE).ask("peak", BODY)


def send_without_a_handshake(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(BODY)


def send_behind_half_a_handshake(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        connection.sendall(b"KSRP\x01")
        connection.sendall(BODY)


def send_though_refused(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), PATIENCE) as connection:
        with suppress(ConnectionError):
            client_handshake(Wire(connection), "wrong")
        connection.sendall(BODY)


def ask_too_much_with_the_token(port: int) -> None:
    RpcClient("127.0.0.1", port, CREDENTIALS, PATIENCE).ask("peak", BODY)


@pytest.mark.parametrize(
    "call",
    [ask_with_another_token, send_without_a_handshake, send_behind_half_a_handshake, send_though_refused, ask_too_much_with_the_token],
)
def test_eight_calls_of_200_mb_at_once_do_not_fill_the_memory_of_the_server(port: int, call: Callable[[int], None]) -> None:
    """Refused after the body had been received, they once took 3.8 GB."""
    client = RpcClient("127.0.0.1", port, CREDENTIALS, PATIENCE)
    before = int(client.ask("peak"))

    def attempt() -> None:
        with suppress(RpcError, OSError):
            call(port)

    strangers = [threading.Thread(target=attempt) for _ in range(AT_ONCE)]
    for stranger in strangers:
        stranger.start()
    for stranger in strangers:
        stranger.join(PATIENCE)
    assert before < 500 and int(client.ask("peak")) < before + 100


@pytest.fixture
def server() -> Iterator[RpcServer]:
    made = RpcServer(CREDENTIALS, {"echo": lambda body: body}, clock=ManualClock(0))
    yield made
    made.close()


def connected(server: RpcServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.port), PATIENCE)


def test_a_proof_that_somebody_recorded_is_of_no_use(server: RpcServer) -> None:
    sent: list[bytes] = []

    class Recorded(Wire):
        def __init__(self, connection: socket.socket) -> None:
            super().__init__(connection)
            self.socket = type("Recording", (), {"sendall": lambda _self, data: (sent.append(data), connection.sendall(data))})()

    with connected(server) as first:
        client_handshake(Recorded(first), CREDENTIALS.token)
    with connected(server) as second:
        for data in sent:
            second.sendall(data)
        answer = Wire(second).read_exactly(16 + 32)
        assert answer[16:] == bytes(32) and second.recv(1) == b"", "refused and closed"
    assert server.refused == 1


def test_a_server_that_cannot_prove_the_token_is_not_told_anything(server: RpcServer) -> None:
    """Another process may have the port by now."""
    seen = bytearray()
    with socket.create_server(("127.0.0.1", 0)) as false_server:

        def serve() -> None:
            connection, _ = false_server.accept()
            with connection:
                wire = Wire(connection)
                seen.extend(wire.read_exactly(5 + 16))
                connection.sendall(bytes(16))
                seen.extend(wire.read_exactly(32))
                connection.sendall(b"y" * 32)
                seen.extend(connection.recv(1000))

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(RpcRefusedError, match="belongs to another application"):
            RpcClient("127.0.0.1", false_server.getsockname()[1], CREDENTIALS, PATIENCE).ask("echo", b"a secret")
        serving.join(PATIENCE)
    assert len(seen) == 5 + 16 + 32 and CREDENTIALS.token.encode() not in seen


def test_connections_that_prove_nothing_are_bounded_and_hold_up_nobody(server: RpcServer) -> None:
    held = [connected(server) for _ in range(300)]
    try:
        assert RpcClient("127.0.0.1", server.port, CREDENTIALS, PATIENCE).ask("echo", b"x") == b"x"
        assert held[0].recv(1) == b"", "the oldest has been closed"
        assert len(server._unauthenticated) <= 257
    finally:
        for connection in held:
            connection.close()


def test_who_hangs_up_without_a_word_is_not_counted(server: RpcServer) -> None:
    connected(server).close()
    with pytest.raises(RpcRefusedError):
        RpcClient("127.0.0.1", server.port, RpcCredentials("wrong"), PATIENCE).ask("echo")
    assert server.refused == 1


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    said = [record.getMessage().split(":")[0] if "2001" not in record.getMessage() else record.getMessage() for record in caplog.records]
    caplog.clear()
    return said


def test_refused_calls_are_logged_once_a_minute_for_each_address(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(5000)
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING, "kstream.rpc.server"):
        for _ in range(100):
            refusals.add("10.0.0.1", "why")
        refusals.add("10.0.0.2", "why")
        assert lines(caplog) == ["RpcServer refused 1 connections from 10.0.0.1", "RpcServer refused 1 connections from 10.0.0.2"]
        clock.advance(59_999)
        refusals.add("10.0.0.1", "why")
        assert lines(caplog) == []
        clock.advance(1)
        refusals.add("10.0.0.1", "why")
        assert lines(caplog) == ["RpcServer refused 101 connections from 10.0.0.1"]
        refusals.add("10.0.0.1", "why")
        assert lines(caplog) == [] and refusals.count == 104


def test_a_stranger_with_many_addresses_fills_neither_the_log_nor_the_memory(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock(0)
    refusals = Refusals(clock)
    with caplog.at_level(logging.WARNING, "kstream.rpc.server"):
        for number in range(5000):
            refusals.add(f"2001:db8::{number:x}", "why")
        assert len(lines(caplog)) == 1001 and len(refusals._by_address) == 1001
        clock.advance(60_000)
        refusals.add("10.0.0.9", "why")
        assert lines(caplog) == ["RpcServer refused 1 connections from 10.0.0.9"] and len(refusals._by_address) == 1


def test_after_the_end_of_a_server_a_call_says_that_nobody_answers(server: RpcServer) -> None:
    client = RpcClient("127.0.0.1", server.port, CREDENTIALS, PATIENCE)
    client.ask("echo")
    server.close()
    server.close()
    with pytest.raises(RpcUnreachableError):
        client.ask("echo")
