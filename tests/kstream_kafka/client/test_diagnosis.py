"""What a look at a listener tells: with plain sockets of our own that speak as Kafka does, or hang up."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from kstream_kafka.client.connection_watch import diagnose, host_and_port


@contextmanager
def listener(serve: Callable[[socket.socket], object]) -> Iterator[str]:
    """Address of a server on loopback that serves each connection by `serve`, then closes it."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with connection:
                try:
                    serve(connection)
                except OSError:
                    pass

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.getsockname()[1]}"
    finally:
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def kafka(*mechanisms: str) -> Callable[[socket.socket], object]:
    """Answers a SaslHandshakeRequest, and hangs up on anything else, as a plain listener of Kafka does."""

    def serve(connection: socket.socket) -> None:
        size = struct.unpack(">i", connection.recv(4))[0]
        if not 0 < size < 1000:
            return
        request = connection.recv(size)
        names = b"".join(struct.pack(">h", len(m)) + m.encode() for m in mechanisms)
        answer = request[4:8] + struct.pack(">hi", 33 if mechanisms else 34, len(mechanisms)) + names
        connection.sendall(struct.pack(">i", len(answer)) + answer)

    return serve


def hang_up(connection: socket.socket) -> None:
    connection.recv(1)


def test_a_plain_client_at_a_listener_with_sasl():
    with listener(kafka("PLAIN", "SCRAM-SHA-512")) as address:
        diagnosis = diagnose(address, {})
    assert diagnosis is not None and diagnosis.kind == "authentication"
    assert "asks for SASL (PLAIN, SCRAM-SHA-512)" in diagnosis.reason and "security.protocol=SASL_PLAINTEXT" in diagnosis.hint


@pytest.mark.parametrize(("protocol", "fitting"), [("SSL", "=PLAINTEXT"), ("sasl_ssl", "=SASL_PLAINTEXT")])
def test_a_tls_client_at_a_plain_listener(protocol: str, fitting: str):
    with listener(kafka()) as address:
        diagnosis = diagnose(address, {"security.protocol": protocol})
    assert diagnosis is not None and diagnosis.kind == "tls" and "plain text" in diagnosis.reason and fitting in diagnosis.hint


def test_a_listener_as_the_client_expects_it_is_no_finding():
    with listener(kafka()) as address:
        assert diagnose(address, {"security.protocol": "PLAINTEXT"}) is None


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SASL_PLAINTEXT", "SSL", "SASL_SSL"])
def test_what_hangs_up_on_everybody_is_no_finding(protocol: str):
    with listener(hang_up) as address:
        assert diagnose(address, {"security.protocol": protocol}) is None


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_nobody_there_is_no_finding(protocol: str):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    assert diagnose(f"127.0.0.1:{port}", {"security.protocol": protocol}) is None


@pytest.mark.parametrize(
    ("address", "parts"),
    [
        ("h:1", ("h", 1)),
        ("SASL_SSL://h:1", ("h", 1)),
        ("h", ("h", 9092)),
        ("[::1]:7", ("::1", 7)),
        ("[::1]", ("::1", 9092)),
        (" h:1/x", ("h", 1)),
    ],
)  # fmt: skip
def test_addresses_as_bootstrap_servers_has_them(address: str, parts: tuple[str, int]):
    assert host_and_port(address) == parts
