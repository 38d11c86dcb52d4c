"""A receiver on one of three executors stores one block; its executor is killed; the block is read. Prints what it saw as JSON."""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import SparkConf

from kstream import Receiver
from kstream.batch import events
from kstream.clock import SystemClock
from kstream.receiver.block_reading import BlockPlace, read_block
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_task import Surroundings
from kstream.rpc import RpcServer, new_token
from kstream.scheduler.receiver_tracker import ReceiverTracker
from kstream.spark.executors import executors
from kstream.spark.receiver_runner import SparkReceiverRunner
from kstream.spark.spark_context import make_spark_context
from kstream.spark.worker_rdd import WorkerRDD

PATIENCE_S = 90.0


class OneBlock(Receiver):
    """Stores a thousand numbers as one block, and no more."""

    def onStart(self) -> None:
        threading.Thread(target=lambda: self.storeAll(range(1000)), daemon=True).start()

    def onStop(self) -> None: ...


def wait(what: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        assert time.monotonic() < end, "what was waited for never happened"
        time.sleep(0.1)
    return found


def commands() -> Iterator[tuple[int, list[str]]]:
    for process in Path("/proc").iterdir():
        try:
            if process.name.isdigit():
                yield int(process.name), (process / "cmdline").read_bytes().decode().rstrip("\0").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue


def jvm_of(executor: str, application: str) -> int:
    """Of this application: other tests run beside."""
    return next(
        pid for pid, command in commands() if _after(command, "--executor-id") == executor and _after(command, "--app-id") == application
    )


def _after(command: list[str], option: str) -> str | None:
    return command[command.index(option) + 1] if option in command[:-1] else None


def main() -> None:
    conf = SparkConf().setMaster("local-cluster[3,2,1024]").set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
    conf.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # this checkout, whichever is installed
    sc = make_spark_context(conf)
    sc.setLogLevel("ERROR")
    wait(lambda: len(executors(sc)) == 3)
    started: list[str] = []

    def tell(event: Any) -> None:
        if isinstance(event, events.StreamingListenerReceiverStarted):
            started.append(event.receiverInfo().executorId())

    token = new_token()
    blocks = ReceivedBlockTracker([0], SystemClock())
    handlers: dict[str, Callable[[bytes], bytes]] = {}
    server = RpcServer(token, handlers)
    around = Surroundings("127.0.0.1", server.port, token, 10_000_000, 10_000_000, "127.0.0.1")
    tracker = ReceiverTracker({0: OneBlock()}, SparkReceiverRunner(sc, around), blocks, SystemClock(), tell)
    server.answer(tracker.handlers)
    tracker.start()
    [block] = wait(lambda: blocks.get_unallocated_blocks(0))
    place = wait(lambda: (found := tracker.place_of(block)) and len(found.replicas) == 2 and found)
    killed = started[0]
    os.kill(jvm_of(killed, sc.applicationId), signal.SIGKILL)
    wait(lambda: len(started) == 2)

    def read(_index: int, place: BlockPlace = place, token: str = token) -> Iterator[int]:
        return read_block(place, token)

    records = WorkerRDD(sc, 1, read).collect()
    stopped = tracker.stop(60)
    print(json.dumps({"executors": block.executors, "killed": killed, "started": started, "records": records, "stopped": stopped}))
    server.close()
    sc.stop()


if __name__ == "__main__":
    sys.exit(main())
