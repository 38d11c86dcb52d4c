"""Two hours of a job that reads orders from Kafka, simulated. The page's own parts are told of each batch as a driver tells them.

No figure is made up by hand. Arrivals and the time of a batch are drawn; what follows from them is computed by the parts that a driver has:
admission control, the rate estimator, progress, decisions, the page. Nothing waits: the clock is set from event to event.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone

from kstream.batch import BatchInfo, InputFigures, OutputOperationInfo, PendingBatches, StreamInputInfo
from kstream.batch_time import Duration, Time
from kstream.checkpoint.driver_status import DriverStatus, LastError
from kstream.conf import Settings
from kstream.context.settings_table import settings_table
from kstream.direct.direct_input_dstream import metadata_of
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from kstream.monitoring.batch_history import BatchHistory
from kstream.monitoring.job_history import JobHistory
from kstream.monitoring.job_snapshot import EngineSnapshot, JobSnapshot
from kstream.offsets.admission_control import AdmissionControl, AdmissionSettings
from kstream.offsets.offset_range import OffsetRange, Partition
from kstream.scheduler.input_lags import InputLags
from kstream.scheduler.rate_estimator import create_rate_estimator
from kstream.testing import ManualClock
from kstream.ui.decisions import Decisions
from kstream.ui.driver_ledger import DriverLedger
from kstream.ui.driver_source import DriverSource, SparkLinks
from kstream.ui.settings import RETAINED_BATCHES
from kstream.ui.stored_batches import StoredBatches

INTERVAL_MS = 2000
BATCHES = 3600
"""Two hours of them."""
HELD = 6
BACK_OFF_MS = (1000, 2000)
"""The waits before the second and the third try of a batch."""
DESCRIPTION = "Kafka[Subscribe[orders, refunds]]"
PARTS: dict[Partition, float] = {**{("orders", n): 0.2 for n in range(4)}, **{("refunds", n): 0.1 for n in range(2)}}
"""The part of the records that each partition gets."""
OUTPUTS = (("pprint", "/srv/jobs/orders.py:32", 0.3), ("foreachRDD", "/srv/jobs/orders.py:43", 0.7))
"""The output operations: name, place, and their part of the processing time."""
SETTINGS = {
    "spark.streaming.backpressure.enabled": "true",
    "spark.streaming.kstream.failedBatch": "hold",
    "spark.streaming.kstream.batch.retries": str(len(BACK_OFF_MS)),
    "spark.streaming.kstream.ui.enabled": "true",
    "spark.streaming.kstream.ui.token": "not shown",
}
SPARK_URL = "http://worker-7.shop.example:4040"


@dataclass
class _Batch:
    """A batch that was planned. `number` counts them from 0."""

    number: int
    info: BatchInfo
    begin_ms: int = 0
    took_ms: int = 0


class SimulatedShop:
    """A driver that has run for two hours; `source` is its page.

    Args:
        now_ms: the end of the last batch interval, in milliseconds since the Unix epoch.
        trouble: whether a sink is slow for four minutes in the middle of the last hour, and a batch has failed now and holds later ones.
        seed: of what is drawn.
    """

    def __init__(self, now_ms: int, trouble: bool = False, seed: int = 7) -> None:
        self._wave = random.Random(seed)
        self._trouble = trouble
        self._started_ms = now_ms - BATCHES * INTERVAL_MS
        self._clock = ManualClock(self._started_ms)
        self._settings = Settings(SETTINGS)
        interval = Duration(INTERVAL_MS)
        self._admission = AdmissionControl(AdmissionSettings(backpressure=True), interval)
        self._estimator = create_rate_estimator(self._settings, interval)
        self._rates: dict[int, int] = {}
        self._ends: dict[Partition, int] = {p: 48_000_000 + self._wave.randrange(200_000) for p in PARTS}
        self._planned = dict(self._ends)
        self._queue: list[_Batch] = []
        self._free_ms = 0
        self._pending = PendingBatches()
        self._last_error: LastError | None = None
        self._history = JobHistory(self._clock)
        self._history.keep_batches(BatchHistory(INTERVAL_MS, self._settings[RETAINED_BATCHES]))
        self._lags = InputLags(lambda: self._pending.running | self._pending.held | self._pending.failed, None)
        self._decisions = Decisions(self._clock, lambda: self._rates)
        self._run()
        self.source = DriverSource(
            self._settings,
            settings_table().entries,
            self._job,
            self._decisions,
            DriverLedger(None, self._clock),
            StoredBatches(None, lambda: lambda data: None),
            SparkLinks("app-20261124060300-0042", SPARK_URL, self._jobs_of),
            "0.1.0",
        )

    # -- the course of the two hours

    def _run(self) -> None:
        """Plan and run all batches."""
        normal = BATCHES - HELD - 1 if self._trouble else BATCHES - 1
        for number in range(normal):
            self._submit(number)
            self._run_until(self._time_of(number + 1))
        if self._trouble:
            self._run_until(self._time_of(normal) + INTERVAL_MS, all_of_them=True)
            self._fail(self._submit(normal))
        else:
            self._run_until(self._time_of(normal), all_of_them=True)
            self._leave_running(self._submit(normal))

    def _time_of(self, number: int) -> int:
        """Return the batch time of a batch."""
        return self._started_ms + (number + 1) * INTERVAL_MS

    def _rate_at(self, number: int) -> float:
        """Return the records a second that come in during the interval before a batch."""
        wave = 1250 + 330 * math.sin(number / 210) + 90 * math.sin(number / 27)
        return max(0, wave + self._wave.gauss(0, 45))

    def _is_slow(self, number: int) -> bool:
        """Return whether the sink is slow when this batch runs."""
        return self._trouble and 0.72 * BATCHES < number < 0.72 * BATCHES + 120

    def _submit(self, number: int) -> _Batch:
        """Plan a batch with what has come in, and tell of it."""
        at_ms, time_ = self._time_of(number), Time(self._time_of(number))
        rate = self._rate_at(number)
        for partition, part in PARTS.items():
            self._ends[partition] += round(rate * INTERVAL_MS / 1000 * part + self._wave.gauss(0, 4))
        open_batches = [batch.info.batch_time for batch in self._queue]
        until = self._admission.admit(time_, self._planned, self._ends, open_batches)
        ranges = [OffsetRange(*partition, self._planned[partition], until[partition]) for partition in sorted(PARTS)]
        self._admission.planned(time_, ranges, self._ends)
        facts = metadata_of(ranges, dict(self._ends), {}, DESCRIPTION, self._admission.limits_of(time_))
        self._planned = dict(until)
        outputs = {n: OutputOperationInfo(time_, n, f"{name} at {place}", place, None, None, None) for n, (name, place, _) in _numbered()}
        source = StreamInputInfo(0, sum(r.count() for r in ranges), facts)
        batch = _Batch(number, BatchInfo(time_, {0: source}, at_ms + self._wave.randrange(2, 6), None, None, outputs))
        self._queue.append(batch)
        self._tell_at(batch.info.submission_ms)
        self._lags.planned(time_, [source], batch.info.submission_ms)
        self._tell(lambda to: to.onBatchSubmitted(StreamingListenerBatchSubmitted(batch.info)))
        return batch

    def _run_until(self, now_ms: int, all_of_them: bool = False) -> None:
        """Run the batches of the queue that end by then, one after the other."""
        while self._queue:
            batch = self._queue[0]
            records = batch.info.inputs[0].num_records
            if not batch.took_ms:
                batch.begin_ms = max(self._free_ms, batch.info.submission_ms) + self._wave.randrange(1, 4)
                cost = (180 + 0.2 * records) * (3.2 if self._is_slow(batch.number) else 1)
                batch.took_ms = max(60, round(cost + self._wave.gauss(0, 30)))
            if batch.begin_ms + batch.took_ms > now_ms and not all_of_them:
                return
            self._free_ms = batch.begin_ms + batch.took_ms
            self._succeed(self._queue.pop(0))

    def _succeed(self, batch: _Batch) -> None:
        """Tell the life of a batch from its start to its end."""
        begin = batch.begin_ms
        info = self._start(batch, begin)
        for number, (_, _, part) in _numbered():
            end = begin + max(1, round(batch.took_ms * part))
            info = self._operate(info, number, begin, end)
            begin = end
        source = replace(info.inputs[0], figures=InputFigures(bytes=info.inputs[0].num_records * 470))
        self._complete(replace(info, inputs={0: source}, processing_end_ms=begin))

    def _start(self, batch: _Batch, at_ms: int) -> BatchInfo:
        """Tell the start of a batch."""
        info = replace(batch.info, processing_start_ms=at_ms)
        self._tell_at(at_ms)
        self._tell(lambda to: to.onBatchStarted(StreamingListenerBatchStarted(info)))
        return info

    def _operate(self, info: BatchInfo, number: int, begin: int, end: int | None, error: tuple[str, str] | None = None) -> BatchInfo:
        """Tell the start of an output operation, and its end if it has one. Return the facts after it. `error`: in a line, and in many."""
        started = replace(info.outputs[number], start_ms=begin, end_ms=None, error=None, failure_reason=None)
        self._tell_at(begin)
        self._tell(lambda to: to.onOutputOperationStarted(StreamingListenerOutputOperationStarted(started)))
        if end is None:
            return info
        text, trace = error or (None, None)
        ended = replace(started, end_ms=end, error=text, failure_reason=trace)
        self._tell_at(end)
        self._tell(lambda to: to.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(ended)))
        return replace(info, outputs={**info.outputs, number: ended})

    def _complete(self, info: BatchInfo) -> None:
        """Tell the end of a batch, and then compute the rate that follows from it, as the controller of a driver does."""
        assert info.processing_end_ms is not None
        self._tell_at(info.processing_end_ms)
        self._tell(lambda to: to.onBatchCompleted(StreamingListenerBatchCompleted(info)))
        self._admission.batch_completed(info, 0, "orders")
        took, waited = info.processing_delay_ms, info.scheduling_delay_ms
        if not info.measures_speed or took is None or waited is None:
            return
        rate = self._estimator.compute(info.processing_end_ms, info.inputs[0].num_records, took, waited)
        if rate is not None:
            self._rates[0] = max(1, int(rate))
            self._admission.update_rate(self._rates[0])

    def _leave_running(self, batch: _Batch) -> None:
        """Let the last batch be in its second output."""
        begin = batch.info.submission_ms + 2
        info = self._start(batch, begin)
        info = self._operate(info, 0, begin, begin + 210)
        self._operate(info, 1, begin + 210, None)
        self._pending = PendingBatches(running=frozenset({batch.info.batch_time}))
        self._tell_at(begin + 420)

    def _fail(self, batch: _Batch) -> None:
        """Let a batch fail in each of its tries. The next ones are planned meanwhile, and are held."""
        info, time_ = batch.info, batch.info.batch_time
        first = next(r for r in info.inputs[0].facts["offsets"] if (r.topic, r.partition) == ("orders", 3))
        error = _an_error(f"orders-3@{first.fromOffset + first.count() // 2}", time_.milliseconds - 1117)
        begin = info.submission_ms + 2
        info = self._start(batch, begin)
        info = self._operate(info, 0, begin, begin + 212)
        begin += 212
        for wait_ms in (*BACK_OFF_MS, 0):
            info = self._operate(replace(info, processing_start_ms=begin if info.tries > 1 else info.processing_start_ms), 1, begin,
                                 begin + 187, error)  # fmt: skip
            if wait_ms:
                begin += 187 + wait_ms
                info = replace(info, tries=info.tries + 1)
        self._complete(replace(info, processing_end_ms=begin + 187))
        held = frozenset(Time(self._time_of(batch.number + 1 + n)) for n in range(HELD))
        self._pending = PendingBatches(failed=frozenset({time_}), held=held)
        self._last_error = LastError(begin + 187, error[0], time_, f"1, foreachRDD at {OUTPUTS[1][1]}")
        self._tell_at(max(held).milliseconds + 600)

    # -- what a driver knows of itself

    def _job(self) -> JobSnapshot:
        """Return the job now."""
        engine = EngineSnapshot(pending=self._pending, rates=self._rates, lags=self._lags.lags())
        return JobSnapshot(self._status(), self._history.snapshot(), engine, error_policies={0: "fail"})

    def _status(self) -> DriverStatus:
        """Return the status of the driver."""
        pending = self._pending
        unfinished = pending.running | pending.held | pending.failed
        return DriverStatus(
            "orders",
            3,
            "worker-7.shop.example",
            4711,
            self._started_ms,
            self._clock.time_ms(),
            Duration(INTERVAL_MS),
            last_planned=Time(self._time_of(BATCHES - 1)),
            unfinished=len(unfinished),
            oldest_unfinished=min(unfinished, default=None),
            failed=len(pending.failed),
            waiting=len(pending.held),
            last_error=self._last_error,
            metrics_url="http://127.0.0.1:9095/metrics",
        )

    def _jobs_of(self, time_: Time, operation: int) -> Sequence[int]:
        """Return the Spark jobs of an output operation: one of the first, and two of the second in each try."""
        first = 3 * ((time_.milliseconds - self._started_ms) // INTERVAL_MS - 1)
        tries = len(BACK_OFF_MS) + 1 if time_ in self._pending.failed else 1
        return [first] if operation == 0 else range(first + 1, first + 1 + 2 * tries)

    def _tell_at(self, at_ms: int) -> None:
        """Set the clock."""
        self._clock.set_time(max(at_ms, self._clock.time_ms()), wait=False)

    def _tell(self, event: Callable[[StreamingListener], None]) -> None:
        """Tell the listeners of the page of an event."""
        for listener in (self._history, self._decisions):
            event(listener)


def _numbered() -> list[tuple[int, tuple[str, str, float]]]:
    """Return the output operations with their numbers."""
    return list(enumerate(OUTPUTS))


def _an_error(record: str, at_ms: int) -> tuple[str, str]:
    """Return the error of a record that is no order, in one line and as a traceback."""
    moment = f"{datetime.fromtimestamp(at_ms // 1000, timezone.utc):%Y-%m-%dT%H:%M:%S}.{at_ms % 1000:03d}Z"
    place = f"map of /srv/jobs/orders.py:41, record {record} ({moment})"
    return f"InvalidOperation: [<class 'decimal.ConversionSyntax'>] ({place})", _TRACEBACK.format(own=own_traceback(place))


def own_traceback(place: str) -> str:
    """Return the traceback of the user's functions. `place`: the operation and the record."""
    return f"""Traceback (most recent call last):
  File "/srv/jobs/orders.py", line 41, in <lambda>
    orders = rdd.map(lambda record: to_order(record[1]))
                                    ^^^^^^^^^^^^^^^^^^^
  File "/srv/jobs/orders.py", line 27, in to_order
    return Order(fields["customer"], to_cents(fields["total"]))
                                     ^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/srv/jobs/orders.py", line 12, in to_cents
    return int(Decimal(text) * 100)
               ^^^^^^^^^^^^^
decimal.InvalidOperation: [<class 'decimal.ConversionSyntax'>]
in output operation 1, foreachRDD at /srv/jobs/orders.py:43: {place}"""


def shop_of_now(trouble: bool = False) -> SimulatedShop:
    """Return a shop whose last batch is of this moment, by the clock of this machine."""
    return SimulatedShop(round(time.time() * 1000) // INTERVAL_MS * INTERVAL_MS, trouble)


_TRACEBACK = """Traceback (most recent call last):
  File "/srv/lib/pyspark/rdd.py", line 1699, in collect
    sock_info = self.ctx._jvm.PythonRDD.collectAndServe(self._jrdd.rdd())
py4j.protocol.Py4JJavaError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)

The above exception was the direct cause of the following exception:

{own}"""
