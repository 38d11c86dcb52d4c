"""A query that copies a topic by `format("kstream")`, as a process that dies where a test says.

    python -m integration.structured_sink_job BOOTSTRAP SOURCE TARGET CHECKPOINT [WHERE BATCH]

WHERE is one of WHERES. The process and its JVM are killed with SIGKILL there, when the batch BATCH is committed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING, Any

from kstream_kafka.sink import query_batches
from kstream_kafka.structured.sink_options import SinkOptions
from kstream_kafka.structured.writers import KafkaStreamWriter
from pyspark_kstream import DefaultSource

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BEFORE, WITHIN, AFTER = "before", "within", "after"
WHERES = (BEFORE, WITHIN, AFTER)
"""Before the transaction; within it, with all records in Kafka; after it, before Spark's log of commits."""
DOOM = "KSTREAM_TEST_DOOM"
"""The variable with the file that says where and at which batch to die, and the processes to kill."""


def kill() -> None:
    """Kill the driver: its JVM first, so that nobody ends the query in order."""
    with open(os.environ[DOOM]) as file:
        for process in json.load(file)["processes"]:
            os.kill(process, signal.SIGKILL)
    signal.alarm(60)
    signal.pause()


class DyingWriter(KafkaStreamWriter):
    """Dies at one of WHERES."""

    def commit(self, messages: Any, batchId: int) -> None:
        with open(os.environ[DOOM]) as file:
            doom = json.load(file)
        where = doom["where"] if batchId == doom["batch"] else ""
        if where == BEFORE:
            kill()
        if where == WITHIN:
            query_batches.Transaction.commit = lambda self: kill()
        super().commit(messages, batchId)
        if where == AFTER:
            kill()


class DyingSink(DefaultSource):
    """The sink whose writer dies."""

    @classmethod
    def name(cls) -> str:
        return "dying"

    def streamWriter(self, schema: StructType, overwrite: bool) -> KafkaStreamWriter:
        return DyingWriter(SinkOptions.parse(self.options), schema)


def main(bootstrap: str, source: str, target: str, checkpoint: str, where: str = "", batch: str = "-1") -> None:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

    from kstream.spark.spark_context import make_spark_context

    conf = SparkConf().setMaster("local[2]").setAppName("structured_sink_job").set("spark.ui.enabled", "false")
    sc = make_spark_context(conf.set("spark.driver.host", "127.0.0.1"))
    sc.setLogLevel("ERROR")
    jvm: Any = sc._jvm
    with open(os.environ[DOOM], "w") as file:
        json.dump({"where": where, "batch": int(batch), "processes": [jvm.java.lang.ProcessHandle.current().pid(), os.getpid()]}, file)
    spark = SparkSession(sc)
    spark.dataSource.register(DyingSink)
    read = {"subscribe": source, "startingOffsets": json.dumps({source: {"0": 0}}), "maxOffsetsPerTrigger": "5"}
    frame = spark.readStream.format("kstream").options(**read).option("kafka.bootstrap.servers", bootstrap).load().select("value")
    write = {"topic": target, "prefix": target, "checkpointLocation": checkpoint}
    writer = frame.writeStream.format("dying").options(**write).option("kafka.bootstrap.servers", bootstrap)
    writer.trigger(availableNow=True).start().awaitTermination()
    sc.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
