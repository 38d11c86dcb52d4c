"""A driver that is made up: a PageSource whose figures a test or a picture sets, with an hour of a shop that reads orders from Kafka."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from integration.simulated_shop import own_traceback
from kstream.ui.forms import (
    ApplicationForm,
    BatchDetailForm,
    BatchForm,
    BatchStatus,
    BucketForm,
    DecisionForm,
    LagForm,
    LedgerForm,
    OffsetsForm,
    OperationForm,
    ReceiverForm,
    SettingForm,
    StatisticsForm,
    TimelineForm,
    spark_time,
)

INTERVAL_MS, BUCKET_MS, HOUR_MS = 2000, 6000, 3_600_000
SHOWN = 120
"""The batches that are listed."""
BEFORE = 2 * HOUR_MS // INTERVAL_MS - SHOWN
"""The batches of the two hours before them."""
DESCRIPTION = "Kafka[Subscribe[orders, refunds]]"
RECORD = "orders-3@48214829"
PLACE = f"map of /srv/jobs/orders.py:41, record {RECORD} (2026-11-24T07:35:14.883Z)"
ERROR = f"InvalidOperation: [<class 'decimal.ConversionSyntax'>] ({PLACE})"
OWN_TRACEBACK = own_traceback(PLACE)
TRACEBACK = f"""Traceback (most recent call last):
  File "/srv/lib/pyspark/rdd.py", line 1699, in collect
    sock_info = self.ctx._jvm.PythonRDD.collectAndServe(self._jrdd.rdd())
py4j.protocol.Py4JJavaError: An error occurred while calling z:org.apache.spark.api.python.PythonRDD.collectAndServe.
\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException(PythonRunner.scala:1097)

The above exception was the direct cause of the following exception:

