"""The proxy meets one request and its answer, and forwards all others as they are. Before a server that answers each request."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from integration.kafka_proxy import Action, Api, KafkaProxy, Rule

S = 10.0


class AnsweringServer:
    """Answers each request with its correlation id. `got`: the correlation ids of all requests, in order."""

    def __init__(self) -> None:
        self.got: list[int] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client:
            while head := client.recv(12, socket.MSG_WAITALL):
                (correlation,) = struct.unpack(">8xi", head)
                self.got.append(correlation)
                client.sendall(struct.pack(">ii", 4, correlation))

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


class FramingClient:
    """Sends requests that have a header only."""

    def __init__(self, proxy: KafkaProxy) -> None:
        self.socket = socket.create_connection(("127.0.0.1", proxy.port), S)

    def send(self, api: Api, correlation: int) -> None:
        self.socket.sendall(struct.pack(">ihhi", 8, api, 0, correlation))

    def answer(self) -> int | None:
        """The correlation id of the next answer; None if the connection was dropped."""
        try:
            found = self.socket.recv(8, socket.MSG_WAITALL)
        except ConnectionError:
            return None
        return struct.unpack(">4xi", found)[0] if found else None


@pytest.fixture
def server() -> Iterator[AnsweringServer]:
    made = AnsweringServer()
    yield made
    made.close()


@pytest.fixture
def proxy(server: AnsweringServer) -> Iterator[KafkaProxy]:
    with KafkaProxy(server.port) as made:
        yield made


def test_requests_are_forwarded_and_counted_by_api(proxy: KafkaProxy) -> None:
    client = FramingClient(proxy)
    for correlation, api in enumerate((Api.PRODUCE, Api.END_TXN, Api.PRODUCE)):
        client.send(api, correlation)
        assert client.answer() == correlation
    assert (proxy.requests(Api.PRODUCE), proxy.requests(Api.END_TXN), proxy.requests(Api.INIT_PRODUCER_ID)) == (2, 1, 0)


def test_a_request_is_held_until_it_is_let_go(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule, client = proxy.add(Rule(Api.PRODUCE, Action.HOLD_REQUEST, nth=2)), FramingClient(proxy)
    client.send(Api.PRODUCE, 1)
    client.send(Api.PRODUCE, 2)
    assert client.answer() == 1 and rule.fired.wait(S)
    assert server.got == [1] and not rule.answered.is_set()
    rule.release()
    assert client.answer() == 2 and rule.answered.is_set()


def test_a_held_request_whose_client_is_gone_reaches_the_broker(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule, client = proxy.add(Rule(Api.END_TXN, Action.HOLD_REQUEST)), FramingClient(proxy)
    client.send(Api.END_TXN, 1)
    assert rule.fired.wait(S)
    client.socket.close()
    rule.release()
    assert rule.answered.wait(S) and server.got == [1]


def test_a_request_is_dropped_with_its_connection_and_never_reaches_the_broker(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule, client = proxy.add(Rule(Api.END_TXN, Action.DROP_REQUEST)), FramingClient(proxy)
    client.send(Api.END_TXN, 1)
    assert client.answer() is None and rule.fired.wait(S)
    client = FramingClient(proxy)
    client.send(Api.END_TXN, 2)
    assert client.answer() == 2 and server.got == [2]


def test_an_answer_is_dropped_once_the_broker_has_done_the_request(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule, client = proxy.add(Rule(Api.END_TXN, Action.DROP_ANSWER)), FramingClient(proxy)
    client.send(Api.END_TXN, 1)
    assert client.answer() is None and rule.fired.wait(S)
    assert rule.answered.is_set() and server.got == [1]


def test_an_answer_is_held_until_it_is_let_go(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule, client = proxy.add(Rule(Api.PRODUCE, Action.HOLD_ANSWER)), FramingClient(proxy)
    client.send(Api.PRODUCE, 1)
    assert rule.fired.wait(S) and rule.answered.is_set() and server.got == [1]
    client.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        client.socket.recv(8)
    client.socket.settimeout(S)
    rule.release()
    assert client.answer() == 1


def test_a_proxy_that_is_cut_refuses_its_clients_until_it_is_mended(server: AnsweringServer, proxy: KafkaProxy) -> None:
    rule = proxy.add(Rule(Api.PRODUCE, Action.DROP_ANSWER, cuts=True))
    client, idle = FramingClient(proxy), FramingClient(proxy)
    idle.send(Api.INIT_PRODUCER_ID, 1)
    assert idle.answer() == 1
    client.send(Api.PRODUCE, 2)
    assert rule.fired.wait(S) and idle.answer() is None
    assert FramingClient(proxy).answer() is None
    proxy.mend()
    client = FramingClient(proxy)
    client.send(Api.PRODUCE, 3)
    assert client.answer() == 3 and server.got == [1, 2, 3]
