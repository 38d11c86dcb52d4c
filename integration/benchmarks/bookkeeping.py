"""The bar on bookkeeping: everything a batch costs beside its Spark job, against the bare PySpark job of 4 tasks.

    python -m integration.benchmarks.bookkeeping [--batches N]

A real context runs a direct stream of 4 partitions with a checkpoint on disk. A manual clock asks for one batch at a time; what is
timed is from the tick to the completed batch, less what the user's function took: planning against the broker, plan and completion
records with their fsyncs, the look for a newer writer, RDD and job set-up, events. In between the same function runs on a bare RDD.
"""

from __future__ import annotations

import statistics
import sys
import time
from pathlib import Path

from kstream_kafka import KafkaUtils

from integration.benchmarks import bare_job
from integration.benchmarks.harness import make_topic, parser_of, running_kafka
from integration.benchmarks.ticked import Ticked
from integration.kafka_handle import KafkaHandle

LIMIT = 0.3


class Bench:
    """A context whose one output runs the same 4-task job as the bare side and notes how long it took."""

    def __init__(self, kafka: KafkaHandle, directory: Path) -> None:
        topic = make_topic(kafka, [], 4)
        self.ticked = Ticked("bookkeeping", directory)
        self.ssc = self.ticked.ssc
        stream = KafkaUtils.createDirectStream(self.ssc, [topic], {"bootstrap.servers": kafka.bootstrap})
        stream.foreachRDD(bare_job.output)

    def batch(self) -> float:
        """Seconds of one batch beside the user's function."""
        return self.ticked.batch() - bare_job.output_seconds


def main() -> int:
    options = parser_of(__doc__, batches=60).parse_args()
    ours: list[float] = []
    bare: list[float] = []
    with running_kafka() as (kafka, directory):
        bench = Bench(kafka, directory)
        bench.ssc.start()
        for number in range(options.batches + 10):
            seconds = bench.batch()
            began = time.perf_counter()
            bare_job.run()
            if number >= 10:  # the first ones warm up
                bare.append(time.perf_counter() - began)
                ours.append(seconds)
        bench.ssc.stop()
    ratio = statistics.median(ours) / statistics.median(bare)
    verdict = "met" if ratio <= LIMIT else "MISSED"
    print(
        f"plan + log + bookkeeping / bare job of 4 tasks: {ratio:.2f} (bar: <= {LIMIT}), "
        f"{statistics.median(ours) * 1000:.1f} ms against {statistics.median(bare) * 1000:.1f}: {verdict}"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