{OWN_TRACEBACK}"""


@dataclass
class FakePage:
    """A source of which each answer is an attribute. The server calls its methods from any thread."""

    name: str = "orders"
    identity: str = "local-1795503600000"
    figures: dict[str, Any] = field(default_factory=dict[str, Any])
    """What replaces the statistics' own values."""
    known: list[BatchForm] = field(default_factory=list[BatchForm])
    details: dict[int, dict[str, Any]] = field(default_factory=dict[int, dict[str, Any]])
    """By batch: what replaces the values of a detail."""
    buckets: list[BucketForm] = field(default_factory=list[BucketForm])
    receiver_list: list[ReceiverForm] = field(default_factory=list[ReceiverForm])
    lags: list[LagForm] = field(default_factory=list[LagForm])
    decision_list: list[DecisionForm] = field(default_factory=list[DecisionForm])
    ledger_list: list[LedgerForm] = field(default_factory=list[LedgerForm])
    setting_list: list[SettingForm] = field(default_factory=list[SettingForm])
    now_ms: Callable[[], int] = lambda: round(time.time() * 1000)

    def application(self) -> ApplicationForm:
        return {"id": self.identity, "name": self.name}

    def statistics(self) -> StatisticsForm:
        done = [batch for batch in self.known if batch["status"] == "COMPLETED"]
        open_ = [batch for batch in self.known if batch["status"] not in ("COMPLETED", "FAILED")]
        failed = [batch for batch in self.known if batch["status"] == "FAILED"]
        held = sum(batch["status"] == "HELD" for batch in open_)
        waiting = held + sum(batch["status"] == "RETRYING" for batch in open_)
        oldest = min((batch["batchTimeMs"] for batch in [*open_, *failed]), default=None)
        now = self.now_ms()
        started = now - 2 * HOUR_MS - INTERVAL_MS
        figures: StatisticsForm = {
            "startTime": spark_time(started),
            "startTimeMs": started,
            "batchDuration": INTERVAL_MS,
            "numReceivers": len(self.receiver_list),
            "numActiveReceivers": sum(r["isActive"] for r in self.receiver_list),
            "numInactiveReceivers": sum(not r["isActive"] for r in self.receiver_list),
            "numTotalCompletedBatches": BEFORE + len(done) + len(failed),
            "numRetainedCompletedBatches": len(done) + len(failed),
            "numActiveBatches": sum(b["status"] == "PROCESSING" for b in open_),
            "numProcessedRecords": 2400 * BEFORE + sum(batch["inputSize"] or 0 for batch in done),
            "numReceivedRecords": 2400 * BEFORE + sum(batch["inputSize"] or 0 for batch in [*done, *failed, *open_]),
            "avgInputRate": _mean([(b["inputSize"] or 0) * 1000 / INTERVAL_MS for b in done]),
            "avgSchedulingDelay": _mean([b["schedulingDelay"] for b in done]),
            "avgProcessingTime": _mean([b["processingTime"] for b in done]),
            "avgTotalDelay": _mean([b["totalDelay"] for b in done]),
            "source": "driver",
            "nowMs": now,
            "state": "failing" if failed or waiting else "well",
            "stateText": "well: batches succeed, and none is late",
            "epoch": 3,
            "host": "worker-7.shop.example",
            "pid": 4711,
            "numUnfinishedBatches": len(open_) + len(failed),
            "numFailedBatches": len(failed),
            "numWaitingBatches": waiting,
            "numHeldBatches": held,
            "oldestUnfinishedMs": oldest,
            "secondsBehind": 0.0 if oldest is None else max(0, now - oldest) / 1000,
            "lagRecords": sum(lag["records"] for lag in self.lags) if self.lags else None,
            "lastError": None,
            "sparkUiUrl": "http://worker-7.shop.example:4040",
            "metricsUrl": "http://127.0.0.1:9095/metrics",
            "numLedgerEntries": sum(not entry["acknowledged"] for entry in self.ledger_list),
            "version": "0.1.0",
        }
        return cast(StatisticsForm, {**figures, **self.figures})

    def timeline(self) -> TimelineForm:
        return {"bucketMs": BUCKET_MS, "buckets": self.buckets}

    def batches(self, statuses: frozenset[BatchStatus] | None = None, limit: int | None = None) -> Sequence[BatchForm]:
        return [b for b in self.known if statuses is None or b["status"] in statuses][:limit]

    def batch(self, batch_time_ms: int) -> BatchDetailForm | None:
        for known in self.known:
            if known["batchTimeMs"] == batch_time_ms:
                own = self.details.get(batch_time_ms, {})
                return cast(BatchDetailForm, {**known, "inputs": [], "skipped": [], "operations": [], **own})
        return None

    def operations(self, batch_time_ms: int) -> Sequence[OperationForm] | None:
        found = self.batch(batch_time_ms)
        return None if found is None else found["operations"]

    def receivers(self) -> Sequence[ReceiverForm]:
        return self.receiver_list

    def lag(self) -> Sequence[LagForm]:
        return self.lags

    def decisions(self) -> Sequence[DecisionForm]:
        return self.decision_list

    def ledger(self) -> Sequence[LedgerForm]:
        return self.ledger_list

    def settings(self) -> Sequence[SettingForm]:
        return self.setting_list


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def a_batch(
    time_ms: int, status: BatchStatus = "COMPLETED", records: int = 2400, scheduling: int = 4, processing: int = 780, **own: Any
) -> BatchForm:
    """A batch with two output operations; `own` replaces values."""
    ended = status in ("COMPLETED", "FAILED")
    batch: BatchForm = {
        "batchId": time_ms,
        "batchTime": spark_time(time_ms),
        "batchTimeMs": time_ms,
        "status": status,
        "batchDuration": INTERVAL_MS,
        "inputSize": None if status == "HELD" else records,
        "schedulingDelay": scheduling if ended or status == "PROCESSING" else None,
        "processingTime": processing if ended else None,
        "totalDelay": scheduling + processing if ended else None,
        "numActiveOutputOps": 1 if status == "PROCESSING" else 0,
        "numCompletedOutputOps": {"COMPLETED": 2, "FAILED": 1, "PROCESSING": 1}.get(status, 0),
        "numFailedOutputOps": 1 if status == "FAILED" else 0,
        "numTotalOutputOps": 0 if status == "HELD" else 2,
        "firstFailureReason": None,
        "tries": 1,
        "numRecordErrors": 0,
        "numSkipped": 0,
        "numLosses": 0,
        "limitedBy": None,
        "figures": [],
    }
    return cast(BatchForm, {**batch, **own})


def an_operation(number: int, name: str, status: str, begun: int, duration: int | None, **own: Any) -> OperationForm:
    """An output operation; `own` replaces values."""
    operation = {
        "outputOpId": number,
        "name": f"{name} at /srv/jobs/orders.py:{32 + number * 11}",
        "description": f"/srv/jobs/orders.py:{32 + number * 11}",
        "startTime": spark_time(begun),
        "endTime": None if duration is None else spark_time(begun + duration),
        "startTimeMs": begun,
        "endTimeMs": None if duration is None else begun + duration,
        "duration": duration,
        "status": status,
        "error": None,
        "failureReason": None,
        "figures": [],
        "jobIds": [],
        "jobUrls": [],
    }
    return cast(OperationForm, {**operation, **own})


