"""Messages and blocks between processes that share a token."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.block_store import BlockStore
from kstream.rpc import RpcClient, RpcCredentials, RpcServer
from kstream.rpc.token import header

CREDENTIALS = RpcCredentials.new()


@contextmanager
def serving(
    handlers: Mapping[str, Callable[[bytes], bytes]] | None = None, store: BlockStore | None = None, **options: int
) -> Generator[RpcServer]:
    server = RpcServer(CREDENTIALS, handlers or {"echo": lambda body: body}, store, **options)
    yield server
    server.close()


def client_of(server: RpcServer, credentials: RpcCredentials = CREDENTIALS) -> RpcClient:
    return RpcClient("127.0.0.1", server.port, credentials, 30)


@pytest.fixture
def store(tmp_path: object) -> BlockStore:
    return BlockStore(1_000_000, tmp_path)  # pyright: ignore[reportArgumentType]


def test_a_message_is_answered_by_its_handler() -> None:
    with serving({"twice": lambda body: body * 2, "empty": lambda _: b""}) as server:
        client = client_of(server)
        assert client.ask("twice", b"ab") == b"abab" and client.ask("empty") == b""


def test_a_block_comes_back_chunk_by_chunk(store: BlockStore) -> None:
    with serving(store=store) as server:
        client = client_of(server)
        client.put("input-0-x-1", [b"one", b"", b"three"], "memory")
        client.put("input-0-x-2", [], "memory")
        assert client.get("input-0-x-1") == [b"one", b"", b"three"] and client.get("input-0-x-2") == []


def test_what_is_not_there_is_a_key_error(store: BlockStore) -> None:
    def missing(_body: bytes) -> bytes:
        raise KeyError("nobody")

    with serving({"who": missing}, store) as server:
        for ask in (lambda: client_of(server).get("input-0-x-9"), lambda: client_of(server).ask("who")):
            with pytest.raises(KeyError, match=r"input-0-x-9|nobody"):
                ask()


def test_a_proxy_of_the_machine_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        for name in ("http_proxy", "grpc_proxy", "https_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        monkeypatch.delenv("no_proxy", raising=False)
        with serving() as server:
            assert client_of(server).ask("echo", b"x") == b"x"


def test_an_address_of_ipv6_can_be_called() -> None:
    with pytest.raises(RpcUnreachableError, match="::1"):
        RpcClient("::1", 1, CREDENTIALS, 10).ask("echo")


@pytest.mark.parametrize(
    "token", ["", "wrong", CREDENTIALS.token[:-1], CREDENTIALS.token + "0"], ids=["none", "another", "shorter", "longer"]
)
def test_without_the_token_nothing_is_said_done_or_kept_and_it_is_counted(store: BlockStore, token: str) -> None:
    heard: list[bytes] = []
    with serving({"hear": lambda body: (heard.append(body), b"")[1]}, store) as server:
        client_of(server).put("mine", [b"secret"], "memory")
        stranger = client_of(server, RpcCredentials(token))
        for ask in (lambda: stranger.ask("hear"), lambda: stranger.get("mine"), lambda: stranger.put("his", [b"x"], "memory")):
            with pytest.raises(RpcRefusedError, match="another application"):
                ask()
        assert heard == [] and store.usage()["blocks"] == 1
        assert server.refused >= 3


def test_a_call_with_no_token_at_all_or_two_is_refused() -> None:
    with serving() as server:
        connection = fl.connect(f"grpc://127.0.0.1:{server.port}")
        for headers in ([], [header(CREDENTIALS.token), header("other")]):
            with pytest.raises(fl.FlightUnauthenticatedError):
                list(connection.do_action(fl.Action("echo", b""), fl.FlightCallOptions(headers=headers)))
        assert server.refused == 2
        connection.close()


def test_a_message_above_the_limit_is_refused_and_the_next_one_is_answered() -> None:
    with serving(most_message=1000) as server:
        client = client_of(server)
        with pytest.raises(RpcError, match="1001 bytes is refused: it can have 1000"):
            client.ask("echo", bytes(1001))
        assert client.ask("echo", bytes(1000)) == bytes(1000)


def test_a_block_above_the_limit_is_refused_as_soon_as_so_much_has_come(store: BlockStore) -> None:
    with serving(store=store, most_block=1000) as server:
        client = client_of(server)
        with pytest.raises(RpcError, match="more than the 1000 bytes"):
            client.put("big", [bytes(400)] * 1000, "memory")
        assert store.usage()["blocks"] == 0
        client.put("small", [bytes(400)], "memory")


def test_what_a_handler_raises_is_told_to_the_caller_in_a_line() -> None:
    def fails(_body: bytes) -> bytes:
        raise ValueError("no such stream")

    with serving({"fails": fails}) as server:
        with pytest.raises(RpcError) as told:
            client_of(server).ask("fails")
        assert str(told.value) == f"127.0.0.1:{server.port} could not do 'fails': no such stream"
        with pytest.raises(RpcError, match="no message is called 'other' here; there are fails"):
            client_of(server).ask("other")
        with pytest.raises(RpcError, match="no blocks are kept here"):
            client_of(server).put("x", [b""])


def test_a_server_that_has_gone_is_an_error_that_may_pass_and_its_successor_is_found() -> None:
    with serving() as server:
        port = server.port
        client = client_of(server)
        client.ask("echo")
    with pytest.raises(RpcUnreachableError, match="did not answer 'echo'") as told:
        client.ask("echo")
    assert told.value.retriable
    with serving(port=port):
        assert client.ask("echo", b"again") == b"again"


def test_an_address_that_cannot_be_had_is_told_with_the_address() -> None:
    with pytest.raises(RpcError, match=r"cannot listen on 192\.0\.2\.1:0"):
        RpcServer(CREDENTIALS, {}, host="192.0.2.1")


def test_many_callers_are_answered_at_once() -> None:
    """A handler that blocks holds up nobody else."""
    meeting = threading.Barrier(8, timeout=60)
    with serving({"meet": lambda body: (meeting.wait(), body)[1]}) as server:
        client = client_of(server)
        answers: list[bytes] = []
        threads = [threading.Thread(target=lambda n=n: answers.append(client.ask("meet", bytes([n])))) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(answers) == [bytes([n]) for n in range(8)]


def test_a_stream_of_another_shape_is_an_error_of_its_sender(store: BlockStore) -> None:
    with serving(store=store) as server:
        connection = fl.connect(f"grpc://127.0.0.1:{server.port}")
        options = fl.FlightCallOptions(headers=[header(CREDENTIALS.token)])
        with pytest.raises((pa.ArrowException, fl.FlightError)):
            writer, _ = connection.do_put(fl.FlightDescriptor.for_path("x", "memory"), pa.schema([("n", pa.int64())]), options)
            with writer:
                writer.write_batch(pa.record_batch([pa.array([1])], names=["n"]))
        assert store.usage()["blocks"] == 0
        connection.close()


def test_a_server_that_ends_in_the_middle_of_a_call_has_not_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """gRPC calls that cancelled; a block is told again then, and a store started again."""

    class Ending:
        def do_action(self, *_: object) -> Iterator[object]:
            raise fl.FlightCancelledError("CANCELLED")

    client = RpcClient("127.0.0.1", 1, RpcCredentials("t"))
    monkeypatch.setattr(client, "_connection", Ending())
    with pytest.raises(RpcUnreachableError, match="did not answer 'usage': CANCELLED"):
        client.ask("usage")
    assert client._connection is None, "the next call connects again"
