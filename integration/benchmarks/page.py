"""The bars on the page: answers, memory and CPU of a driver that is 3,000 batches behind, with 1,000 partitions. Off it costs nothing.

    python -m integration.benchmarks.page [--ended N] [--queued N] [--partitions N] [--seconds N]

All bars are absolute. Another process asks as the page does: the list below every two seconds, the others less often. The memory is what is
held in addition to what the driver keeps without a page: the facts of queued batches, and those of `ssc.recentProgress`.
"""

from __future__ import annotations

import gc
import http.client
import json
import logging
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Callable
from functools import partial

from integration.benchmarks.harness import parser_of
from kstream.batch import BatchInfo, OutputOperationInfo, PendingBatches, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import DriverStatus
from kstream.clock import SystemClock
from kstream.conf import Settings
from kstream.context.settings_table import settings_table
from kstream.direct.direct_input_dstream import metadata_of
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerBus,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.offsets.offset_range import OffsetRange
from kstream.scheduler.input_lags import InputLags
from kstream.ui.driver_source import SparkLinks
from kstream.ui.settings import UI_PORT
from kstream.ui.ui_system import UiSystem

ANSWER_LIMIT_MS = 200.0
MEMORY_LIMIT_MB = 30.0
CPU_LIMIT = 0.03
BATCH_LIMIT_MS = 1.0
POLL_S = 2.0
STREAMING = "/api/v1/applications/local/streaming/"
WAITING = "&".join(f"status={status}" for status in ("processing", "queued", "held", "retrying", "pending"))
EACH_POLL = (
    "statistics",
    "timeline",
    f"batches?{WAITING}&limit=100",
    "batches?status=failed&limit=20",
    "batches?status=completed&limit=20",
    "batches?limit=120",
)
"""What the first view of the page asks for every two seconds."""
CLIENT = """
import sys, time, urllib.request
root, paths, until = sys.argv[1], sys.argv[2].split(), time.monotonic() + float(sys.argv[3])
while time.monotonic() < until:
    for path in paths:
        urllib.request.urlopen(root + path).read()
    time.sleep(float(sys.argv[4]))
"""


def info_of(number: int, partitions: int) -> BatchInfo:
    """A batch of a topic whose partitions get 20 records between two batches, of which it reads 10."""
    at = Time(number * 1000)
    ranges = [OffsetRange("orders", n, 10 * number, 10 * number + 10) for n in range(partitions)]
    latest = {("orders", n): 20 * number + n for n in range(partitions)}
    limit = {"readLimit": {"reason": "backpressure", "records": 10 * partitions}}
    inputs = {0: StreamInputInfo(0, 10 * partitions, metadata_of(ranges, latest, {}, "Kafka[Subscribe[orders]]", limit))}
    output = OutputOperationInfo(at, 0, "foreachRDD at job.py:7", "job.py:7", at.milliseconds, at.milliseconds + 400, None)
    return BatchInfo(at, inputs, at.milliseconds, at.milliseconds + 5, at.milliseconds + 405, {0: output})


def submitted_of(info: BatchInfo) -> BatchInfo:
    """The same batch before it starts."""
    outputs = {n: OutputOperationInfo(info.batch_time, n, o.op_name, o.op_description, None, None, None) for n, o in info.outputs.items()}
    return BatchInfo(info.batch_time, info.inputs, info.submission_ms, None, None, outputs)


class Driver:
    """What a driver has without a page: its bus, and the facts of the last batches and of those that wait.

    Args:
        ended: how many batches have ended.
        queued: how many wait.
        partitions: how many of a topic each of them reads.
    """

    def __init__(self, ended: int, queued: int, partitions: int) -> None:
        self.ended = ended
        self.queued = queued
        self.bus = StreamingListenerBus()
        self.history = JobHistory(SystemClock())
        self.bus.add(self.history)
        self.bus.start()
        self.partitions = partitions
        self.now_ms = (ended + queued) * 1000
        self.waiting = frozenset(Time(n * 1000) for n in range(ended, ended + queued))
        self.lags = InputLags(lambda: self.waiting, None)

    def status(self) -> DriverStatus:
        unfinished = len(self.waiting)
        return DriverStatus("bench", 1, "host", 1, 0, self.now_ms, Duration(1000), Time(self.now_ms), unfinished, min(self.waiting))

    def job(self) -> JobSnapshot:
        engine = EngineSnapshot(pending=PendingBatches(running=self.waiting), lags=self.lags.lags())
        return JobSnapshot(self.status(), self.history.snapshot(), engine)

    def work(self) -> None:
        """Runs batches, and then only plans them."""
        for number in range(self.ended):
            self.run_one(number)
        few = info_of(self.ended, self.partitions)  # the facts of all queued batches would be gigabytes, which their jobs keep anyway
        for number in range(self.ended, self.ended + self.queued):
            at = Time(number * 1000)
            outputs = {0: OutputOperationInfo(at, 0, "foreachRDD at job.py:7", "job.py:7", None, None, None)}
            self.lags.planned(at, few.inputs.values(), at.milliseconds)
            self.bus.post(StreamingListenerBatchSubmitted(BatchInfo(at, few.inputs, at.milliseconds, None, None, outputs)))
        assert self.bus.drain(600)

    def run_one(self, number: int) -> None:
        """All events of a batch."""
        info = info_of(number, self.partitions)
        submitted, output = submitted_of(info), info.outputs[0]
        self.lags.planned(info.batch_time, info.inputs.values(), info.batch_time.milliseconds)
        self.bus.post(StreamingListenerBatchSubmitted(submitted))
        self.bus.post(StreamingListenerBatchStarted(submitted))
        self.bus.post(StreamingListenerOutputOperationStarted(submitted.outputs[0]))
        self.bus.post(StreamingListenerOutputOperationCompleted(output))
        self.bus.post(StreamingListenerBatchCompleted(info))
        if number % 100 == 0:
            assert self.bus.drain(60)