def a_detail(time_ms: int, failed: bool) -> dict[str, Any]:
    """The operations and the input of a batch of orders."""
    url = "http://worker-7.shop.example:4040/jobs/job/?id="
    ranges: list[OffsetsForm] = [
        {"topic": topic, "partition": p, "fromOffset": 48_211_500 + 977 * p, "untilOffset": 48_211_900 + 977 * p, "count": 400}
        for topic, partitions in (("orders", 4), ("refunds", 2))
        for p in range(partitions)
    ]
    ranges[3]["count"] = 398
    behind = {f"{what}OffsetsBehindLatest": value for what, value in (("min", 0), ("max", 1167), ("avg", 332.5), ("total", 1995))}
    second = an_operation(
        1, "foreachRDD", "FAILED" if failed else "COMPLETED", time_ms + 310, 520, jobIds=[9012, 9013], jobUrls=[f"{url}9012", f"{url}9013"]
    )
    if failed:
        second["error"], second["failureReason"] = ERROR, TRACEBACK
    return {
        "inputs": [
            {
                "id": 0,
                "description": DESCRIPTION,
                "numRecords": 2400,
                "numRecordErrors": 2,
                "recordErrors": [{"operator": "map at /srv/jobs/orders.py:38", "exception": "KeyError", "numRecords": 2}],
                "errorsPolicy": "dead-letter",
                "numSkipped": 1,
                "numLosses": 0,
                "numBytes": 1_204_118,
                "skewed": [],
                "figures": [{"name": "inputBytes", "label": "input", "unit": "bytes", "value": 1_204_118}],
                "limitedBy": {"reason": "back-pressure", "records": 2400},
                "offsets": ranges,
                "blocks": [],
                "files": [],
                "facts": {"metrics": behind},
            }
        ],
        "skipped": [{"stream": 0, "record": "orders-3@48214622"}],
        "operations": [an_operation(0, "pprint", "COMPLETED", time_ms + 4, 306, jobIds=[9011], jobUrls=[f"{url}9011"]), second],
    }


