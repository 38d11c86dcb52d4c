"""The crash suite with the checkpoint on S3 and on HDFS, and stores that go away and come back."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from integration.driver_process import Job, running, wait_for
from integration.exactness.campaign import PARTITIONS, Campaign, Kill
from integration.hdfs_cluster import Hdfs
from integration.kafka_broker import KafkaBroker
from integration.reading import chain_of
from integration.s3_server import S3Process
from kstream import crash_point

KILLS = [Kill(crash_point.PLAN_DURABLE, nth=2), Kill(crash_point.JOB_DONE, nth=3), Kill(crash_point.CLEANING, nth=2)]


@dataclass
class Store:
    """A store that can be taken away: the URL of a new checkpoint, the drivers' environment, what makes it go and come."""

    url: str
    environment: dict[str, str]
    go_away: Callable[[], None]
    come_back: Callable[[], None]


@pytest.fixture(params=["s3", "hdfs"])
def store(request: pytest.FixtureRequest, tmp_path: Path, s3: S3Process) -> Iterator[Store]:
    if request.param == "s3":
        yield Store(s3.url(f"{tmp_path.name}/orders"), s3.environment(), s3.go_away, s3.come_back)
        s3.come_back()  # the server is everybody's, also after a test that failed
        return
    hdfs: Hdfs = request.getfixturevalue("hdfs")
    yield Store(hdfs.url(f"{tmp_path.name}/orders"), {}, hdfs.kill_namenode, hdfs.start_namenode)
    hdfs.start_namenode()  # as the S3 server


@pytest.mark.timeout(900)
def test_a_driver_whose_checkpoint_lies_there_is_killed_and_misses_nothing_and_never_changes_a_range(
    store: Store, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(PARTITIONS)
    campaign = Campaign(kafka.bootstrap, name, tmp_path, kafka.produce, {}, store.url, store.environment, window=3, patience_s=300)
    verdict = campaign.run(KILLS)
    assert verdict.breaches == []
    assert verdict.runs_again >= 1, "the kills met no batch in the middle"
    assert verdict.records > 500
    assert not (tmp_path / "checkpoint").exists() and not list(tmp_path.glob("s3:*")), "the checkpoint lay on the local disk"


@pytest.mark.timeout(900)
def test_a_store_that_goes_away_is_one_clear_error_if_nobody_waits_for_it_and_nothing_is_lost_when_it_comes_back(
    store: Store, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100)))
    job = Job(tmp_path / "job", kafka.bootstrap, name, store.url, conf={"spark.streaming.kstream.unreachableTimeout": "0"})
    first = job.start(**store.environment)
    with running(first):
        wait_for(lambda: job.records_tried() == 100, "reading 100 records", job, 180)
        store.go_away()
        kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100, 200)))
        assert first.wait(240) == 1
    # Whichever request meets it first: the next plan, the end of the batch before, or the probe between plan and jobs.
    told = r"kstream\.errors\.(PlanFailedError: .*could not be stored|StorageError: cannot (write|look up) )"
    assert re.match(told, job.output().splitlines()[-1]) and store.url in job.output().splitlines()[-1]
    tried = job.records_tried()
    dead = job.start(**store.environment)
    with running(dead):
        assert dead.wait(240) == 1
    assert job.output().splitlines()[-1].startswith(f"kstream.errors.StorageError: cannot look up {store.url}/")
    assert job.records_tried() == tried == 100
    store.come_back()
    again = job.start(**store.environment)
    with running(again):
        wait_for(lambda: job.records_tried() == 200, "reading the rest", job, 180)
    ranges: list[Any] = sorted({tuple(r[2:]) for a in job.attempts() for r in a["ranges"] if r[2] < r[3]})
    assert ranges == chain_of(ranges, 200)


@pytest.mark.timeout(600)
def test_an_s3_that_is_gone_for_a_moment_is_not_noticed(
    s3: S3Process, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1)
    kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100)))
    job = Job(tmp_path / "job", kafka.bootstrap, name, s3.url(f"{tmp_path.name}/orders"))
    driver = job.start(**s3.environment())
    with running(driver):
        wait_for(lambda: job.records_tried() == 100, "reading 100 records", job, 180)
        s3.go_away()
        time.sleep(3)
        s3.come_back()
        kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100, 200)))
        wait_for(lambda: job.records_tried() == 200, "going on", job, 180)
        assert driver.poll() is None


@pytest.mark.timeout(600)
def test_a_batch_on_s3_is_two_puts_and_a_head_and_lists_nothing(
    s3: S3Process, kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    """One put before, one after, one look for a newer driver; what is cleaned up later is one delete for each of the two."""
    name = topic(1)
    kafka.produce(name, (("key-0", f"0:{i}", 0) for i in range(100)))
    job = Job(tmp_path / "job", kafka.bootstrap, name, s3.url(f"{tmp_path.name}/orders"))
    driver = job.start(**s3.environment())
    with running(driver):
        wait_for(lambda: len(job.attempts()) > 6, "batches", job, 180)
        s3.take()
        before, began = len(job.attempts()), time.monotonic()
        wait_for(lambda: len(job.attempts()) >= before + 10, "ten batches more", job, 180)
        taken, ended, seconds = s3.take(), len(job.attempts()) - before, time.monotonic() - began
    by_time = [method for method, path in taken if "/status/" in path or "/stop/" in path]  # these go by the clock, whatever the batches
    assert set(by_time) <= {"PUT", "GET"}
    assert by_time.count("PUT") <= seconds / 20 + 2 and by_time.count("GET") <= seconds / 3 + 2
    requests = [(method, path) for method, path in taken if "/status/" not in path and "/stop/" not in path]
    puts = [path for method, path in requests if method == "PUT"]
    assert len(puts) == len(set(puts)) and all("/plans/" in path or "/done/" in path for path in puts)
    planned, done = (sum(f"/{folder}/" in path for path in puts) for folder in ("plans", "done"))
    assert abs(planned - ended) <= 4 and abs(done - ended) <= 4  # those under way at either end
    heads, deletes = (sum(method == kind for method, _path in requests) for kind in ("HEAD", "POST"))  # a delete is a POST
    assert planned <= heads <= planned + 2 * (ended + 4)  # each of its two jobs looks once more if it had to wait
    assert deletes <= 2 * (ended + 4)
    assert {method for method, _path in requests} <= {"PUT", "HEAD", "POST"}
