"""A receiver on one of three executors stores one block; then its executor, or its worker alone, is killed, and the block is read.

    python -m integration.receiver_job executor|worker

Prints what it saw as a line of JSON.
"""

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
from kstream.errors import RpcUnreachableError
from kstream.receiver.block_reading import BlockPlace, Replica, read_block
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_task import Surroundings
from kstream.rpc import RpcClient, RpcServer, new_token
from kstream.scheduler.receiver_tracker import ReceiverTracker
from kstream.spark.executors import executors
from kstream.spark.receiver_runner import SparkReceiverRunner
from kstream.spark.spark_context import make_spark_context
from kstream.spark.worker_rdd import WorkerRDD

PATIENCE_S = 90.0


class OneBlock(Receiver):
    """Stores a thousand numbers as one block, and no more."""

    def onStart(self) -> None:
        threading.Thread(target=self.run, daemon=True).start()

    def run(self) -> None:
        self.reportError(str(os.getpid()))  # the one thing a receiver can say to the driver's listeners
        self.storeAll(range(1000))

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


class Told:
    """What listeners heard: on which executors the receiver was started, and in which workers."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.workers: list[int] = []

    def __call__(self, event: Any) -> None:
        if isinstance(event, events.StreamingListenerReceiverStarted):
            self.started.append(event.receiverInfo().executorId())
        elif isinstance(event, events.StreamingListenerReceiverError):
            self.workers.append(int(event.receiverInfo().lastErrorMessage()))


def answers(replica: Replica, token: str) -> bool:
    client = RpcClient(replica.host, replica.port, token, 10)
    try:
        client.ask("usage")
    except RpcUnreachableError:
        return False
    finally:
        client.close()
    return True


def main(victim: str) -> None:
    conf = SparkConf().setMaster("local-cluster[3,2,1024]").set("spark.ui.enabled", "false").set("spark.executor.memory", "512m")
    conf.set("spark.executorEnv.PYTHONPATH", os.pathsep.join(filter(None, sys.path)))  # this checkout, whichever is installed
    sc = make_spark_context(conf)
    sc.setLogLevel("OFF")
    wait(lambda: len(executors(sc)) == 3)
    told, token = Told(), new_token()
    blocks = ReceivedBlockTracker([0], SystemClock())
    server = RpcServer(token, {})
    around = Surroundings("127.0.0.1", server.port, token, 10_000_000, 10_000_000, "127.0.0.1")
    tracker = ReceiverTracker({0: OneBlock()}, SparkReceiverRunner(sc, around), blocks, SystemClock(), told)
    server.answer(tracker.handlers)
    tracker.start()

    [block] = wait(lambda: blocks.get_unallocated_blocks(0))
    place: BlockPlace = tracker.place_of(block)
    before = list(told.started)
    os.kill(told.workers[0] if victim == "worker" else jvm_of(before[0], sc.applicationId), signal.SIGKILL)
    wait(lambda: len(told.started) == 2 and len(blocks.get_unallocated_blocks(0)) == 2)

    def read(_index: int, place: BlockPlace = place, token: str = token) -> Iterator[int]:
        return read_block(place, token)

    found = {
        "executors": block.executors,
        "started": told.started,
        "stores_alive": [answers(replica, token) for replica in place.replicas],
        "records": WorkerRDD(sc, 1, read).collect(),
        "stopped": tracker.stop(60),
    }
    sc.stop()
    wait(lambda: not any(answers(replica, token) for replica in place.replicas))  # no store outlives its executor
    server.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
