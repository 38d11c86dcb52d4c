"""RpcServer: the port of a process, for those who have its token."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import pyarrow as pa
import pyarrow.flight as fl

from kstream.errors import RpcError
from kstream.rpc.credentials import RpcCredentials
from kstream.rpc.token import TokenGate

logger = logging.getLogger(__name__)

Handler: TypeAlias = Callable[[bytes], bytes]
"""Answers a message. May block: each call has a thread of its own. What it raises is told to the caller; KeyError stays a KeyError."""

MOST_MESSAGE_BYTES = 16 * 1024 * 1024
SCHEMA = pa.schema([pa.field("chunk", pa.binary(), nullable=False)])


class Blocks(Protocol):
    """Where blocks that are put go to, and come from. Called by many threads."""

    def put(self, name: str, chunks: Sequence[bytes], how: str) -> None:
        """`how` is what the caller of `RpcClient.put` said."""
        ...

    def get(self, name: str) -> Sequence[bytes]:
        """KeyError if it is not there."""
        ...


class RpcServer:
    """Listens from its making until `close`. `host` is the address to bind, `port` 0 lets the system choose.

    `handlers`: what is done with messages, by their names. `blocks`: None where no blocks are kept. A message above `most_message` bytes
    or a block above `most_block` is refused; a block is so as soon as that much has come. RpcError if the address cannot be had.
    """

    def __init__(
        self,
        credentials: RpcCredentials,
        handlers: Mapping[str, Handler],
        blocks: Blocks | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        most_message: int = MOST_MESSAGE_BYTES,
        most_block: int = 512 * 1024 * 1024,
    ) -> None:
        self._gate = TokenGate(credentials.token)
        location = f"{'grpc+tls' if credentials.encrypted else 'grpc'}://{bracketed(host)}:{port}"
        pairs = [(credentials.certificate, credentials.key)] if credentials.encrypted else None
        try:
            self._flight = _Flight(location, pairs, self._gate, handlers, blocks, most_message, most_block)
        except pa.ArrowException as e:
            place = f"{host}:{port}"
            raise RpcError(f"cannot listen on {place}: is it an address of this machine, and the port free? ({e})", place=place) from e

    @property
    def port(self) -> int:
        return int(self._flight.port)

    @property
    def refused(self) -> int:
        """Calls without the token."""
        return self._gate.refused

    def answer(self, handlers: Mapping[str, Handler]) -> None:
        """Further messages, from now on."""
        self._flight.handlers.update(handlers)

    def close(self) -> None:
        """Ends calls that are under way, and returns when the port is free. Idempotent."""
        self._flight.shutdown()
        self._flight.wait()


class _Flight(fl.FlightServerBase):  # pyright: ignore[reportUntypedBaseClass] – pyarrow says nothing of its types
    def __init__(
        self, location: str, pairs: list[tuple[str, str]] | None, gate: TokenGate, handlers: Mapping[str, Handler], blocks: Blocks | None,
        most_message: int, most_block: int,
    ) -> None:  # fmt: skip
        self.handlers = dict(handlers)
        self._blocks = blocks
        self._most_message = most_message
        self._most_block = most_block
        super().__init__(location, middleware={"token": gate}, tls_certificates=pairs)

    def do_action(self, context: Any, action: Any) -> Iterator[Any]:
        handler = self.handlers.get(action.type)
        if handler is None:
            raise ValueError(f"no message is called {action.type!r} here; there are {', '.join(sorted(self.handlers))}")
        if action.body.size > self._most_message:
            raise ValueError(f"a message {action.type} of {action.body.size} bytes is refused: it can have {self._most_message}")
        return iter([fl.Result(pa.py_buffer(handler(action.body.to_pybytes())))])

    def do_put(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        blocks, (name, how) = self._kept(), (part.decode() for part in descriptor.path)
        chunks: list[bytes] = []
        size = 0
        for part in reader:
            size += part.data.nbytes
            if size > self._most_block:
                raise ValueError(f"block {name} is refused: it has more than the {self._most_block} bytes that a block can have")
            chunks.extend(part.data.column(0).to_pylist())
        blocks.put(name, chunks, how)

    def do_get(self, context: Any, ticket: Any) -> Any:
        chunks = self._kept().get(ticket.ticket.decode())
        return fl.GeneratorStream(SCHEMA, (batch_of(chunk) for chunk in chunks))

    def _kept(self) -> Blocks:
        if self._blocks is None:
            raise ValueError("no blocks are kept here")
        return self._blocks


def batch_of(chunk: bytes) -> Any:
    """One chunk on the wire."""
    return pa.record_batch([pa.array([chunk], pa.binary())], schema=SCHEMA)


def bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host
