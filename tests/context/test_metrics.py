"""Metrics come with the start of a context and go with its stop."""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import REGISTRY
from pyspark import SparkContext

from kstream.errors import ConfigurationError, MissingDependencyError, PortTakenError
from tests.metrics.scraped import scrape
from tests.streams import Stream, numbers, refusing_to_start

PORT = "spark.streaming.kstream.metrics.port"


def running(sc: SparkContext, checkpoint: Path) -> Stream:
    stream = Stream(sc)
    stream.ssc.checkpoint(str(checkpoint))
    numbers(stream.ssc, 3).foreachRDD(lambda rdd: None)
    return stream.start()


def of_metrics() -> list[str]:
    return [thread.name for thread in threading.enumerate() if "Metrics" in thread.name]


def test_without_a_port_there_are_no_metrics(sc: SparkContext, tmp_path: Path) -> None:
    stream = running(sc, tmp_path)
    assert stream.ssc.metricsUrl is None and of_metrics() == []
    stream.stop()


def test_a_running_context_shows_its_batches_and_the_requests_of_its_plan_log(
    sc: SparkContext, setting: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    setting(PORT, "0")
    with caplog.at_level(logging.INFO, "kstream"):
        stream = running(sc, tmp_path)
    url = stream.ssc.metricsUrl
    assert url is not None and f"metrics are at {url}" in caplog.text
    stream.tick()
    stream.tick()
    found = scrape(url)
    last = stream.ssc.lastProgress
    assert last is not None and found["kstream_last_ended_batch_timestamp_seconds"] * 1000 == last["batchId"]
    assert found[f'kstream_driver_info{{application="{sc.appName}"}}'] == 1
    assert found['kstream_batches_total{result="succeeded"}'] == 2 and found['kstream_input_records_total{input="0"}'] == 6
    assert found['kstream_plan_log_request_seconds_count{request="plan"}'] == 3  # one is the starting point
    assert found['kstream_plan_log_request_seconds_count{request="completion"}'] == 3
    assert found['kstream_plan_log_request_seconds_count{request="probe"}'] >= 2
    assert found["process_resident_memory_bytes"] > 0
    stream.stop()


def test_two_contexts_after_each_other_leave_nothing_behind(sc: SparkContext, setting: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    setting(PORT, str(port))
    default = [metric.name for metric in REGISTRY.collect()]
    for number in range(2):
        stream = running(sc, tmp_path / str(number))
        assert stream.ssc.metricsUrl == f"http://127.0.0.1:{port}/metrics"
        stream.tick()
        assert scrape(stream.ssc.metricsUrl)['kstream_batches_total{result="succeeded"}'] == 1
        stream.stop()
        assert stream.ssc.metricsUrl is None and of_metrics() == []
    assert [metric.name for metric in REGISTRY.collect()] == default
    with socket.create_server(("127.0.0.1", port)):
        pass


def test_a_port_that_is_taken_fails_the_start_and_fences_nobody(sc: SparkContext, setting: Any, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        setting(PORT, str(taken.getsockname()[1]))
        with pytest.raises(PortTakenError, match=r"Set .* to a free port"):
            running(sc, tmp_path)
    assert list(tmp_path.glob("epoch-*")) == [] and of_metrics() == []


def test_without_prometheus_client_the_error_names_the_package(
    sc: SparkContext, setting: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in sys.modules if name.startswith(("prometheus_client", "kstream.metrics."))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    setting(PORT, "0")
    with pytest.raises(MissingDependencyError, match="pip install prometheus-client"):
        running(sc, tmp_path)


def test_a_start_that_fails_closes_the_port(sc: SparkContext, setting: Any, tmp_path: Path) -> None:
    setting(PORT, "0")
    stream = Stream(sc)
    stream.ssc.checkpoint(str(tmp_path))
    refusing_to_start(stream.ssc).foreachRDD(lambda rdd: None)
    with pytest.raises(OSError, match="no source"):
        stream.start()
    assert of_metrics() == [] and stream.ssc.metricsUrl is None


@pytest.mark.parametrize(("key", "value"), [(PORT, "metrics"), ("spark.streaming.kstream.metrics.maxPartitions", "-1")])
def test_a_setting_without_meaning_is_named(
    sc: SparkContext, setting: Callable[[str, str], None], tmp_path: Path, key: str, value: str
) -> None:
    setting(PORT, "0")
    setting(key, value)
    with pytest.raises(ConfigurationError, match=key):
        running(sc, tmp_path)
