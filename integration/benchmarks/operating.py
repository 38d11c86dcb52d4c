"""The bar on operating a job: the log's line of each batch and the status record, against the same batches without them.

    python -m integration.benchmarks.operating [--batches N]

A real context runs a direct stream of 4 partitions with a checkpoint on disk, a batch at a time, by a manual clock. Batches with and
without their line in the log take turns. A renewal of the status record and a look for a request to stop are timed beside them, and count
by their share of a batch a second.
"""

from __future__ import annotations

import logging
import os
import statistics
import sys
import time
from collections.abc import Callable

import kstream
from integration.benchmarks.bookkeeping import Bench
from integration.benchmarks.harness import parser_of, running_kafka
from integration.benchmarks.ticked import INTERVAL_MS
from kstream.checkpoint.driver_status import RENEWAL_MS, write_status
from kstream.checkpoint.stop_request import read_stop
from kstream.context.status import LOOK_MS
from kstream.storage import open_store

LIMIT = 1.05
LINES = logging.getLogger("kstream.batches")


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def main() -> int:
    options = parser_of(__doc__, batches=100).parse_args()
    kstream.log(format="json")
    for handler in logging.root.handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(open(os.devnull, "w"))  # noqa: SIM115 - the log goes on until the process ends
    batches: dict[bool, list[float]] = {True: [], False: []}
    renewals: list[float] = []
    looks: list[float] = []
    with running_kafka() as (kafka, directory):
        bench, store = Bench(kafka, directory), open_store(str(directory))
        bench.ssc.start()
        for number in range(2 * options.batches + 10):
            told = number % 2 == 0
            LINES.setLevel(logging.INFO if told else logging.WARNING)
            seconds = bench.ticked.batch()
            if number >= 10:  # the first ones warm up
                batches[told].append(seconds)
                renewals.append(seconds_of(lambda: write_status(store, bench.ssc.status())))
                looks.append(seconds_of(lambda: read_stop(store, 1)))
        bench.ssc.stop()
    without = statistics.median(batches[False])
    record = statistics.median(renewals) * INTERVAL_MS / RENEWAL_MS + statistics.median(looks) * INTERVAL_MS / LOOK_MS
    ratio = (statistics.median(batches[True]) + record) / without
    print(
        f"batch with its line and the status record / without: {ratio:.3f} (bar: <= {LIMIT}), {without * 1000:.1f} ms without, "
        f"{record * 1000:.2f} ms of it the record: {'met' if ratio <= LIMIT else 'MISSED'}"
    )
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