def an_hour(now_ms: int, wave: random.Random, trouble: bool) -> list[BucketForm]:
    """Buckets of an hour; with trouble a sink is slow for some minutes in the middle, and some batches fail."""
    buckets: list[BucketForm] = []
    first = (now_ms - HOUR_MS) // BUCKET_MS * BUCKET_MS
    queue = 0.0
    for n in range(HOUR_MS // BUCKET_MS):
        slow = trouble and 250 < n < 300
        rate = 1250 + 380 * math.sin(n / 70) + 90 * math.sin(n / 9) + wave.gauss(0, 45)
        processing = (260 + rate * 0.42 + wave.gauss(0, 35)) * (3.1 if slow else 1)
        queue = max(0.0, queue + (processing - INTERVAL_MS) * 3)
        scheduling = 4 + abs(wave.gauss(0, 3)) + queue
        failed = int(trouble and n in (262, 271, 272, 290))
        buckets.append(
            {
                "timeMs": first + n * BUCKET_MS,
                "numBatches": 3,
                "numFailed": failed,
                "numRecords": round(rate * BUCKET_MS / 1000),
                "inputRate": rate,
                "schedulingDelay": scheduling,
                "processingTime": processing,
                "totalDelay": scheduling + processing,
                "maxTotalDelay": round((scheduling + processing) * (1.1 + 0.2 * wave.random())),
                "lagRecords": round(rate * 1.2 + queue * 2),
            }
        )
    return buckets


def a_lag(topics: dict[str, int], wave: random.Random, top: int = 400) -> LagForm:
    """The lag of a stream: topic → its number of partitions."""
    made: list[Any] = []
    for topic, partitions in topics.items():
        lags = [max(0, round(top * wave.paretovariate(1.2)) - top) if wave.random() < 0.8 else 0 for _ in range(partitions)]
        ends = [48_000_000 + wave.randrange(1_000_000) for _ in lags]
        each = [
            {"partition": str(n), "offset": e - lag, "latest": e, "records": lag, "seconds": 1.8 * lag / max(1, *lags)}
            for n, (e, lag) in enumerate(zip(ends, lags, strict=True))
        ]
        made.append({"topic": topic, "records": sum(lags), "partitions": each})
    records = sum(topic["records"] for topic in made)
    about = {"stream": 0, "description": DESCRIPTION, "records": records, "unplanned": records // 2, "seconds": 1.8 if records else 0.0}
    return cast(LagForm, {**about, "rateLimit": 1200, "topics": made})


def a_shop(trouble: bool = False, seed: int = 7) -> FakePage:
    """A job that has run for two hours; with trouble a batch has failed, others are held behind it, and a retry waits."""
    wave = random.Random(seed)
    now = round(time.time() * 1000) // INTERVAL_MS * INTERVAL_MS
    page = FakePage(buckets=an_hour(now, wave, trouble), lags=[a_lag({"orders": 4, "refunds": 2}, wave)])
    times = [now - n * INTERVAL_MS for n in range(SHOWN)]
    for n, time_ms in enumerate(times):
        processing = round(620 + 120 * math.sin(n / 6) + wave.gauss(0, 60))
        own: dict[str, Any] = {"limitedBy": "back-pressure"} if 30 < n < 36 else {}
        own |= {"numRecordErrors": 2} if n == 17 else {}
        page.known.append(a_batch(time_ms, records=round(2500 + 500 * math.sin(n / 9) + wave.gauss(0, 90)), processing=processing, **own))
        page.details[time_ms] = a_detail(time_ms, failed=False)
    page.known[0] = a_batch(times[0], "PROCESSING")
    if trouble:
        _break(page, times)
    page.decision_list = _decisions(now)
    page.setting_list = _settings()
    return page


def _break(page: FakePage, times: list[int]) -> None:
    failed: dict[str, Any] = {
        "firstFailureReason": ERROR,
        "tries": 3,
        "numRecordErrors": 2,
        "numSkipped": 1,
        "limitedBy": "back-pressure",
    }
    page.known[6] = a_batch(times[6], "FAILED", processing=826, **failed)
    for n in range(6):
        page.known[n] = a_batch(times[n], "HELD", tries=0)
    page.details[times[6]] = a_detail(times[6], failed=True)
    page.figures = {
        "stateText": "failing: 1 batch failed, no retry is left, and 6 batches wait for an earlier one",
        "lastError": {"timeMs": times[5], "text": ERROR, "batchTimeMs": times[6], "operation": "1, foreachRDD at /srv/jobs/orders.py:43"},
    }
    page.ledger_list = [
        {
            "batchTimeMs": times[40],
            "kind": "skipped",
            "stream": 0,
            "text": "orders-3@48214622 left out as asked for by ann",
            "acknowledged": True,
        },
        {
            "batchTimeMs": times[90],
            "kind": "data loss",
            "stream": 0,
            "text": "refunds/1 [1200, 1450): retention",
            "acknowledged": False,
        },
    ]


def _decisions(now: int) -> list[DecisionForm]:
    said: list[tuple[str, str]] = [
        ("limit", f"{DESCRIPTION}: a batch has 2,400 records, fewer than were in the logs, because of backpressure"),
        (
            "rate",
            f"{DESCRIPTION}: back-pressure allows 1,200 records a second, after 1,550: the last batch took 2.0 s for 2,400 records "
            "and waited 4 ms",
        ),
        ("allocation", "3 executors are asked for, there are 2: the batches take 0.92 of their interval, at least scalingUpRatio=0.9"),
        (
            "warning",
            f"batch {now} ms, 2 records failed in map at /srv/jobs/orders.py:38 with KeyError and are in the dead-letter topic dlq",
        ),
        ("error", f"output operation 1, foreachRDD at /srv/jobs/orders.py:43: {ERROR}"),
        ("data loss", f"{DESCRIPTION}: the batch has met a data loss; see the ledger"),
    ]
    made = [
        {"timeMs": now - n * 41_000, "kind": kind, "text": text, "batchTimeMs": now - n * 42_000} for n, (kind, text) in enumerate(said)
    ]
    return cast("list[DecisionForm]", made)


def _settings() -> list[SettingForm]:
    return [
        {
            "key": "spark.streaming.backpressure.enabled",
            "value": "true",
            "default": "false",
            "meaning": "Adapt the rate to what batches manage.",
        },
        {
            "key": "spark.streaming.kstream.failedBatch",
            "value": "hold",
            "default": "go-on",
            "meaning": "What later batches do after one has failed.",
        },
        {
            "key": "spark.streaming.kstream.ui.token",
            "value": "(secret)",
            "default": "",
            "meaning": "The token that a request to the page needs.",
        },
    ]
