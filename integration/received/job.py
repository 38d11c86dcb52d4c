"""The driver of a campaign: numbers from an AckedSource, each batch written to a file of its time.

    python -m integration.received.job OPTIONS_FILE

Its words on stdout are lines of JSON. It stops gracefully when its input ends.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark import SparkConf

from integration.masters import executor_settings
from integration.received.acked_source import AckedReceiver
from kstream import StreamingContext, StreamingListener
from kstream.spark.executors import task_attempts
from kstream.spark.spark_context import make_spark_context


class Telling(StreamingListener):
    """Where receivers are."""

    def onReceiverStarted(self, receiverStarted: Any) -> None:
        say(started=receiverStarted.receiverInfo().executorId())

    def onReceiverError(self, receiverError: Any) -> None:
        say(error=receiverError.receiverInfo().lastErrorMessage())

    def onOutputOperationCompleted(self, outputOperationCompleted: Any) -> None:
        if (reason := outputOperationCompleted.outputOperationInfo().failureReason()) is not None:
            say(failed=reason)


def say(**facts: Any) -> None:
    print(json.dumps(facts), flush=True)


def copies_of_receivers(sc: Any) -> list[int]:
    """Attempts of receivers' tasks that are speculative, as Spark knows them."""
    stages = [sc.statusTracker().getJobInfo(job).stageIds for job in sc.statusTracker().getJobIdsForGroup("kstream-receiver-0")]
    return [task.attempt() for ids in stages for stage in ids for task in task_attempts(sc, stage) if task.speculative()]


def main(options: dict[str, Any]) -> None:
    conf = SparkConf().setMaster(options["master"]).setAppName("received").set("spark.ui.enabled", "false")
    conf.setAll(list(executor_settings().items()))
    conf.set("spark.streaming.gracefulStopTimeout", "200s")  # nobody starts again after the last stop, which a busy machine may hold up
    sc = make_spark_context(conf.setAll(list(options["conf"].items())))
    sc.setLogLevel("OFF")
    say(application=sc.applicationId)
    output = Path(options["output"])

    def write(time: Any, rdd: Any) -> None:
        """Whole or not at all; what another attempt has written must be the same."""
        partial = output / f".{os.getpid()}"
        partial.write_text(json.dumps(rdd.collect()))
        name = output / str(time.milliseconds)
        if name.exists():
            say(again=name.name, same=sorted(json.loads(name.read_text())) == sorted(json.loads(partial.read_text())))
        partial.replace(name)

    def setup() -> StreamingContext:
        ssc = StreamingContext(sc, 1)
        ssc.receiverStream(AckedReceiver(options["port"])).foreachRDD(write)
        return ssc

    ssc = setup() if options["checkpoint"] is None else StreamingContext.getOrCreate(options["checkpoint"], setup)
    ssc.addStreamingListener(Telling())
    ssc.start()
    say(running=True)
    sys.stdin.read()
    say(copies=copies_of_receivers(sc))
    ssc.stop(stopSparkContext=True, stopGraceFully=True)
    say(stopped=True)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
