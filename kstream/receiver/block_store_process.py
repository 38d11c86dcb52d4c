"""The process that holds an executor's received blocks: `python -m kstream.receiver.block_store_process`, told the rest on its input.

A Python worker of Spark dies with its task; what it received is to live as long as the executor. So the store is a process of its own,
started by a worker, in a session of its own, and it ends when the executor's JVM does, or when its driver says so: nothing else ends it.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any, Final

from kstream.receiver.block_store import BlockStore
from kstream.receiver.executor_process import wait_for_death
from kstream.rpc import RpcClient, RpcCredentials, RpcServer

logger = logging.getLogger("kstream.block_store")
END: Final = "end"
"""The message by which a driver that stops ends its stores: the executors may live on."""
_REMOVE: Final = "remove"


@dataclass(frozen=True, slots=True)
class Order:
    """What a store is to be. `jvm`: the pid it lives as long as; `folder`: its own, for blocks beyond `memory_bytes` and for `announced`,
    the file in which it says where it listens."""

    jvm: int
    credentials: RpcCredentials
    host: str
    memory_bytes: int
    most_block_bytes: int
    folder: str

    @property
    def announced(self) -> Path:
        return Path(self.folder) / "store.json"


def run(order: Order) -> None:
    """Returns when the executor has died, or the driver needs the store no more, and all is cleared away."""
    folder = Path(order.folder)
    store = BlockStore(order.memory_bytes, folder / "blocks")

    def remove(body: bytes) -> bytes:
        store.remove(json.loads(body))
        return b""

    not_needed, tell = os.pipe()

    def end(_body: bytes) -> bytes:
        os.write(tell, b".")
        return b""

    handlers = {_REMOVE: remove, "usage": lambda _: json.dumps(store.usage()).encode(), END: end}
    server = RpcServer(order.credentials, handlers, store, host=order.host, most_block=order.most_block_bytes)
    try:
        _announce(order, server.port)
        wait_for_death(order.jvm, not_needed)
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def remove_blocks(store: RpcClient, names: Iterable[str]) -> None:
    """From another process; those that are there. RpcError."""
    store.ask(_REMOVE, json.dumps(list(names)).encode())


def _announce(order: Order, port: int) -> None:
    """Whole or not at all: others read it as soon as it is there."""
    fresh = order.announced.with_suffix(".tmp")
    fresh.write_text(json.dumps({"pid": os.getpid(), "port": port}))
    fresh.replace(order.announced)


def send(order: Order, to: IO[bytes]) -> None:
    """Over the process's input: a command line can be read by everybody on the machine."""
    to.write(json.dumps(asdict(order)).encode())
    to.close()


def main() -> None:
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    said: dict[str, Any] = json.load(sys.stdin)
    credentials = RpcCredentials.of_json(said.pop("credentials"))
    run(Order(credentials=credentials, **said))


if __name__ == "__main__":
    main()
