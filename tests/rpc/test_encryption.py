"""Calls that nobody on the way can read, answered by nobody but those who were given the key."""

from __future__ import annotations

import json
import socket
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path

import pytest

from kstream.errors import ConfigurationError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.block_store import BlockStore
from kstream.rpc import RpcClient, RpcCredentials, RpcServer

NOW = datetime(2026, 11, 22, tzinfo=timezone.utc)
ENCRYPTING = RpcCredentials.new_encrypting(NOW)
SECRET = b"what a receiver has received" * 100


class Wire:
    """A relay to a port, which keeps all that goes through it."""

    def __init__(self, port: int) -> None:
        self.seen = bytearray()
        self._to = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
                for source, sink in ((near, far), (far, near)):
                    threading.Thread(target=self._carry, args=(source, sink), daemon=True).start()

    def _carry(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                self.seen += data
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._server.close()


@contextmanager
def wire_of(credentials: RpcCredentials, folder: Path) -> Generator[Wire]:
    server = RpcServer(credentials, {"echo": lambda body: body}, BlockStore(1_000_000, folder))
    wire = Wire(server.port)
    yield wire
    wire.close()
    server.close()


@pytest.mark.parametrize(("credentials", "readable"), [(RpcCredentials.new(), True), (ENCRYPTING, False)], ids=["plain", "encrypting"])
def test_who_listens_on_the_way_reads_neither_blocks_nor_the_token(credentials: RpcCredentials, readable: bool, tmp_path: Path) -> None:
    with wire_of(credentials, tmp_path) as wire:
        client = RpcClient("127.0.0.1", wire.port, credentials)
        client.put("block", [SECRET], "memory")
        assert client.get("block") == [SECRET] and client.ask("echo", SECRET) == SECRET
        client.close()
        assert (SECRET in wire.seen) is readable
        assert credentials.token.encode() not in wire.seen, "both sides prove that they have the token, and do not send it"


def test_a_large_block_and_a_large_message_arrive_as_they_were_sent(tmp_path: Path) -> None:
    body = bytes(n % 251 for n in range(1000)) * 3000
    server = RpcServer(ENCRYPTING, {"echo": lambda sent: sent}, BlockStore(10_000_000, tmp_path))
    client = RpcClient("127.0.0.1", server.port, ENCRYPTING, 30)
    client.put("block", [body, b"", body], "memory")
    assert client.get("block") == [body, b"", body] and client.ask("echo", body) == body
    client.close()
    server.close()


OTHERS: dict[str, tuple[Callable[[], RpcCredentials], type[Exception]]] = {
    "another token": (lambda: RpcCredentials("x", ENCRYPTING.certificate, ENCRYPTING.key), RpcRefusedError),
    "another certificate": (lambda: RpcCredentials(ENCRYPTING.token, *certificate_and_key()), RpcRefusedError),
    "no encryption": (lambda: RpcCredentials(ENCRYPTING.token), RpcUnreachableError),
}


def certificate_and_key() -> tuple[str, str]:
    made = RpcCredentials.new_encrypting(NOW)
    return made.certificate, made.key


@pytest.mark.parametrize("who", OTHERS)
def test_a_stranger_is_not_answered_and_a_false_server_not_trusted(who: str, tmp_path: Path) -> None:
    make, refusal = OTHERS[who]
    with wire_of(ENCRYPTING, tmp_path) as wire:
        stranger = RpcClient("127.0.0.1", wire.port, make(), 10)
        with pytest.raises(refusal):
            stranger.ask("echo", SECRET)
        stranger.close()
        assert SECRET not in wire.seen


def test_a_false_server_does_not_get_the_token(tmp_path: Path) -> None:
    with wire_of(RpcCredentials.new_encrypting(NOW), tmp_path) as wire:
        client = RpcClient("127.0.0.1", wire.port, ENCRYPTING, 10)
        with pytest.raises(RpcRefusedError, match="refused 'echo': it belongs to another application, or to an earlier start of this one"):
            client.ask("echo")
        client.close()


def test_the_answer_to_the_call_that_ends_a_server_is_encrypted_too(tmp_path: Path) -> None:
    closing: list[threading.Thread] = []

    def end(_body: bytes) -> bytes:
        closing.append(threading.Thread(target=server.close))
        closing[0].start()
        while not server._closing:
            closing[0].join(0.001)
        closing[0].join(0.1)  # the connection is half shut by now
        return SECRET

    server = RpcServer(ENCRYPTING, {"end": end})
    wire = Wire(server.port)
    assert RpcClient("127.0.0.1", wire.port, ENCRYPTING, 60).ask("end") == SECRET
    closing[0].join(60)
    wire.close()
    assert SECRET not in wire.seen


def test_credentials_go_to_a_store_as_json_and_show_nothing_when_printed() -> None:
    assert RpcCredentials.of_json(json.loads(json.dumps(asdict(ENCRYPTING)))) == ENCRYPTING
    assert ENCRYPTING.token not in repr(ENCRYPTING) and "PRIVATE" not in repr(ENCRYPTING)


def test_without_the_package_the_user_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'kstream-spark\[tls\]'"):
        RpcCredentials.new_encrypting(NOW)
