"""The bars on metrics: the CPU time of the driver for a scrape of 1,000 partitions, and what metrics add to a batch.

    python -m integration.benchmarks.metrics [--batches N] [--partitions N]

Both bars are absolute. Another process scrapes as Prometheus does; what this process spends on it is counted. Every partition
has a lag, and the ends of the logs are known at as many moments as are ever kept. To a batch the listener adds its events, and the store of
the plan log the measuring of its requests: as many as a batch makes.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
import uuid

from integration.benchmarks.harness import parser_of
from kstream.batch import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import DriverStatus
from kstream.clock import SystemClock
from kstream.conf import Settings
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchSubmitted,
    StreamingListenerBus,
    StreamingListenerOutputOperationCompleted,
)
from kstream.metrics.metrics_system import MetricsSystem
from kstream.metrics.settings import METRICS_PORT
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.scheduler.input_lags import InputLags
from kstream.storage import MemoryFileStore

SCRAPE_LIMIT_MS = 50.0
BATCH_LIMIT_MS = 1.0
REQUESTS = 6
"""The requests of a plan log in a batch: plan, probe and completion, and room for a clean-up."""
CLIENT = """
import sys, urllib.request
headers = {"Accept-Encoding": "gzip", "Accept": "application/openmetrics-text;version=1.0.0"}
for _ in range(int(sys.argv[2])):
    urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=headers)).read()
"""


def info_of(number: int, partitions: int) -> BatchInfo:
    """A batch of a topic whose partitions get 20 records between two batches, of which it reads 10."""
    at = Time(number * 1000)
    starts, ends, latest = ({"orders": {str(n): each * number + n for n in range(partitions)}} for each in (9, 10, 20))
    progress = {"description": "Kafka[Subscribe[orders]]", "startOffset": starts, "endOffset": ends, "latestOffset": latest}
    inputs = {0: StreamInputInfo(0, 10 * partitions, {"progress": progress})}
    output = OutputOperationInfo(at, 0, "foreachRDD at job.py:7", "", at.milliseconds, at.milliseconds + 400, None)
    return BatchInfo(at, inputs, at.milliseconds, at.milliseconds + 5, at.milliseconds + 405, {0: output})


def batch_ms(bus: StreamingListenerBus, lags: InputLags, info: BatchInfo) -> float:
    """Milliseconds of CPU until the lags have a batch and the listener has heard of it: all of the bus, for which batches do not wait."""
    began = time.process_time()
    lags.planned(info.batch_time, info.inputs.values(), info.submission_ms)
    bus.post(StreamingListenerBatchSubmitted(info))
    bus.post(StreamingListenerOutputOperationCompleted(info.outputs[0]))
    bus.post(StreamingListenerBatchCompleted(info))
    assert bus.drain(60)
    return (time.process_time() - began) * 1000


def requests_ms(metrics: MetricsSystem) -> float:
    """Milliseconds of CPU that measuring adds to the requests of a batch."""
    plain = MemoryFileStore(f"memory://{uuid.uuid4().hex}")
    took: list[float] = []
    for store in (plain, metrics.measured(plain)):
        began = time.process_time()
        for _ in range(REQUESTS):
            store.exists("epoch-2")
        took.append((time.process_time() - began) * 1000)
    return took[1] - took[0]


def scrape_ms(url: str, count: int) -> float:
    """Milliseconds of this process's CPU for one of `count` scrapes."""
    began = time.process_time()
    subprocess.run([sys.executable, "-c", CLIENT, url, str(count)], check=True)
    return (time.process_time() - began) * 1000 / count


def main() -> int:
    options = parser_of(__doc__, batches=200, partitions=1000).parse_args()
    bus = StreamingListenerBus()
    lags = InputLags(set, None)
    history = JobHistory(SystemClock())
    bus.add(history)
    metrics = MetricsSystem(Settings({METRICS_PORT.key: "0"}))
    status = DriverStatus("bench", 1, "host", 1, 0, options.batches * 1000, Duration(1000))
    metrics.start(lambda: JobSnapshot(status, history.snapshot(), EngineSnapshot(lags=lags.lags())))
    bus.start()
    batch = statistics.median(batch_ms(bus, lags, info_of(number, options.partitions)) for number in range(options.batches))
    batch += statistics.median(requests_ms(metrics) for _ in range(options.batches))
    assert metrics.url is not None
    scrape_ms(metrics.url, 2)  # the first ones warm up
    scrape = statistics.median(scrape_ms(metrics.url, 5) for _ in range(5))
    metrics.stop()
    bus.stop()
    met = scrape <= SCRAPE_LIMIT_MS and batch <= BATCH_LIMIT_MS
    print(
        f"a scrape of {options.partitions} partitions: {scrape:.1f} ms of CPU (bar: <= {SCRAPE_LIMIT_MS:g} ms); "
        f"metrics add {batch:.3f} ms of CPU to a batch (bar: <= {BATCH_LIMIT_MS:g} ms): {'met' if met else 'MISSED'}"
    )
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
