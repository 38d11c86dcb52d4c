"""Metrics, board and alerts with a real Prometheus: it scrapes a running job, and evaluates every expression."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from kstream_kafka import KafkaUtils
from pyspark import SparkContext

from integration.kafka_broker import Broker
from integration.prometheus_server import RULES, Prometheus, promtool, running_prometheus
from kstream import StreamingContext
from kstream.testing import ManualClock

pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(300)]
BOARD = RULES.with_name("grafana.json")
START, INTERVAL = 1_000_000_000_000, 1000
SETTINGS = {"spark.streaming.kstream.metrics.port": "0", "spark.streaming.kafka.maxRatePerPartition": "10"}


class RunningJob:
    """A job that reads at most ten records of each partition in a batch. Its clock is moved by hand. `down` makes its output fail."""

    def __init__(self, sc: SparkContext, kafka: Broker, topic: str, checkpoint: Path) -> None:
        self.down = False
        self.clock = ManualClock(START)
        self.ssc = StreamingContext(sc, 1, clock=self.clock)
        self.ssc.checkpoint(str(checkpoint))
        stream = KafkaUtils.createDirectStream(self.ssc, [topic], {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "smallest"})
        stream.foreachRDD(self._write)

    def _write(self, rdd: Any) -> None:
        if self.down:
            raise ValueError("the sink is down")
        rdd.map(str).count()  # a count alone reads nothing

    def tick(self) -> dict[str, Any]:
        """One batch; its progress."""
        self.clock.wait_for_waiters()
        self.clock.advance(INTERVAL)
        end = time.monotonic() + 60
        while (last := self.ssc.lastProgress) is None or last["batchId"] != self.clock.time_ms():
            assert time.monotonic() < end, "the batch did not end"
            time.sleep(0.02)
        return last


@pytest.fixture
def job(sc: SparkContext, kafka: Broker, topic: Callable[..., str], tmp_path: Path) -> Iterator[RunningJob]:
    name = topic(2)
    kafka.produce(name, [("k", str(n), n % 2) for n in range(100)])
    conf: Any = sc._conf
    for key, value in SETTINGS.items():
        conf.set(key, value)
    made = RunningJob(sc, kafka, name, tmp_path / "checkpoint")
    try:
        made.ssc.start()
        yield made
    finally:
        made.ssc.stop(stopSparkContext=False)
        for key in SETTINGS:
            conf._jconf.remove(key)


@pytest.fixture
def prometheus(job: RunningJob, tmp_path: Path) -> Iterator[Prometheus]:
    assert job.ssc.metricsUrl is not None
    with running_prometheus(tmp_path / "prometheus", job.ssc.metricsUrl.removeprefix("http://").removesuffix("/metrics")) as server:
        yield server


def scraped(prometheus: Prometheus, progress: dict[str, Any]) -> None:
    """Return when Prometheus has the values after this batch."""
    ended = "kstream_last_ended_batch_timestamp_seconds"
    prometheus.wait(lambda: [value * 1000 for _, value in prometheus.values(ended)] == [progress["batchId"]], "to the end of the batch")


def expressions() -> dict[str, str]:
    """Every expression of board and alerts, with the board's variables filled in."""
    board: dict[str, Any] = json.loads(BOARD.read_text())
    shown = {f"{p['title']}, {t['refId']}": t["expr"] for p in board["panels"] for t in p.get("targets", ())}
    alerts = {rule["alert"]: rule["expr"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
    values = {"$__rate_interval": "10s", "$job": ".*", "$instance": ".*"}
    filled = dict[str, str]()
    for where, expression in (shown | alerts).items():
        for variable, value in values.items():
            expression = expression.replace(variable, value)
        filled[where] = expression
    return filled


EMPTY_HERE = {
    "Rate limit, A",
    "Receivers, A",
    "Receivers, B",
    "Errors of receivers, A",
    "Executors, A",
    "Executors, B",
    "Output operations that failed, A",
    "Transactions, A",
    "Transactions, B",
    "Commits, A",
    "Written bytes, A",
    "Written bytes, B",
    "State files, A",
    "State files, B",
}
"""The panels that a job on one machine without back-pressure, receivers, failures, transactions and states leaves empty."""


def test_a_prometheus_has_the_lag_that_progress_has_and_fills_every_panel(job: RunningJob, prometheus: Prometheus) -> None:
    job.tick()
    progress = job.tick()
    scraped(prometheus, progress)
    (source,) = progress["sources"]
    (topic,) = source["endOffset"]
    latest, planned = source["latestOffset"][topic], source["endOffset"][topic]
    expected = {partition: latest[partition] - planned[partition] for partition in planned}
    found = {labels["partition"]: value for labels, value in prometheus.values("kstream_partition_lag_records")}
    assert found == expected == {"0": 30, "1": 30}
    assert [value for _, value in prometheus.values("kstream_input_records_total")] == [40]

    def empty() -> set[str]:
        return {
            where for where, expression in expressions().items() if not where.startswith("KStream") and not prometheus.values(expression)
        }

    prometheus.wait(lambda: empty() == EMPTY_HERE, "to a value for each panel")  # a rate needs two scrapes
    for expression in expressions().values():
        prometheus.values(expression)  # PrometheusError if it is refused


def test_an_alert_fires_for_a_batch_that_has_failed(job: RunningJob, prometheus: Prometheus) -> None:
    scraped(prometheus, job.tick())
    (group,) = prometheus.get("rules")["groups"]
    prometheus.wait(lambda: all(r["health"] == "ok" for r in prometheus.get("rules")["groups"][0]["rules"]), "to the end of an evaluation")
    assert len(group["rules"]) > 10 and prometheus.firing() == set()
    job.down = True
    job.tick()
    prometheus.wait(lambda: prometheus.firing() == {"KStreamBatchFailed"}, "to the alert")
    health = {rule["name"]: rule["health"] for rule in prometheus.get("rules")["groups"][0]["rules"]}
    assert set(health.values()) == {"ok"}, health


def test_the_names_and_texts_of_the_metrics_pass_prometheus_own_check(job: RunningJob) -> None:
    job.tick()
    assert job.ssc.metricsUrl is not None
    with urllib.request.urlopen(job.ssc.metricsUrl, timeout=20) as answer:
        checked = promtool("check", "metrics", stdin=answer.read())
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, b"", b"")


# -- each alert, on series made for it

IN = 'job="kstream-x",instance="h:1"'
QUIET, LOUD = "0x40", "0+1x40"
FIRST_BATCH = "_x20 1x20"
"""A counter that a driver shows with 1 at once, ten minutes ago."""
CASES: dict[str, tuple[dict[str, str], ...]] = {
    "KStreamDriverDown": ({f"up{{{IN}}}": "1x40"}, {f"up{{{IN}}}": "0x40"}),
    "KStreamBehind": (
        {f"kstream_behind_seconds{{{IN}}}": "50x40", f"kstream_batch_interval_seconds{{{IN}}}": "10x40"},
        {f"kstream_behind_seconds{{{IN}}}": "31x40", f"kstream_batch_interval_seconds{{{IN}}}": "1x40"},
    ),
    "KStreamBatchFailed": (
        {f'kstream_pending_batches{{{IN},state="running"}}': "1x40", f'kstream_pending_batches{{{IN},state="failed"}}': QUIET},
        {f'kstream_pending_batches{{{IN},state="failed"}}': "1x40"},
    ),
    "KStreamBatchesHeld": (
        {f'kstream_pending_batches{{{IN},state="held"}}': QUIET},
        {f'kstream_pending_batches{{{IN},state="held"}}': "3x40"},
    ),
    "KStreamRetries": ({f"kstream_batch_retries_total{{{IN}}}": "3x40"}, {f"kstream_batch_retries_total{{{IN}}}": LOUD}),
    "KStreamLag": ({f'kstream_input_lag_seconds{{{IN},input="0"}}': "60x40"}, {f'kstream_input_lag_seconds{{{IN},input="0"}}': "301x40"}),
    "KStreamSlow": (
        {
            f"kstream_batch_processing_delay_seconds_sum{{{IN}}}": "0+30x40",
            f"kstream_batch_processing_delay_seconds_count{{{IN}}}": "0+60x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
        {
            f"kstream_batch_processing_delay_seconds_sum{{{IN}}}": "0+90x40",
            f"kstream_batch_processing_delay_seconds_count{{{IN}}}": "0+60x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
    ),
    "KStreamDataLoss": (
        {f'kstream_data_losses_total{{{IN},input="0"}}': "5x40"},
        {f'kstream_data_losses_total{{{IN},input="0"}}': LOUD},
        {f'kstream_data_losses_total{{{IN},input="0"}}': FIRST_BATCH},
    ),
    "KStreamRecordErrors": (
        {f'kstream_record_errors_total{{{IN},input="0",policy="skip"}}': "5x40"},
        {f'kstream_record_errors_total{{{IN},input="0",policy="skip"}}': LOUD},
        {f'kstream_record_errors_total{{{IN},input="0",policy="skip"}}': FIRST_BATCH},
    ),
    "KStreamFenced": ({f"kstream_driver_fenced{{{IN}}}": QUIET}, {f"kstream_driver_fenced{{{IN}}}": "1x40"}),
    "KStreamStateNotWritten": (
        {f"kstream_state_write_failed{{{IN}}}": QUIET},
        {f"kstream_state_write_failed{{{IN}}}": "1x40"},
    ),
    "KStreamOutage": ({f"kstream_planning_outage_seconds{{{IN}}}": QUIET}, {f"kstream_planning_outage_seconds{{{IN}}}": "61x40"}),
    "KStreamReceiverDown": (
        {f'kstream_receiver_active{{{IN},input="0",receiver="r"}}': "1x40"},
        {f'kstream_receiver_active{{{IN},input="0",receiver="r"}}': QUIET},
    ),
    "KStreamPlanLogErrors": (
        {f'kstream_plan_log_request_errors_total{{{IN},request="plan"}}': "5x40"},
        {f'kstream_plan_log_request_errors_total{{{IN},request="plan"}}': LOUD},
    ),
    "KStreamPlanLogSlow": (
        {
            f'kstream_plan_log_request_seconds_sum{{{IN},request="plan"}}': "0+0.6x40",
            f'kstream_plan_log_request_seconds_count{{{IN},request="plan"}}': "0+60x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
        {
            f'kstream_plan_log_request_seconds_sum{{{IN},request="plan"}}': "0+18x40",
            f'kstream_plan_log_request_seconds_count{{{IN},request="plan"}}': "0+60x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
    ),
    "KStreamFencedAttempts": (
        {f'kstream_output_fenced_attempts_total{{{IN},operation="0",name="saveToKafka"}}': "5x40"},
        {f'kstream_output_fenced_attempts_total{{{IN},operation="0",name="saveToKafka"}}': LOUD},
    ),
    "KStreamCommitSlow": (
        {
            f'kstream_output_commit_p99_seconds{{{IN},operation="0",name="saveToKafka"}}': "0.2x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
        {
            f'kstream_output_commit_p99_seconds{{{IN},operation="0",name="saveToKafka"}}': "0.3x40",
            f"kstream_batch_interval_seconds{{{IN}}}": "1x40",
        },
    ),
    "KStreamLatency": (
        {
            f'kstream_input_latency_seconds{{{IN},input="0"}}': "400x40",
            f'kstream_input_records_total{{{IN},input="0"}}': "7x40",
        },
        {
            f'kstream_input_latency_seconds{{{IN},input="0"}}': "400x40",
            f'kstream_input_records_total{{{IN},input="0"}}': LOUD,
        },
    ),
    "KStreamStateGrowing": (
        {f"kstream_state_written_bytes_total{{{IN}}}": "0+1000x600"},
        {f"kstream_state_written_bytes_total{{{IN}}}": "0+1000x180 180000+2000x420"},
    ),
}
"""Alert → series a minute apart with which it is silent at the moment of AFTER, and then those with which it fires."""
AFTER = {"KStreamStateGrowing": "8h"}
"""The moment at which an alert is looked at, if half an hour is too early."""


def test_every_alert_has_a_case() -> None:
    assert list(CASES) == [rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]
    assert all(len(series) > 1 for series in CASES.values())


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_when_it_should_and_only_then(alert: str, tmp_path: Path) -> None:
    tests = [
        {
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {
                    "expr": f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})',
                    "eval_time": AFTER.get(alert, "30m"),
                    "exp_samples": [{"labels": "{}", "value": 1}] if number else [],
                }
            ],
        }
        for number, series in enumerate(CASES[alert])
    ]
    case = tmp_path / "case.yaml"
    case.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    done = promtool("test", "rules", str(case))
    assert done.returncode == 0, (done.stdout + done.stderr).decode()
