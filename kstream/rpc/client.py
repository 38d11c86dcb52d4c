"""RpcClient: messages and blocks to one RpcServer."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.flight as fl

from kstream.errors import RpcError, RpcRefusedError, RpcUnreachableError
from kstream.rpc.credentials import NAME, RpcCredentials
from kstream.rpc.server import SCHEMA, batch_of, bracketed
from kstream.rpc.token import header

_NO_PROXY = ("grpc.enable_http_proxy", 0)
"""gRPC would go to the machines of the cluster, and to this one, by the proxy of http_proxy."""


class RpcClient:
    """Thread-safe. Connects with the first call, and again after the server was away. Calls block, `timeout_s` seconds at most."""

    def __init__(self, host: str, port: int, credentials: RpcCredentials, timeout_s: float = 30.0) -> None:
        self.place = f"{host}:{port}"
        self._location = (fl.Location.for_grpc_tls if credentials.encrypted else fl.Location.for_grpc_tcp)(bracketed(host), port)
        self._trust = {"tls_root_certs": credentials.certificate, "override_hostname": NAME} if credentials.encrypted else {}
        self._options = fl.FlightCallOptions(timeout=timeout_s, headers=[header(credentials.token)])
        self._lock = threading.Lock()
        self._connection: Any = None

    def ask(self, what: str, body: bytes = b"") -> bytes:
        """The answer to a message. KeyError if its handler raised one; RpcRefusedError, RpcUnreachableError, RpcError."""
        with self._told(what) as flight:
            [answer] = list(flight.do_action(fl.Action(what, pa.py_buffer(body)), self._options))
            return answer.body.to_pybytes()

    def put(self, name: str, chunks: Sequence[bytes], how: str = "") -> None:
        """Returns when the server has kept the block; `how` is for it to understand. Errors as of `ask`."""
        with self._told(f"put {name}") as flight:
            writer, _ = flight.do_put(fl.FlightDescriptor.for_path(name, how), SCHEMA, self._options)
            with writer:
                for chunk in chunks:
                    writer.write_batch(batch_of(chunk))

    def get(self, name: str) -> list[bytes]:
        """The chunks of a block. KeyError if it is not there; else errors as of `ask`."""
        with self._told(f"get {name}") as flight:
            reader = flight.do_get(fl.Ticket(name.encode()), self._options)
            return [chunk for part in reader for chunk in part.data.column(0).to_pylist()]

    def close(self) -> None:
        """Idempotent; a later call connects again."""
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _flight(self) -> Any:
        with self._lock:
            if self._connection is None:
                self._connection = fl.connect(self._location, **self._trust, generic_options=[_NO_PROXY])
            return self._connection

    def _forget(self, connection: Any) -> None:
        """The next call connects again. Not closed: other threads' calls may be on their way by it."""
        with self._lock:
            if self._connection is connection:
                self._connection = None

    @contextmanager
    def _told(self, what: str) -> Generator[Any]:
        """The connection; what Flight raises, in our words."""
        flight = self._flight()
        try:
            yield flight
        except KeyError as e:
            raise KeyError(_first_line(e)) from None
        except fl.FlightUnauthenticatedError as e:
            raise RpcRefusedError(
                f"{self.place} refused {what!r}: it belongs to another application, or to an earlier start of this one", place=self.place
            ) from e
        except (fl.FlightUnavailableError, fl.FlightTimedOutError, fl.FlightCancelledError) as e:  # cancelled: by a server that ends
            self._forget(flight)
            raise RpcUnreachableError(f"{self.place} did not answer {what!r}: {_first_line(e)}", place=self.place) from e
        except (pa.ArrowException, fl.FlightError) as e:
            raise RpcError(f"{self.place} could not do {what!r}: {_first_line(e)}", place=self.place) from e


def _first_line(error: BaseException) -> str:
    """Without the traceback that Flight sends along."""
    return str(error).split(". Detail: ", 1)[0].strip().split("\n", 1)[0].strip("'")
