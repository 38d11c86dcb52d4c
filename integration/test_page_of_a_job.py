"""The page of a real job, watched in a browser: it runs, fails, holds and catches up, then its driver ends."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kstream_kafka import KafkaUtils
from pyspark import SparkContext

from integration.browser import Browser, Page
from integration.kafka_broker import Broker
from kstream import StreamingContext

pytestmark = [pytest.mark.browser, pytest.mark.timeout(300)]
PARTITIONS, BAD = 4, "twelve"
SETTINGS = {
    "spark.streaming.kstream.ui.enabled": "true",
    "spark.streaming.kstream.ui.port": "0",
    "spark.streaming.kstream.failedBatch": "hold",
    "spark.streaming.kstream.batch.retries": "100",
    "spark.streaming.kafka.maxRatePerPartition": "50",
}


class WatchedJob:
    """A job that turns values to numbers. A value that is none makes its batch fail until `mended` exists."""

    def __init__(self, sc: SparkContext, kafka: Broker, topic: str, directory: Path) -> None:
        self.topic, self._kafka, self._mended = topic, kafka, directory / "mended"
        self.ssc = StreamingContext(sc, 1)
        self.ssc.checkpoint(str(directory / "checkpoint"))
        stream = KafkaUtils.createDirectStream(self.ssc, [topic], {"bootstrap.servers": kafka.bootstrap, "auto.offset.reset": "smallest"})
        mended = str(self._mended)

        def number(value: str) -> int:
            import os

            return 0 if value == BAD and os.path.exists(mended) else int(value)

        def write(rdd: Any) -> None:
            rdd.map(lambda record: number(record[1])).sum()

        stream.foreachRDD(write)

    def produce(self, *values: str) -> None:
        self._kafka.produce(self.topic, [("k", value, n % PARTITIONS) for n, value in enumerate(values)])

    def mend(self) -> None:
        self._mended.touch()


@pytest.fixture
def job(sc: SparkContext, kafka: Broker, topic: Callable[..., str], tmp_path: Path) -> Iterator[WatchedJob]:
    conf: Any = sc._conf
    for key, value in SETTINGS.items():
        conf.set(key, value)
    made = WatchedJob(sc, kafka, topic(PARTITIONS), tmp_path)
    try:
        made.ssc.start()
        yield made
    finally:
        made.ssc.stop(stopSparkContext=False)
        for key in SETTINGS:
            conf._jconf.remove(key)


def number_of(page: Page, title: str) -> int:
    """A figure of the head, such as `Failed`."""
    script = f"""[...document.querySelectorAll('.figure')].find(n => n.querySelector('.label').innerText === {json.dumps(title)})
        .querySelector('.value').innerText"""
    return int(page.value(script).replace(",", ""))


def statuses(page: Page) -> set[str]:
    """The states of the batches that are shown."""
    return set(page.value("[...document.querySelectorAll('td .pill')].map(n => n.innerText)"))


def test_a_job_that_fails_holds_and_catches_up_is_followed_by_its_page(browser: Browser, job: WatchedJob) -> None:
    root = job.ssc.uiUrl
    assert root is not None
    page = browser.page()
    page.open(root)
    job.produce(*map(str, range(100)))
    page.wait_text(".state", "Running", 60)
    page.wait("document.querySelectorAll('.chart svg .line').length >= 4", "charts")
    page.wait("[...document.querySelectorAll('tbody tr')].some(r => r.children[1]?.innerText === '100')", "the batch with 100 records", 60)

    job.produce("1", BAD)
    page.wait_text(".state", "Held", 60)
    page.until(lambda: {"held", "retrying"} <= statuses(page) or {"held", "processing"} <= statuses(page), "batches that are held", 60)
    assert number_of(page, "Pending") >= 2
    page.wait_text(".notice.bad", "invalid literal for int() with base 10: 'twelve'")
    page.click(".notice.bad a")
    page.wait_text(".trace", "ValueError: invalid literal for int() with base 10: 'twelve'")
    assert "in number" in page.text(".trace") and "py4j" not in page.text(".trace")  # the functions of the job alone
    assert f"record {job.topic}-1@25" in page.text(".trace") and f"record {job.topic}-1@25" in page.text(".error-line")
    whole = page.value("document.querySelector('details .trace').textContent")
    assert whole.startswith("Traceback") and "In the task:" in whole
    assert "org.apache" not in whole and "kstream-failure" not in whole  # the log has what Spark says, at DEBUG
    ranges = page.value("[...document.querySelectorAll('.part table tbody tr')].map(r => [...r.children].map(d => d.innerText))")
    assert [job.topic, "1", "25", "26", "1"] in ranges

    page.value("location.hash = '#/decisions'")
    page.wait("[...document.querySelectorAll('td .tag')].some(n => n.innerText === 'error')", "the error among the decisions")
    page.value("location.hash = '#/settings'")
    page.wait("[...document.querySelectorAll('td code')].some(n => n.innerText.endsWith('failedBatch'))", "the setting")

    job.produce(*map(str, range(1200)))  # six seconds of the limit
    page.value("location.hash = '#/lag'")
    page.wait(f"document.querySelectorAll('#view tbody tr').length === {PARTITIONS + 1}", "the lag of each partition", 60)
    page.value("location.hash = '#/'")
    job.mend()
    page.wait_text(".state", "Running", 120)
    page.until(lambda: statuses(page) <= {"processing", "queued"}, "no batch that waits", 60)
    page.wait("document.querySelector('#view').innerText.includes('limited')", "a batch that was limited", 60)

    job.ssc.stop(stopSparkContext=False)
    page.wait("!document.querySelector('#stale-note').hidden", "a note that the driver is silent", 30)
    assert [problem for problem in page.seen.problems if "ERR_CONNECTION_REFUSED" not in problem] == []
    assert [url for url in page.seen.requests if not url.startswith(root)] == []