def page_of(driver: Driver) -> UiSystem:
    """A page over this driver."""
    page = UiSystem(Settings({UI_PORT.key: "0"}), settings_table().entries, Duration(1000), SystemClock(), driver.bus, driver.history, "0")
    page.start(driver.job, dict, None, SparkLinks("local"))
    return page


def held_mb(made: Callable[[], Driver], with_page: bool) -> float:
    """The megabytes that are held after the same work, with or without a page."""
    gc.collect()
    tracemalloc.start()
    driver = made()
    page = page_of(driver) if with_page else None
    driver.work()
    if page is not None:
        for what in answers(driver):
            ask(page, what)
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] / 1e6
    tracemalloc.stop()
    if page is not None:
        page.stop()
    driver.bus.stop()
    return held


def answers(driver: Driver) -> list[str]:
    """Every answer of the page; of batches the longest."""
    last = (driver.ended - 1) * 1000
    details = [f"batches/{last}", f"batches/{last}/operations", f"batches/{last + 1000}"]
    return ["statistics", "timeline", "batches", *EACH_POLL[2:], *details, "receivers", "lag", "decisions", "ledger", "settings"]


def ask(page: UiSystem, what: str) -> tuple[float, int]:
    """Ask once; the milliseconds, and the bytes of the answer."""
    assert page.url is not None
    host, _, port = page.url.removeprefix("http://").rstrip("/").partition(":")
    began = time.perf_counter()
    connection = http.client.HTTPConnection(host, int(port), timeout=60)
    connection.request("GET", STREAMING + what)
    reply = connection.getresponse()
    body = reply.read()
    took = (time.perf_counter() - began) * 1000
    connection.close()
    assert reply.status == 200, (what, reply.status)
    json.loads(body)
    return took, len(body)


def polled(page: UiSystem, paths: tuple[str, ...], seconds: float) -> float:
    """The part of a core that this process spends while a client asks for these at the page's rate."""
    assert page.url is not None
    began, cpu = time.perf_counter(), time.process_time()
    root = page.url.rstrip("/") + STREAMING
    subprocess.run([sys.executable, "-c", CLIENT, root, " ".join(paths), str(seconds), str(POLL_S)], check=True)
    return (time.process_time() - cpu) / (time.perf_counter() - began)


def batch_ms(driver: Driver, with_page: bool, count: int = 300) -> float:
    """The milliseconds of CPU of the bus for a batch, without the making of its facts."""
    page = page_of(driver) if with_page else None
    infos = [info_of(n, driver.partitions) for n in range(count)]
    began = time.process_time()
    for info in infos:
        driver.bus.post(StreamingListenerBatchSubmitted(submitted_of(info)))
        driver.bus.post(StreamingListenerOutputOperationCompleted(info.outputs[0]))
        driver.bus.post(StreamingListenerBatchCompleted(info))
    assert driver.bus.drain(60)
    took = (time.process_time() - began) * 1000 / count
    if page is not None:
        page.stop()
    driver.bus.stop()
    return took


def off_loads() -> list[str]:
    """The modules of the page that a driver without it loads. The settings of the page are none: they say that it is off."""
    code = "import sys; import kstream.context.observers; print('\\n'.join(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.split()
    settings = ("kstream.ui", "kstream.ui.settings")
    return [name for name in loaded if name.startswith(("kstream.ui", "kstream.http", "wsgiref")) and name not in settings]


def main() -> int:
    parser = parser_of(__doc__, ended=1200, queued=3000, partitions=1000)
    parser.add_argument("--seconds", type=float, default=20.0)
    options = parser.parse_args()
    logging.getLogger("kstream").setLevel(logging.ERROR)
    made = partial(Driver, options.ended, options.queued, options.partitions)
    without = held_mb(made, False)
    more = held_mb(made, True) - without
    adds = batch_ms(made(), with_page=True) - batch_ms(made(), with_page=False)
    driver = made()
    page = page_of(driver)
    driver.work()
    took = {what: min(ask(page, what) for _ in range(3)) for what in answers(driver)}
    cpu = polled(page, EACH_POLL, options.seconds)
    cpu_of_lag = polled(page, ("statistics", "lag"), options.seconds)
    page.stop()
    driver.bus.stop()
    off = off_loads()
    longest = max(took, key=lambda what: took[what])
    met = took[longest][0] <= ANSWER_LIMIT_MS and more <= MEMORY_LIMIT_MB and max(cpu, cpu_of_lag) <= CPU_LIMIT and adds <= BATCH_LIMIT_MS
    for what, (milliseconds, size) in took.items():
        print(f"  {what}: {milliseconds:.1f} ms, {size / 1000:.0f} kB")
    print(
        f"{options.partitions} partitions, {options.queued} batches behind: the longest answer is {longest} with {took[longest][0]:.1f} ms "
        f"(bar: <= {ANSWER_LIMIT_MS:g} ms); the page holds {more:.1f} MB more than {without:.0f} MB (bar: <= {MEMORY_LIMIT_MB:g} MB); "
        f"polled it takes {cpu:.1%} of a core, its lag {cpu_of_lag:.1%} (bar: <= {CPU_LIMIT:.0%}); it adds {adds:.3f} ms of CPU to a batch "
        f"(bar: <= {BATCH_LIMIT_MS:g} ms); off it loads {len(off)} modules (bar: 0): {'met' if met and not off else 'MISSED'}"
    )
    return 0 if met and not off else 1


if __name__ == "__main__":
    sys.exit(main())
