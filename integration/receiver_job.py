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
from datetime import datetime, timezone
from typing import Any

from pyspark import SparkConf

from integration.received.processes import executors as executors_of
from kstream import Receiver
from kstream.clock import SystemClock
from kstream.errors import RpcUnreachableError
from kstream.listener import StreamingListenerReceiverError, StreamingListenerReceiverStarted
from kstream.receiver.block_reading import BlockLocations, Replica, read_block
from kstream.receiver.received_block_tracker import ReceivedBlockTracker
from kstream.receiver.receiver_task import ReceiverTaskConfig
from kstream.receiver.receiver_tracker import ReceiverTracker
from kstream.rpc import RpcClient, RpcCredentials, RpcServer
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


class Told:
    """What listeners heard: on which executors the receiver was started, and in which workers."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.workers: list[int] = []

    def __call__(self, event: Any) -> None:
        if isinstance(event, StreamingListenerReceiverStarted):
            self.started.append(event.receiverInfo().executorId())
        elif isinstance(event, StreamingListenerReceiverError):
            self.workers.append(int(event.receiverInfo().lastErrorMessage()))


def answers(replica: Replica, credentials: RpcCredentials) -> bool:
    client = RpcClient(replica.host, replica.port, credentials, 10)
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
    told = Told()
    credentials = RpcCredentials.new() if victim == "executor" else RpcCredentials.new_encrypting(datetime.now(timezone.utc))
    blocks = ReceivedBlockTracker([0], SystemClock())
    server = RpcServer(credentials, {})
    around = ReceiverTaskConfig("127.0.0.1", server.port, credentials, 10_000_000, 10_000_000)
    tracker = ReceiverTracker({0: OneBlock()}, SparkReceiverRunner(sc, around), blocks, SystemClock(), told)
    server.answer(tracker.handlers)
    tracker.start()

    [block] = wait(lambda: blocks.get_unallocated_blocks(0))
    place = BlockLocations(block.block_id, block.num_records, tracker.replicas(block))
    before = list(told.started)
    os.kill(told.workers[0] if victim == "worker" else executors_of(sc.applicationId)[before[0]], signal.SIGKILL)
    wait(lambda: len(told.started) == 2 and len(blocks.get_unallocated_blocks(0)) == 2)

    def read(_index: int, place: BlockLocations = place, credentials: RpcCredentials = credentials) -> Iterator[int]:
        return read_block(place, credentials)

    found = {
        "executors": block.executors,
        "started": told.started,
        "stores_alive": [answers(replica, credentials) for replica in place.replicas],
        "records": WorkerRDD(sc, 1, read).collect(),
        "stopped": tracker.stop(60),
    }
    sc.stop()
    wait(lambda: not any(answers(replica, credentials) for replica in place.replicas))  # no store outlives its executor
    server.close()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
