"""downtime="by-timestamp" on the real broker: what a stream would have done had it never been down."""

from __future__ import annotations

import json
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from integration.driver_process import Job, running, wait_for
from integration.kafka_broker import KafkaBroker

CONF = {"spark.streaming.kstream.downtime": "by-timestamp"}
PACKED = {
    "spark.streaming.kstream.kafka.maxRecordsPerTask": "4",
    "spark.streaming.kstream.kafka.maxTasks": "2",
    "spark.streaming.concurrentJobs": "2",
}
"""What must change nothing: the subject splits, packs and runs two jobs at once, its twin does nothing of the kind."""
INTERVAL_MS = 1000
WINDOW = 10
DOWN_S = 20
QUIET_MS = 300


@contextmanager
def feed(kafka: KafkaBroker, topic: str) -> Iterator[list[int]]:
    """Some ten records a second, none within QUIET_MS of a batch time; yields the count so far, final at the end."""
    sent, stop = [0], threading.Event()

    def run() -> None:
        while not stop.wait(0.05):
            phase = time.time() * 1000 % INTERVAL_MS
            if QUIET_MS + 20 < phase < INTERVAL_MS - QUIET_MS - 100:  # the broker writes a moment later
                kafka.produce(topic, [("key", f"0:{sent[0] + i}", 0) for i in range(3)])
                sent[0] += 3

    thread = threading.Thread(target=run, name="feed", daemon=True)
    thread.start()
    try:
        yield sent
    finally:
        stop.set()
        thread.join()


def timestamps(bootstrap: str, topic: str, count: int) -> list[int]:
    """The timestamp of each record of partition 0, by offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[int] = []
    while len(found) < count:
        found += [m.timestamp()[1] for m in consumer.consume(count - len(found), 5) if not m.error()]
    consumer.close()
    return found


def ranges_of(job: Job) -> dict[int, tuple[int, int]]:
    return {a["time"]: (a["ranges"][0][2], a["ranges"][0][3]) for a in job.attempts()}


def windows_of(job: Job) -> dict[int, Any]:
    return {int(path.stem): json.loads(path.read_text()) for path in (job.directory / "windows").glob("*.json")}


def down_for_a_while(job: Job, driver: Any) -> tuple[int, int]:
    """Kills the driver; returns the first and the last batch time it certainly misses."""
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    gone = time.time()
    while time.time() - gone < DOWN_S:  # the promise is about time that passes
        time.sleep(0.2)
    return (int(gone) + 1) * 1000, int(time.time()) * 1000


@pytest.mark.timeout(240)
def test_regenerated_batches_hold_the_records_of_their_second_and_windows_are_those_of_a_twin_that_never_stopped(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1, {"message.timestamp.type": "LogAppendTime"})
    subject = Job(tmp_path / "subject", kafka.bootstrap, name, window=WINDOW, conf={**CONF, **PACKED})
    twin = Job(tmp_path / "twin", kafka.bootstrap, name, window=WINDOW)
    with running(first := subject.start(), other := twin.start()):
        for job in (subject, twin):
            wait_for(lambda job=job: len(job.attempts()) > 2, "a batch", job)
        with feed(kafka, name) as sent:
            begun = len(subject.attempts())
            wait_for(lambda: len(subject.attempts()) > begun + 3, "batches", subject)
            missed_from, missed_to = down_for_a_while(subject, first)
            with running(second := subject.start()):
                wait_for(lambda: max(windows_of(subject), default=0) > missed_to + 13 * INTERVAL_MS, "the catch-up", subject)
                second.terminate()
                second.wait(60)
        wait_for(lambda: max(windows_of(twin)) >= max(windows_of(subject)), "the twin's windows", twin)
        other.terminate()
        other.wait(60)
    stamps, found = timestamps(kafka.bootstrap, name, sent[0]), ranges_of(subject)
    missed = range(missed_from, missed_to + 1, INTERVAL_MS)
    assert len(missed) >= DOWN_S - 1
    for t in missed:
        start, until = found[t]
        assert list(range(start, until)) == [i for i, ms in enumerate(stamps) if t - INTERVAL_MS <= ms < t], f"batch {t}"
    assert sum(found[t][1] - found[t][0] for t in missed) > 50, "the feed was silent"
    ours, theirs = windows_of(subject), windows_of(twin)
    whole = [t for t in ours if t >= missed_from]
    assert {t: ours[t] for t in whole} == {t: theirs[t] for t in whole}
    assert len(whole) >= DOWN_S + WINDOW


@pytest.mark.timeout(180)
def test_a_record_from_the_future_and_shuffled_ones_are_clamped_and_reported_and_nothing_is_lost(
    kafka: KafkaBroker, topic: Callable[..., str], tmp_path: Path
) -> None:
    name = topic(1, {"message.timestamp.type": "CreateTime", "message.timestamp.after.max.ms": str(2**62)})
    job = Job(tmp_path, kafka.bootstrap, name, window=WINDOW, conf=CONF)
    with running(first := job.start()):
        kafka.produce(name, [("key", f"0:{i}", 0) for i in range(10)])
        wait_for(lambda: job.records_tried() == 10, "the first records", job)
        first.kill()
        first.wait()
    now = int(time.time() * 1000)
    stamps = [now + random.Random(5).randrange(-4000, 0) for _ in range(40)]
    stamps[20] = now + 3_600_000
    kafka.produce(name, [("key", f"0:{10 + i}", 0, ms) for i, ms in enumerate(stamps)])
    end = time.monotonic() + 4  # some batches are missed
    while time.monotonic() < end:
        time.sleep(0.1)
    with running(second := job.start()):
        wait_for(lambda: job.records_tried() == 50, "every record", job)
        second.terminate()
        second.wait(60)
    spans = [span for _, span in sorted(ranges_of(job).items())]
    assert [a for a, _ in spans[1:]] == [b for _, b in spans[:-1]]
    assert (spans[0][0], spans[-1][1]) == (0, 50)
    assert f"{name}-0: offset 30 has a timestamp in the future" in job.output()
    pinned_at = [span for span in spans if span[0] == span[1] == 30]
    assert pinned_at, "the partition was pinned at the stray record until the first batch on time"
