"""The process of an executor's block store: `python -m kstream.receiver.block_store_process`, which reads its spec from its input.

A Python worker of Spark dies with its task, but the blocks it received must live as long as the executor. So the store is a process of
its own, in a session of its own. The first worker that asks starts it (`find_or_start`). The store ends when the executor's JVM ends, or
when its driver sends END; nothing else ends it.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from kstream.errors import KStreamError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.block_store import END, REMOVE, USAGE, BlockStore, StoreAddress
from kstream.receiver.executor_process import command_of, wait_for_death
from kstream.rpc import RpcClient, RpcCredentials, RpcServer

_START_TIMEOUT_S = 60.0
_ANSWER_TIMEOUT_S = 20.0
_POLL_S = 0.02
_MODULE = "kstream.receiver.block_store_process"


@dataclass(frozen=True, slots=True)
class BlockStoreSpec:
    """The specification of a store's process."""

    jvm: int
    """The pid of the executor's JVM. The store lives as long as this process."""
    credentials: RpcCredentials
    host: str
    memory_bytes: int
    most_block_bytes: int
    folder: str
    """The store's own folder: for blocks beyond `memory_bytes`, and for the file `announced`."""

    @property
    def announced(self) -> Path:
        """The file with the store's pid and port."""
        return Path(self.folder) / "store.json"


# -- in a worker


def find_or_start(spec: BlockStoreSpec) -> StoreAddress:
    """Find the store of this executor, or start it. Blocks; the first start takes a second or so.

    Any worker of the executor may call this. Of many calls at once, in any processes, one starts the store and the others wait. A store
    that has died is replaced; its blocks are lost.

    Raises:
        RpcUnreachableError: the store lives but does not answer.
        KStreamError: the store did not start. The message has the last line of the store's log.
    """
    folder = Path(spec.folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder.with_name(folder.name + ".lock")):
        found = _announced(spec)
        return found if found is not None else _started(spec)


def _announced(spec: BlockStoreSpec) -> StoreAddress | None:
    """Return the address of the running store; None if no store has started, or if it is dead. RpcUnreachableError: see `find_or_start`."""
    try:
        content = json.loads(spec.announced.read_text())
    except FileNotFoundError:
        return None
    client = RpcClient(spec.host, content["port"], spec.credentials, _ANSWER_TIMEOUT_S)
    try:
        client.ask(USAGE)
    except (RpcUnreachableError, RpcRefusedError) as e:
        if isinstance(e, RpcUnreachableError) and _MODULE in command_of(content["pid"]):
            raise  # the store lives and has blocks; the machine is busy
        spec.announced.unlink(missing_ok=True)  # the store is dead; another process may have its port by now
        return None
    finally:
        client.close()
    return StoreAddress(spec.host, content["port"], content["pid"])


def _started(spec: BlockStoreSpec) -> StoreAddress:
    """Start the store's process, and wait until the store answers. KStreamError if it does not."""
    command = [sys.executable, "-m", _MODULE]
    # Only this worker's path has the modules of --py-files: on a cluster `./kstream.zip`, relative to the folder of the executor, which the
    # store leaves. A new session keeps signals for the worker's group from the store.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(os.path.abspath(entry) for entry in sys.path if entry)}
    output = Path(spec.folder) / "store.log"
    with open(output, "wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=spec.folder
        )
    assert process.stdin is not None
    try:
        send(spec, process.stdin)
    except BrokenPipeError:  # the store has ended; its log has the reason
        pass
    end = time.monotonic() + _START_TIMEOUT_S
    while (found := _answering(spec)) is None:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            process.wait()
            raise KStreamError(
                f"the block store of this executor did not come up: {_last_line(output)}", command=command, status=process.returncode
            )
        time.sleep(_POLL_S)
    return found


def _answering(spec: BlockStoreSpec) -> StoreAddress | None:
    """Return the address of the store; None as long as it does not answer."""
    try:
        return _announced(spec)
    except RpcUnreachableError:
        return None


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else ["its executor is dead"]
    return lines[-1] if lines else "it said nothing"


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Wait for a lock that is shared among processes, and hold it. The system releases it if this process dies."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def send(spec: BlockStoreSpec, to: IO[bytes]) -> None:
    """Send the spec over the process's input. It has secrets, and every user of the machine can read a command line."""
    to.write(json.dumps(asdict(spec)).encode())
    to.close()


# -- in the store's process


def run(spec: BlockStoreSpec) -> None:
    """Run a store until its executor has died, or its driver has sent END. Then remove the store's folder. Blocks until then."""
    folder = Path(spec.folder)
    store = BlockStore(spec.memory_bytes, folder / "blocks")

    def remove(body: bytes) -> bytes:
        store.remove(json.loads(body))
        return b""

    ended, end_pipe = os.pipe()

    def end(_body: bytes) -> bytes:
        os.write(end_pipe, b".")
        return b""

    handlers = {REMOVE: remove, USAGE: lambda _: json.dumps(store.usage()).encode(), END: end}
    server = RpcServer(spec.credentials, handlers, store, host=spec.host, most_block=spec.most_block_bytes)
    try:
        _announce(spec, server.port)
        wait_for_death(spec.jvm, ended)
    finally:
        server.close()
        shutil.rmtree(folder, ignore_errors=True)


def _announce(spec: BlockStoreSpec, port: int) -> None:
    """Write the file `announced` in one step, because workers read it as soon as it exists."""
    fresh = spec.announced.with_suffix(".tmp")
    fresh.write_text(json.dumps({"pid": os.getpid(), "port": port}))
    fresh.replace(spec.announced)


def main() -> None:
    """Read a BlockStoreSpec from the standard input, and run the store."""
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=logging.WARNING)
    fields: dict[str, Any] = json.load(sys.stdin)
    credentials = RpcCredentials.of_json(fields.pop("credentials"))
    run(BlockStoreSpec(credentials=credentials, **fields))


if __name__ == "__main__":
    main()
