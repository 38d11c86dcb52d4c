"""A run with failures on the harness: the page says what progress, metrics, status and the plan log say."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from kstream.batch_time import Time
from kstream.checkpoint import read_log
from kstream.checkpoint.sign_of_life import judge
from kstream.direct.log_plan import LogPlan
from kstream.errors import TransientError
from tests.direct.memory_log import A, B, MemoryLog, MemoryStream
from tests.fakes import FakeHost
from tests.harness import INTERVAL, START, Driver, World
from tests.receiver_driver import ReceiverDriver
from tests.scheduler.states import with_state
from tests.stores import CountingStore
from tests.ui.looked_at import LookedAt

FIRST, SECOND, THIRD, FOURTH = (START + n * INTERVAL for n in (1, 2, 3, 4))
RETRIES = "spark.streaming.kstream.batch.retries"
HOLD = {"spark.streaming.kstream.failedBatch": "hold"}
Look = Callable[..., LookedAt]


@pytest.fixture
def looked_at() -> Iterator[Look]:
    made: list[LookedAt] = []

    def make(conf: dict[str, str] | None = None, world: World | None = None, driver: Driver | None = None) -> LookedAt:
        made.append(LookedAt(world or World(), conf, driver))
        return made[-1]

    yield make
    for each in made:
        each.observers.ended("gracefully")


def statuses(job: LookedAt) -> dict[int, str]:
    return {batch["batchId"]: batch["status"] for batch in job.get("batches")}


def tries_of(job: LookedAt) -> dict[int, int]:
    return {batch["batchId"]: batch["tries"] for batch in job.get("batches")}


def agrees(job: LookedAt) -> None:
    """Every figure that progress, metrics, status or the plan log have is the same on the page."""
    page, batches = job.get("statistics"), job.get("batches")
    status, progress, found = job.observers.status(), job.observers.progress(), job.scrape()
    assert (page["epoch"], page["host"], page["pid"]) == (status.epoch, status.host, status.pid)
    assert page["startTimeMs"] == status.started_ms and page["nowMs"] == status.written_ms
    assert (page["numUnfinishedBatches"], page["numFailedBatches"], page["numWaitingBatches"]) == (
        status.unfinished, status.failed, status.waiting,
    )  # fmt: skip
    assert page["oldestUnfinishedMs"] == (None if status.oldest_unfinished is None else status.oldest_unfinished.milliseconds)
    assert page["secondsBehind"] == found["kstream_behind_seconds"] == status.seconds_behind(status.written_ms)
    in_state = {
        state: sum(batch["status"] in names for batch in batches)
        for state, names in (
            ("running", ("PROCESSING", "QUEUED")),
            ("retrying", ("RETRYING",)),
            ("held", ("HELD",)),
            ("failed", ("FAILED",)),
        )
    }
    for state, count in in_state.items():
        assert found[f'kstream_pending_batches{{state="{state}"}}'] == count
    assert page["numActiveBatches"] == in_state["running"] and page["numHeldBatches"] == in_state["held"]
    assert page["numTotalCompletedBatches"] == sum(value for name, value in found.items() if name.startswith("kstream_batches_total"))
    assert page["numProcessedRecords"] == found.get('kstream_input_records_total{input="0"}', 0)
    assert page["metricsUrl"] == job.observers.metrics_url
    assert sum(in_state.values()) == status.unfinished and in_state["retrying"] + in_state["held"] == status.waiting
    assert status.last_planned is not None and found["kstream_driver_epoch"] == status.epoch
    assert found["kstream_last_planned_batch_timestamp_seconds"] * 1000 == status.last_planned.milliseconds
    metrics_agree_with_progress(found, progress)
    for said in progress:
        detail = job.get(f"batches/{said['batchId']}")
        assert next(batch for batch in batches if batch["batchId"] == said["batchId"]).items() <= detail.items()
        assert detail["inputSize"] == said["numInputRows"]
        delays = {"schedulingDelay": "schedulingDelay", "processingTime": "processingDelay", "totalDelay": "totalDelay"}
        assert {key: detail[key] for key in delays} == {key: said["durationMs"][name] for key, name in delays.items()}
        assert [(each["id"], each["numRecords"]) for each in detail["inputs"]] == [(s["id"], s["numInputRows"]) for s in said["sources"]]
        assert [(o["outputOpId"], o["name"], o["duration"], o["failureReason"]) for o in detail["operations"]] == [
            (o["id"], o["name"], o["durationMs"], o["failureReason"]) for o in said["outputs"]
        ]
        assert job.get(f"batches/{said['batchId']}/operations") == detail["operations"]
    timeline = job.get("timeline")["buckets"]
    known = [batch for batch in batches if batch["totalDelay"] is not None]
    assert sum(bucket["numBatches"] for bucket in timeline) == len(known)
    assert sum(bucket["numRecords"] for bucket in timeline) == sum(batch["inputSize"] for batch in known)


def metrics_agree_with_progress(found: dict[str, float], progress: Sequence[dict[str, Any]]) -> None:
    good = [each for each in progress if all(output["failureReason"] is None for output in each["outputs"])]
    assert found['kstream_batches_total{result="succeeded"}'] == len(good)
    assert found['kstream_batches_total{result="failed"}'] == len(progress) - len(good)
    assert found.get('kstream_input_records_total{input="0"}', 0) == sum(each["numInputRows"] for each in good)
    if progress:
        assert found["kstream_last_ended_batch_records"] == progress[-1]["numInputRows"]
        assert found["kstream_last_ended_batch_timestamp_seconds"] * 1000 == progress[-1]["batchId"]
    for name, key in ("scheduling", "schedulingDelay"), ("processing", "processingDelay"), ("total", "totalDelay"):
        assert found[f"kstream_batch_{name}_delay_seconds_count"] == len(progress)
        assert found[f"kstream_batch_{name}_delay_seconds_sum"] * 1000 == sum(each["durationMs"][key] for each in progress)


def failed_runs(job: LookedAt) -> float:
    """How many runs of output operations have failed, by the metrics."""
    found = job.scrape().items()
    return sum(value for name, value in found if name.startswith("kstream_output_operations_total") and '"failed"' in name)


def agrees_with_the_log(job: LookedAt) -> None:
    """Each plan of the log is a batch of the page, with the same records. The pending ones are those that have not succeeded."""
    contents = read_log(job.driver.world.store)
    plans = [plan for plan in contents.plans.values() if plan.time.milliseconds > START]
    shown = {batch["batchId"]: batch for batch in job.get("batches")}
    assert len(plans) > 1
    for plan in plans:
        batch = shown[plan.time.milliseconds]
        assert batch["inputSize"] in (None, sum(plan.num_records.values()))
        inputs = job.get(f"batches/{plan.time.milliseconds}")["inputs"]
        assert {each["id"]: each["numRecords"] for each in inputs}.items() <= dict(plan.num_records).items()
    assert {Time(time) for time, batch in shown.items() if batch["status"] != "COMPLETED"} == set(contents.pending)


def test_a_run_with_failures_looks_the_same_to_the_page_progress_metrics_and_the_log(looked_at: Look) -> None:
    job = looked_at()
    job.driver.refuse(SECOND)
    job.start()
    for produced in (3, 5, 0, 7):
        job.driver.tick(produced)
        job.driver.settle()
        agrees(job)
    agrees_with_the_log(job)
    assert statuses(job) == {FOURTH: "COMPLETED", THIRD: "COMPLETED", SECOND: "FAILED", FIRST: "COMPLETED"}
    found = job.scrape()
    assert (found['kstream_input_records_total{input="0"}'], found["kstream_behind_seconds"], failed_runs(job)) == (10, 2, 1)
    (failed,) = job.get("batches?status=failed")
    assert failed["firstFailureReason"] == f"ValueError: refused {SECOND}" and failed["numFailedOutputOps"] == 1
    (operation,) = job.get(f"batches/{SECOND}/operations")
    assert operation["status"] == "FAILED" and operation["failureReason"].startswith("Traceback")
    page = job.get("statistics")
    assert page["state"] == "failing" and page["lastError"]["batchTimeMs"] == SECOND and page["lastError"]["operation"].startswith("0, ")
    assert [d["kind"] for d in job.get("decisions") if d["batchTimeMs"] == SECOND] == ["error"]
    assert [b["batchId"] for b in job.get("batches?limit=2")] == [FOURTH, THIRD]


def test_a_run_over_logs_has_the_ranges_of_the_plan_log_and_the_lag_of_the_metrics(looked_at: Look) -> None:
    logs = MemoryLog({A: [], B: []})
    world, conf = World(), {"spark.streaming.kstream.log.maxRatePerPartition": "3"}

    def build(host: FakeHost, driver: Driver) -> None:
        driver.output(MemoryStream(host, logs))

    job = looked_at(conf, driver=Driver(world, conf, build=build))
    driver = job.driver
    driver.before_job = lambda _time: driver.clock.advance(50, wait=False)  # each batch takes a moment
    job.start()
    plans: dict[int, LogPlan] = {}
    for of_a, of_b in ((2, 1), (8, 3), (0, 0), (1, 0)):
        logs.add(A, *range(of_a))
        logs.add(B, *range(of_b))
        driver.tick()
        driver.settle()
        agrees_about_logs(job)
        plans |= {time.milliseconds: LogPlan.decode(*plan.inputs.values()) for time, plan in read_log(world.store).plans.items()}
    batches = job.get("batches")
    assert len(batches) == 4 and [plans[batch["batchId"]].num_records for batch in batches] == [3, 3, 6, 3]
    for batch in batches:
        (shown,) = job.get(f"batches/{batch['batchId']}")["inputs"]
        assert [(r["topic"], r["partition"], r["fromOffset"], r["untilOffset"]) for r in shown["offsets"]] == [
            (r.topic, r.partition, r.fromOffset, r.untilOffset) for r in plans[batch["batchId"]].ranges
        ]
        assert batch["inputSize"] == shown["numRecords"] == plans[batch["batchId"]].num_records
    (lag,) = job.get("lag")
    (topic,) = lag["topics"]
    assert [(p["partition"], p["records"]) for p in topic["partitions"]] == [("0", 0), ("1", 0)], "the limit has caught up"
    statistics = job.get("statistics")
    assert statistics["numReceivedRecords"] == statistics["numProcessedRecords"] == sum(map(len, logs.records.values())) == 15


def agrees_about_logs(job: LookedAt) -> None:
    """The lag is that of metrics and status, and the averages are those of the batches that are listed."""
    page, batches, found = job.get("statistics"), job.get("batches"), job.scrape()
    (lag,) = job.get("lag")
    number = lag["stream"]
    assert lag["records"] == page["lagRecords"] == found[f'kstream_input_lag_records{{input="{number}"}}']
    assert lag["seconds"] == found[f'kstream_input_lag_seconds{{input="{number}"}}']
    assert [lag["records"]] == [each.records for each in job.observers.status().lag]
    for topic in lag["topics"]:
        assert topic["records"] == found[f'kstream_topic_lag_records{{input="{number}",topic="{topic["topic"]}"}}']
        for one in topic["partitions"]:
            labels = f'{{input="{number}",partition="{one["partition"]}",topic="{topic["topic"]}"}}'
            assert one["records"] == one["latest"] - one["offset"] == found[f"kstream_partition_lag_records{labels}"]
            assert one["seconds"] == found[f"kstream_partition_lag_seconds{labels}"]
    assert page["numReceivedRecords"] == sum(batch["inputSize"] for batch in batches)
    assert page["avgInputRate"] == page["numReceivedRecords"] * 1000 / (len(batches) * INTERVAL)
    for name, each in (("avgSchedulingDelay", "schedulingDelay"), ("avgProcessingTime", "processingTime"), ("avgTotalDelay", "totalDelay")):
        assert page[name] == sum(batch[each] for batch in batches) / len(batches)
    assert page["avgProcessingTime"] > 0
    newest = max(batches, key=lambda batch: batch["batchId"])
    assert job.get("timeline")["buckets"][-1]["lagRecords"] == lag["records"], newest


def test_a_batch_between_two_tries_those_it_holds_and_the_one_that_runs_are_told_apart(looked_at: Look) -> None:
    job = looked_at({RETRIES: "2", **HOLD})
    away = job.driver.refuse(FIRST)
    job.start()
    driver = job.driver
    driver.tick_only(2)
    driver.world.wait(lambda: driver.engine.lifecycle.pending().retrying)
    driver.settle()
    agrees(job)
    assert statuses(job) == {FIRST: "RETRYING"} and job.scrape()["kstream_batch_retries_total"] == 0
    (waiting,) = job.get("batches?status=retrying")
    assert waiting["numFailedOutputOps"] == 1 and waiting["firstFailureReason"] == f"ValueError: refused {FIRST}"
    away.clear()
    driver.tick_only(4)  # a second later: the next try is due
    driver.world.wait(lambda: driver.listener.completed() == [FIRST, SECOND])
    driver.settle()
    agrees(job)
    agrees_with_the_log(job)
    first = job.get(f"batches/{FIRST}")
    assert (first["status"], first["tries"], first["firstFailureReason"]) == ("COMPLETED", 2, None)
    assert (job.scrape()["kstream_batch_retries_total"], failed_runs(job)) == (1, 1)


def test_each_try_of_a_batch_is_counted_before_the_batch_ends(looked_at: Look) -> None:
    job = looked_at({RETRIES: "3", **HOLD})
    away = job.driver.refuse(FIRST)
    job.start()
    driver = job.driver
    driver.tick_only(1)
    seen: list[int] = []
    for tries in (1, 2, 3):
        driver.world.wait(lambda tries=tries: tries_of(job).get(FIRST) == tries)
        driver.world.wait(lambda: driver.engine.lifecycle.pending().retrying)
        driver.settle()
        seen.append(tries_of(job)[FIRST])
        if tries == 3:
            away.clear()
        driver.clock.advance(1000 * 2**tries, wait=False)  # the next try is due
    driver.world.wait(lambda: FIRST in driver.listener.completed())
    driver.settle()
    assert seen == [1, 2, 3] and job.get(f"batches/{FIRST}")["tries"] == 4


def test_a_failed_batch_that_succeeds_later_is_counted_once_in_the_timeline(looked_at: Look) -> None:
    job = looked_at(HOLD)
    away = job.driver.refuse(FIRST)
    job.start()
    job.driver.tick(1)
    for _ in range(2):
        job.driver.tick_only(1)
        job.driver.settle()
    agrees(job)
    assert statuses(job) == {THIRD: "HELD", SECOND: "HELD", FIRST: "FAILED"}
    held = job.get(f"batches/{SECOND}")
    assert (held["inputSize"], held["inputs"][0]["facts"], held["operations"]) == (1, {"from": 1, "until": 2}, [])
    (bucket,) = job.get("timeline")["buckets"]
    assert (bucket["numBatches"], bucket["numFailed"], bucket["numRecords"]) == (1, 1, 1)
    away.clear()
    while job.driver.engine.lifecycle.unfinished():
        job.driver.tick_only()
        job.driver.settle()
    agrees_with_the_log(job)
    batches = job.get("batches")
    assert {batch["status"] for batch in batches} == {"COMPLETED"}
    timeline = job.get("timeline")["buckets"]
    assert sum(b["numBatches"] for b in timeline) == len(batches) and sum(b["numFailed"] for b in timeline) == 0
    assert sum(b["numRecords"] for b in timeline) == 3


def test_a_batch_that_runs_is_processing_and_the_next_one_is_queued(looked_at: Look) -> None:
    job = looked_at()
    seen: list[dict[int, str]] = []

    def look(time: int) -> None:
        if time != FIRST:
            return
        job.driver.clock.advance(INTERVAL, wait=False)  # the next batch is planned while this one runs
        job.driver.world.wait(lambda: len(job.driver.engine.lifecycle.unfinished()) == 2)
        assert job.driver.bus.drain(20)
        job.driver.world.wait(lambda: statuses(job).get(SECOND) == "QUEUED")
        seen.append(statuses(job))
        (operation,) = job.get(f"batches/{FIRST}/operations")
        assert operation["status"] == "PROCESSING" and operation["endTime"] is None and operation["duration"] is None
        (running,) = job.get("batches?status=processing")
        assert running["numActiveOutputOps"] == 1 and running["processingTime"] is None and running["schedulingDelay"] is not None

    job.driver.before_job = look
    job.start()
    job.driver.tick(2)
    job.driver.settle()
    assert seen == [{SECOND: "QUEUED", FIRST: "PROCESSING"}]
    assert set(statuses(job).values()) == {"COMPLETED"}


def test_a_receiver_is_shown_as_the_tracker_knows_it(looked_at: Look) -> None:
    world = World()
    driver = ReceiverDriver(world)
    job = looked_at(driver=driver).start()
    driver.receiver.store(1)
    world.wait(driver.waiting)
    driver.settle()
    (shown,) = job.get("receivers")
    assert shown["isActive"] and shown["numStarts"] == 1 and shown["lastError"] is None and shown["lastErrorTime"] is None
    assert (job.get("statistics")["numReceivers"], job.get("statistics")["numActiveReceivers"]) == (1, 1)
    time = driver.tick()
    (blocks,) = [each["blocks"] for each in job.get(f"batches/{time}")["inputs"] if each["id"] == driver.received.id]
    assert len(blocks) == 1 and blocks[0].startswith("input-")
    driver.stop()
    (shown,) = job.get("receivers")
    assert not shown["isActive"] and job.get("statistics")["numInactiveReceivers"] == 1


def test_a_driver_that_is_fenced_says_so(looked_at: Look) -> None:
    world = World()
    first, second = looked_at(world=world).start(), looked_at(world=world)
    first.driver.tick(1)
    assert first.get("statistics")["state"] == "running"
    second.start()
    first.driver.tick_only(1)
    world.wait(lambda: first.driver.fenced)
    assert first.get("statistics")["state"] == "fenced" and second.get("statistics")["state"] == "running"


def test_the_page_asks_neither_the_store_nor_an_input_except_for_the_ledger(looked_at: Look) -> None:
    world = World()
    store = world.store = CountingStore(world.store)
    job = looked_at(world=world).start()
    job.driver.tick(3)
    job.driver.settle()
    job.get("ledger")
    store.take()
    calls = len(job.driver.input.calls)
    for what in ("statistics", "timeline", "batches", f"batches/{FIRST}", "receivers", "lag", "decisions", "settings"):
        job.get(what)
    assert store.take() == [] and len(job.driver.input.calls) == calls


def test_an_outage_is_told_and_the_page_goes_on_while_brokers_are_away(looked_at: Look) -> None:
    job = looked_at({"spark.streaming.kstream.unreachableTimeout": "10min"}).start()
    job.driver.tick(3)

    def away(_time: Time) -> None:
        raise TransientError("the brokers do not answer")

    job.driver.input.before_plan = away
    for _ in range(2):
        job.driver.tick_only(1)
        job.driver.world.wait(lambda: any(each["kind"] == "warning" for each in job.get("decisions")))
    (warning,) = (each for each in job.get("decisions") if each["kind"] == "warning")
    assert "the brokers do not answer" in warning["text"]
    assert job.get("statistics")["numTotalCompletedBatches"] == 1 and statuses(job) == {FIRST: "COMPLETED"}
    outage = job.observers.status().outage
    assert outage is not None and outage.first == Time(SECOND) and job.get("statistics")["outageSinceMs"] == outage.since_ms
    assert "no batch could be planned, and the driver waits" in job.get("statistics")["stateText"]
    job.driver.input.before_plan = lambda _time: None
    job.driver.tick(1)
    assert job.observers.status().outage is None and job.get("statistics")["outageSinceMs"] is None


def test_a_state_that_cannot_be_written_is_told_by_page_metrics_and_status(looked_at: Look) -> None:
    job = looked_at(driver=Driver(World(), build=with_state(2)))
    job.start()

    def refuse(*_: Any) -> Any:
        raise OSError("no space left")

    files = job.driver.engine._generator._parts.states._state_files()  # pyright: ignore
    write, files.write = files.write, refuse
    for _ in range(3):
        job.driver.tick(1)
    sentence = "failing: the state cannot be written, and each batch tries it again: OSError: no space left"
    page = job.get("statistics")
    assert (page["state"], page["stateText"], job.scrape()["kstream_state_write_failed"]) == ("failing", sentence, 1)
    assert judge(job.observers.status()) == ("failing", sentence)
    files.write = write
    job.driver.tick(1)
    assert (job.get("statistics")["state"], job.scrape()["kstream_state_write_failed"]) == ("running", 0)
