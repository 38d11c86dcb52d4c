"""Messages and blocks between processes that share a token."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.block_store import BlockStore
from kstream.rpc import RpcClient, RpcCredentials, RpcServer
from kstream.rpc.wire import EAGER_BYTES, MOST_PARTS, MessageKind, Wire, client_handshake

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


def test_a_message_above_the_limit_is_refused_and_the_next_one_is_answered() -> None:
    with serving(most_message=1000) as server:
        client = client_of(server)
        with pytest.raises(RpcError, match="1001 bytes is refused: it can have 1000"):
            client.ask("echo", bytes(1001))
        assert client.ask("echo", bytes(1000)) == bytes(1000)


@pytest.mark.parametrize("size", [0, 1, EAGER_BYTES, EAGER_BYTES + 1, 3_000_000])
def test_messages_and_blocks_of_all_sizes_arrive_as_they_were_sent(store: BlockStore, size: int) -> None:
    """Small ones are sent with their head, large ones after the server's go-ahead."""
    body = bytes(n % 251 for n in range(min(size, 1000))) * (size // 1000 or 1)
    with serving(store=BlockStore(100_000_000, store._folder), most_message=10_000_000) as server:
        client = client_of(server)
        for _ in range(2):  # by one connection
            assert client.ask("echo", body) == body
        client.put("block", [body, b"", body], "memory")
        assert client.get("block") == [body, b"", body]
        assert len(client._idle) == 1


def test_a_large_message_that_is_refused_leaves_the_connection_as_it_was() -> None:
    with serving(most_message=EAGER_BYTES) as server:
        client = client_of(server)
        for _ in range(2):
            with pytest.raises(RpcError, match="a message echo of 50000000 bytes is refused: it can have 65536"):
                client.ask("echo", bytes(50_000_000))
            assert client.ask("echo", b"small") == b"small"
        assert len(client._idle) == 1


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


@pytest.mark.parametrize("error", [ValueError("no \udcff"), KeyError("\udcff")], ids=["failed", "not there"])
def test_an_error_whose_text_cannot_be_encoded_is_answered_with_question_marks(error: Exception) -> None:
    """Python has such texts from file names and arguments that are no UTF-8."""

    def fails(_body: bytes) -> bytes:
        raise error

    with serving({"fails": fails, "echo": lambda body: body}) as server:
        client = client_of(server)
        with pytest.raises((RpcError, KeyError), match=r"\?"):
            client.ask("fails")
        assert client.ask("echo", b"x") == b"x" and len(client._idle) == 1


def test_an_error_without_a_readable_text_is_answered_with_its_class() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ValueError

    def fails(_body: bytes) -> bytes:
        raise Mute

    with serving({"fails": fails}) as server, pytest.raises(RpcError, match="could not do 'fails': Mute"):
        client_of(server).ask("fails")


class OddBlocks:
    """Blocks whose chunks are not what `Blocks` promises."""

    def __init__(self, chunks: Any) -> None:
        self._chunks = chunks

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None: ...

    def get(self, name: str) -> Sequence[bytes]:
        return self._chunks


@pytest.mark.parametrize("answer", [None, "text", "x" * (EAGER_BYTES + 1), 7], ids=["none", "text", "a large text", "a number"])
def test_an_answer_that_is_no_bytes_is_an_error_of_the_call_and_the_connection_goes_on(answer: Any) -> None:
    handlers: dict[str, Callable[[bytes], bytes]] = {"odd": lambda _: answer, "echo": lambda body: body}
    server = RpcServer(CREDENTIALS, handlers, OddBlocks([b"good", answer]))
    client = client_of(server)
    for ask in (lambda: client.ask("odd"), lambda: client.get("odd")):
        with pytest.raises(RpcError, match=rf"could not do .*odd.*: an answer is of bytes, not of {type(answer).__name__}"):
            ask()
    assert client.ask("echo", b"x") == b"x" and len(client._idle) == 1
    server.close()


def test_a_block_of_too_many_chunks_is_an_error_of_the_call() -> None:
    server = RpcServer(CREDENTIALS, {}, OddBlocks([b""] * (MOST_PARTS + 1)))
    with pytest.raises(RpcError, match="1048577 chunks are too many for one block; it can have 1048576"):
        client_of(server).get("many")
    server.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.get("b" * 65_536),
        lambda client: client.put("b", [], "l" * 65_536),
        lambda client: client.ask("ä" * 32_768),
    ],
    ids=["the id of a block", "a level", "a message in UTF-8"],
)
def test_a_name_that_is_too_long_for_a_frame_is_refused_before_a_byte_is_sent(call: Callable[[RpcClient], Any]) -> None:
    with serving() as server:
        client = client_of(server)
        with pytest.raises(ValueError, match="a name of 65536 bytes is too long for a frame; it can have 65535"):
            call(client)
        assert client.ask("echo", b"x") == b"x"


