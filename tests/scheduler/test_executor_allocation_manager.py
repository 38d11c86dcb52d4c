"""The ExecutorAllocationManager: which batches count, what Spark is asked at the end of a scaling interval, and its life in a driver."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from kstream.batch import BatchInfo, OutputOperationInfo
from kstream.batch_time import Time
from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.listener import StreamingListenerBatchCompleted, StreamingListenerBatchSubmitted
from kstream.scheduler import executor_allocation_manager
from kstream.scheduler.executor_allocation_manager import ExecutorAllocationManager
from kstream.scheduler.executor_allocation_policy import ExecutorAllocationPolicy, Scaling
from kstream.testing import ManualClock
from tests.harness import INTERVAL, Driver, World
from tests.receiver_driver import ReceiverDriver

INTERVAL_MS = 60_000
ON = {"spark.streaming.dynamicAllocation.enabled": "true", "spark.master": "spark://host:7077"}


class Cluster:
    """An ExecutorAllocationClient: `executors_now` live, each with two cores. `asked` has what it was asked, in order."""

    def __init__(self, *executors: str) -> None:
        self.executors_now = dict.fromkeys(executors, 2)
        self.asked: list[tuple[str, Any]] = []
        self.busy: set[str] = set()
        self.takes = True
        self.error: Exception | None = None
        self.can = True

    def can_allocate(self) -> bool:
        return self.can

    def executors(self) -> Mapping[str, int]:
        if self.error is not None:
            raise self.error
        return self.executors_now

    def request_total_executors(self, total: int) -> bool:
        self.asked.append(("request", total))
        return self.takes

    def kill_executor(self, executor: str) -> bool:
        self.asked.append(("kill", executor))
        return executor not in self.busy


class Job:
    """A manager with a clock that the test moves; its receiver runs on executor 1."""

    def __init__(self, policy: ExecutorAllocationPolicy | None = None, clock: Any = None) -> None:
        self.cluster = Cluster("1", "2")
        self.clock = clock or ManualClock()
        self.newest: Time | None = None
        policy = policy or ExecutorAllocationPolicy()
        self.manager = ExecutorAllocationManager(policy, self.cluster, lambda: {"1": 1}, lambda: self.newest, 1000, self.clock)
        self.manager.start()
        self.clock.wait_for_waiters()

    def ends(self, *processing_ms: int | None, failure: str | None = None, tries: int = 1) -> None:
        """Let batches end that took so long."""
        for delay in processing_ms:
            begun, end = (None, None) if delay is None else (10, 10 + delay)
            output = OutputOperationInfo(Time(1000), 0, "foreachRDD", "", begun, end, failure)
            self.manager.onBatchCompleted(StreamingListenerBatchCompleted(BatchInfo(Time(1000), {}, 5, begun, end, {0: output}, tries)))

    def pass_interval(self) -> list[tuple[str, Any]]:
        """Let a scaling interval pass; what Spark was asked at its end."""
        self.cluster.asked.clear()
        self.clock.advance(INTERVAL_MS)
        return self.cluster.asked


@pytest.fixture
def job() -> Iterator[Job]:
    made = Job()
    yield made
    made.manager.stop()


# -- what counts


@pytest.mark.parametrize(
    ("average_ms", "asked"),
    [
        (1000, [("request", 3)]), (2000, [("request", 4)]), (901, [("request", 3)]), (900, [("request", 3)]), (899, []), (301, []),
        (300, [("request", 2), ("kill", "2")]), (299, [("request", 2), ("kill", "2")]),
    ],
)  # fmt: skip
def test_the_average_processing_time_of_an_interval_decides(job: Job, average_ms: int, asked: list[Any]) -> None:
    """Spark behaviour EA1."""
    job.ends(average_ms - 100, average_ms, average_ms + 100)
    assert job.pass_interval() == asked


def test_each_interval_counts_its_own_batches(job: Job) -> None:
    """Spark behaviour EA5."""
    job.ends(9000)
    assert job.pass_interval() == [("request", 11)]
    job.ends(500)
    assert job.pass_interval() == []


def test_an_interval_without_a_finished_batch_changes_nothing(job: Job) -> None:
    assert job.pass_interval() == [] and job.manager.recent() == []


def test_batches_with_a_failed_output_or_without_a_job_do_not_count(job: Job) -> None:
    """Spark behaviour EA5."""
    job.ends(5000, failure="ValueError")
    job.ends(None)
    assert job.pass_interval() == []
    job.ends(5000, failure="ValueError")
    job.ends(500)
    assert job.pass_interval() == [] and job.manager.recent()[-1][1].ratio == 0.5


def test_an_interval_of_batches_without_a_job_has_the_ratio_0() -> None:
    """Else a job that skips empty batches would keep its executors through the night."""
    idle, waiting, running = Job(), Job(), Job()
    for job in (idle, running):
        job.newest = Time(1000)
    submitted = BatchInfo(Time(1000), {}, 5, None, None, {})
    running.manager.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted))
    assert [job.pass_interval() for job in (idle, waiting, running)] == [[("request", 2), ("kill", "2")], [], []]
    assert idle.pass_interval() == [], "no batch was planned since: brokers are away"
    for job in (idle, waiting, running):
        job.manager.stop()


def test_an_interval_in_which_only_batches_that_were_tried_again_have_ended_changes_nothing(job: Job) -> None:
    """They are slow and fail, and all have succeeded at the end of the interval: that is no idleness."""
    job.newest = Time(6000)
    job.ends(5000, failure="ValueError")
    job.ends(9900, 9900, tries=2)
    assert job.pass_interval() == [] and job.manager.recent() == []
    job.newest = Time(7000)
    assert job.pass_interval() == [("request", 2), ("kill", "2")], "each interval counts its own batches"


# -- what Spark is asked, and what it answers


def test_spark_is_asked_once_an_interval_and_the_log_has_a_line_for_it(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "kstream"):
        job.ends(950)
        job.pass_interval()
        job.ends(100)
        job.pass_interval()
        job.ends(500)
        job.pass_interval()
    assert caplog.messages == [
        "executor allocation: ratio 0.95 over 60 s, asks for 1 more, 3 in all",
        "executor allocation: ratio 0.10 over 60 s, ends executor 2, 1 in all",
    ]
    assert job.manager.recent()[-1][1].scaling is Scaling.NONE
    assert [decision.scaling for _, decision in job.manager.recent()] == [Scaling.UP, Scaling.DOWN, Scaling.NONE]
    moments = [at_ms for at_ms, _ in job.manager.recent()]
    assert moments == sorted(set(moments))


def test_as_many_as_live_are_asked_for_before_one_ends_and_no_other_ends(job: Job) -> None:
    """Else Spark would take the number that was asked for as zero, and replace no lost executor."""
    job.cluster.executors_now["3"] = 2
    job.ends(100)
    assert job.pass_interval() == [("request", 3), ("kill", "3")]


def test_an_executor_that_is_ending_counts_no_more_though_spark_lists_it(job: Job) -> None:
    """To ask for as many as are listed would make Spark replace it."""
    job.cluster.executors_now.update({"3": 2, "4": 2})
    for asked in ([("request", 4), ("kill", "4")], [("request", 3), ("kill", "3")], [("request", 2), ("kill", "2")], []):
        job.ends(100)
        assert job.pass_interval() == asked
    job.cluster.executors_now = {"1": 2, "5": 2}
    job.ends(1000)
    assert job.pass_interval() == [("request", 3)]


def test_an_executor_that_runs_a_task_is_passed_over(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.cluster.executors_now["3"] = 2
    job.cluster.busy = {"3"}
    job.ends(100)
    assert job.pass_interval() == [("request", 3), ("kill", "3"), ("kill", "2")]
    job.cluster.executors_now = dict.fromkeys("134", 2)
    job.cluster.busy = {"3", "4"}
    with caplog.at_level(logging.INFO, "kstream"):
        job.ends(100)
        job.pass_interval()
    assert caplog.messages == [
        "executor allocation: ratio 0.10 over 60 s, stays at 3: each executor that may end runs a task at the moment"
    ]


def test_an_error_of_spark_is_a_warning_and_the_next_interval_tries_again(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.cluster.error = RuntimeError("the JVM\ndoes not answer")
    job.ends(950)
    assert job.pass_interval() == []
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.messages[0].endswith("the next scaling interval tries again: RuntimeError: the JVM")
    job.cluster.error = None
    job.ends(950)
    assert job.pass_interval() == [("request", 3)]


def test_a_request_that_is_not_taken_is_a_warning_and_no_executor_ends(job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.cluster.takes = False
    job.ends(950)
    assert job.pass_interval() == [("request", 3)]
    job.ends(100)
    assert job.pass_interval() == [("request", 2)]
    assert [message.split(",")[0] for message in caplog.messages] == [
        "executor allocation: the cluster manager has not taken the request for 3 executors",
        "executor allocation: the cluster manager has not taken the request for 2 executors",
    ]


def test_why_the_number_stays_is_logged_once_and_not_every_interval(caplog: pytest.LogCaptureFixture) -> None:
    job = Job(ExecutorAllocationPolicy(min_executors=2, max_executors=2))
    with caplog.at_level(logging.INFO, "kstream.scheduler"):
        for delay in (2000, 2000, 100, 100):
            job.ends(delay)
            job.pass_interval()
    job.manager.stop()
    assert caplog.messages == [
        "executor allocation: ratio 2.00 over 60 s, stays at 2: the maximum is 2",
        "executor allocation: ratio 0.10 over 60 s, stays at 2: the minimum is 2",
    ]


def test_a_stop_waits_a_moment_for_a_request_under_way_and_then_no_executor_ends(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(executor_allocation_manager, "LAST_REQUEST_S", 0.01)
    asked, answered = threading.Event(), threading.Event()

    def answer_late(total: int) -> bool:
        asked.set()
        return answered.wait(20)

    monkeypatch.setattr(job.cluster, "request_total_executors", answer_late)
    job.ends(100)
    thread = job.manager.timer_thread()
    threading.Thread(target=job.pass_interval, daemon=True).start()  # a ManualClock waits for the tick
    assert asked.wait(20) and thread is not None
    job.manager.stop()
    assert thread.is_alive()
    answered.set()
    thread.join(20)
    assert job.cluster.asked == [], "the request to end an executor would have followed"


def test_after_a_stop_spark_is_asked_for_nothing(job: Job) -> None:
    job.ends(5000)
    job.manager.stop()
    assert job.pass_interval() == [] and job.manager.timer_thread() is None


def test_a_clock_that_is_set_back_makes_no_scaling_interval_longer() -> None:
    """Batches go on at their pace, too."""

    class SetBack(ManualClock):
        back_ms = 0

        def time_ms(self) -> int:
            return super().time_ms() - self.back_ms

        def monotonic_ms(self) -> int:
            return super().time_ms()

        def advance(self, milliseconds: int, wait: bool = True) -> None:
            self.set_time(self.monotonic_ms() + milliseconds, wait)

    job = Job(clock=SetBack(100_000_000))
    job.clock.back_ms = 3_600_000
    job.ends(950)
    assert job.pass_interval() == [("request", 3)]
    job.manager.stop()


# -- its making


def make(cluster: Cluster | None, conf: Mapping[str, str], receivers: int = 0) -> ExecutorAllocationManager | None:
    return ExecutorAllocationManager.createIfEnabled(cluster, Settings(conf), receivers, dict, lambda: None, 1000, ManualClock())


def test_it_is_made_only_if_it_is_switched_on() -> None:
    """Spark behaviour EA5."""
    cluster = Cluster()
    assert make(cluster, {}) is None
    assert make(cluster, ON) is not None
    with pytest.raises(ConfigurationError, match="both streaming and core"):
        make(cluster, {**ON, "spark.dynamicAllocation.enabled": "true"})


def test_a_cluster_manager_that_cannot_give_executors_is_refused() -> None:
    cluster = Cluster()
    cluster.can = False
    for client in (cluster, None):
        with pytest.raises(ConfigurationError, match=r"cannot give or end executors while an application runs\. Set it to false"):
            make(client, ON)


def test_its_making_warns_of_receivers_without_a_write_ahead_log(caplog: pytest.LogCaptureFixture) -> None:
    make(Cluster(), {**ON, "spark.streaming.dynamicAllocation.maxExecutors": "1"}, receivers=2)
    assert len(caplog.messages) == 2 and "data can be lost" in caplog.messages[0]


# -- in a running driver

SOON = {**ON, "spark.streaming.dynamicAllocation.scalingInterval": f"{INTERVAL * 3}ms"}


def test_a_driver_asks_for_executors_from_its_start_to_its_stop() -> None:
    world, cluster = World(), Cluster("1", "2")
    driver = Driver(world, SOON, allocation=cluster).start()
    for _ in range(4):
        driver.tick(5)  # no time passes on this clock while a batch runs
    assert cluster.asked == [("request", 2), ("kill", "2")]
    assert driver.engine.allocation is not None and driver.engine.allocation.recent()
    driver.stop()
    assert driver.engine.timer_threads() == []
    cluster.asked.clear()
    world.clock.advance(INTERVAL * 10)
    assert cluster.asked == []


def test_a_driver_that_skips_its_empty_batches_gives_executors_back() -> None:
    cluster = Cluster("1", "2")
    world = World()
    driver = Driver(world, {**SOON, "spark.streaming.kstream.skipEmptyBatches": "true"}, allocation=cluster).start()
    for _ in range(4):
        driver.tick_only()
        driver.settle()
    driver.stop()
    assert world.attempts == [] and cluster.asked == [("request", 2), ("kill", "2")]


def test_a_driver_without_the_setting_asks_for_nothing() -> None:
    cluster = Cluster("1", "2")
    driver = Driver(World(), {**SOON, "spark.streaming.dynamicAllocation.enabled": "false"}, allocation=cluster).start()
    for _ in range(4):
        driver.tick(5)
    driver.stop()
    assert cluster.asked == [] and driver.engine.allocation is None


def test_the_executor_of_a_running_receiver_does_not_end() -> None:
    """The receivers of tests run on the executor `driver`."""
    cluster = Cluster("driver", "2", "3")
    driver = ReceiverDriver(World(), conf=SOON, allocation=cluster).start()
    for _ in range(7):
        driver.receiver.store(1)
        driver.tick()
        if ("kill", "3") in cluster.asked:
            cluster.executors_now.pop("3", None)
    assert [asked for asked in cluster.asked if asked[0] == "kill"] == [("kill", "3"), ("kill", "2")]
    driver.stop(graceful=False)


def test_a_stop_ends_it_before_the_receivers_store_their_last_blocks() -> None:
    driver = ReceiverDriver(World(), conf=SOON, allocation=Cluster("driver")).start()
    manager = driver.engine.allocation
    assert manager is not None and manager.timer_thread() is not None
    threads: list[Any] = []
    receiver: Any = driver.receiver
    receiver.on_stop = lambda: threads.append(manager.timer_thread())
    driver.stop()
    assert threads == [None]


def test_what_cannot_work_is_refused_before_an_epoch_is_taken() -> None:
    world = World()
    with pytest.raises(ConfigurationError, match="cannot give or end executors"):
        Driver(world, SOON).start()
    assert world.store.list("") == []
