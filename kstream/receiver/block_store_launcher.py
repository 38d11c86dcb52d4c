"""The block store of this worker's executor: found, or started by the first worker that asks."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from kstream.errors import KStreamError, RpcRefusedError, RpcUnreachableError
from kstream.receiver.block_store_process import Order, send
from kstream.receiver.executor_process import command_of
from kstream.rpc import RpcClient

_PATIENCE_S = 60.0
_ANSWER_S = 20.0
_LOOK_S = 0.02
_MODULE = "kstream.receiver.block_store_process"


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the store of an executor listens. `pid` is that of its process."""

    host: str
    port: int
    pid: int


def find_or_start(order: Order) -> StoreAddress:
    """Any worker of the executor; of many at once one starts it, the others wait. Blocks, a second or so the first time.

    A store that has died is replaced; its blocks are gone. RpcUnreachableError if it lives and does not answer. KStreamError with the
    store's own words if it does not come up.
    """
    folder = Path(order.folder)
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with _locked(folder.with_name(folder.name + ".lock")):
        found = _announced(order)
        return found if found is not None else _started(order)


def _announced(order: Order) -> StoreAddress | None:
    try:
        said = json.loads(order.announced.read_text())
    except FileNotFoundError:
        return None
    client = RpcClient(order.host, said["port"], order.credentials, _ANSWER_S)
    try:
        client.ask("usage")
    except (RpcUnreachableError, RpcRefusedError) as e:
        if isinstance(e, RpcUnreachableError) and _MODULE in command_of(said["pid"]):
            raise  # it lives, and has blocks: the machine is busy
        order.announced.unlink(missing_ok=True)  # dead; its port may be another's by now
        return None
    finally:
        client.close()
    return StoreAddress(order.host, said["port"], said["pid"])


def _started(order: Order) -> StoreAddress:
    command = [sys.executable, "-m", _MODULE]
    # Modules of --py-files are on this worker's path alone. Signals for the worker's group are not for the store.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    words = Path(order.folder) / "store.log"
    with open(words, "wb") as log:
        process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=order.folder
        )
    assert process.stdin is not None
    try:
        send(order, process.stdin)
    except BrokenPipeError:  # it says why in its log
        pass
    end = time.monotonic() + _PATIENCE_S
    while (found := _up(order)) is None:
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            process.wait()
            raise KStreamError(
                f"the block store of this executor did not come up: {_last_words(words)}", command=command, status=process.returncode
            )
        time.sleep(_LOOK_S)
    return found


def _up(order: Order) -> StoreAddress | None:
    """One that does not answer yet, or no more, is none: it is waited for."""
    try:
        return _announced(order)
    except RpcUnreachableError:
        return None


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else ["its executor is dead"]
    return lines[-1] if lines else "it said nothing"


@contextmanager
def _locked(path: Path) -> Generator[None]:
    """Let go of by the system if this process dies."""
    with open(path, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