def test_a_reader_that_is_slow_but_never_silent_gets_everything() -> None:
    """The time-out is for the silence of the other side, not for all that is sent."""
    timeout_s = 1.0
    sender, reader = socket.socketpair()
    sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    sender.settimeout(timeout_s)
    body, errors = bytes(8_000_000), list[OSError]()

    def send() -> None:
        try:
            Wire(sender).send(MessageKind.DONE, [body])
        except OSError as e:
            errors.append(e)
        sender.close()

    sending = threading.Thread(target=send)
    sending.start()
    end, received, pause = time.monotonic() + 1.5 * timeout_s, 0, threading.Event()
    while data := reader.recv(1024 if time.monotonic() < end else 1 << 20):
        received += len(data)
        if time.monotonic() < end:
            pause.wait(timeout_s / 100)
    sending.join(60)
    reader.close()
    assert errors == [] and received > len(body)


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


MALFORMED: dict[str, bytes] = {
    "no kind of call": b"\xff" * 17,
    "an answer": bytes([MessageKind.DONE]) + bytes(16),
    "parts of another size than the head says": bytes([MessageKind.PUT, 0, 1, 0, 6, 0, 0, 0, 1])
    + bytes([0] * 7 + [9])
    + b"xmemory"
    + bytes(8),
    "too many parts": bytes([MessageKind.PUT, 0, 0, 0, 0]) + (MOST_PARTS + 1).to_bytes(4, "big") + bytes(8),
    "a name that is no text": bytes([MessageKind.ASK, 0, 1]) + bytes(14) + b"\xff",
    "half a head": bytes([MessageKind.ASK, 0]),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_bytes_that_are_no_call_end_their_connection_and_nothing_else(store: BlockStore, what: str) -> None:
    with serving(store=store) as server:
        client = client_of(server)
        client.ask("echo")
        with socket.create_connection(("127.0.0.1", server.port), 30) as connection:
            wire = Wire(connection)
            client_handshake(wire, CREDENTIALS.token)
            connection.sendall(MALFORMED[what])
            connection.shutdown(socket.SHUT_WR)
            assert connection.recv(1000) == b""
        assert client.ask("echo", b"x") == b"x" and store.usage()["blocks"] == 0 and server.refused == 0


def test_a_server_that_ends_in_the_middle_of_a_call_has_not_answered() -> None:
    """A block is told again then, and a store started again."""
    inside, go_on = threading.Event(), threading.Event()
    errors: list[Exception] = []

    def answer(body: bytes) -> bytes:
        inside.set()
        go_on.wait(60)
        return body

    server = RpcServer(CREDENTIALS, {"wait": answer})
    client = client_of(server)

    def call() -> None:
        try:
            client.ask("wait")
        except RpcUnreachableError as e:
            errors.append(e)

    calling = threading.Thread(target=call)
    calling.start()
    assert inside.wait(60)
    server.close()
    calling.join(60)
    go_on.set()
    assert len(errors) == 1 and "did not answer 'wait'" in str(errors[0]) and client._idle == []


def test_a_call_that_ends_its_server_is_still_answered() -> None:
    """As the driver ends block stores."""
    closing = list[threading.Thread]()

    def end(_body: bytes) -> bytes:
        closing.append(threading.Thread(target=server.close))
        closing[0].start()
        return b"yes"

    server = RpcServer(CREDENTIALS, {"end": end})
    assert client_of(server).ask("end") == b"yes"
    closing[0].join(60)
    with pytest.raises(RpcUnreachableError):
        client_of(server).ask("end")
