"""How long a start waits for the cores of its receivers, and what it says; the clock is the test's."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

import pytest

from kstream.errors import ConfigurationError, NotEnoughCoresError
from kstream.spark.executors import ReceiverCores, most_cores, wait_for_cores, warn_of_limit

LONGEST_S = 600.0


class Waiting:
    """A start that waits. `cluster(now)` is the number of cores of each executor at that second; `stop_at` is when a stop is wanted."""

    def __init__(self, cluster: Callable[[float], Sequence[int]], stop_at: float = float("inf"), local: bool = False) -> None:
        self.now = 0.0
        self.cluster = cluster
        self.stop_at = stop_at
        self.local = local

    def wait_for(self, cores: ReceiverCores) -> float:
        """How many seconds it has waited."""
        wait_for_cores(cores, lambda: self.cluster(self.now), self.local, LONGEST_S, lambda: self.now, self.stopped)
        return self.now

    def stopped(self, seconds: float) -> bool:
        self.now += seconds
        return self.now >= self.stop_at


def words(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("receivers", "task_cpus", "executors", "enough"),
    [
        (2, 1, [1, 1], False),
        (2, 1, [1, 1, 1], True),
        (2, 1, [3], True),
        (1, 2, [3], False),
        (1, 2, [3, 2], True),
        (1, 2, [1, 1, 1, 1], False),
        (1, 1, [], False),
    ],
)
def test_the_cores_are_enough_if_a_task_of_a_batch_fits_beside_the_receivers(
    receivers: int, task_cpus: int, executors: list[int], enough: bool
) -> None:
    assert ReceiverCores(receivers, task_cpus).enough(executors) is enough


def test_nothing_is_waited_for_where_the_cores_are_there() -> None:
    assert Waiting(lambda _now: [1, 1, 1]).wait_for(ReceiverCores(2)) == 0


@pytest.mark.parametrize("first", [[], [1], [1, 1]], ids=["no executor", "one of three", "two of three"])
def test_a_late_executor_is_waited_for_however_many_came_before_it(first: list[int]) -> None:
    assert Waiting(lambda now: [1, 1, 1] if now >= 400 else first).wait_for(ReceiverCores(2)) == 400


@pytest.mark.parametrize("there", [[], [1, 1]], ids=["no executor", "two of three"])
def test_the_start_fails_after_the_waiting_time_whether_none_or_some_have_come(there: list[int]) -> None:
    waiting = Waiting(lambda _now: there)
    with pytest.raises(NotEnoughCoresError) as caught:
        waiting.wait_for(ReceiverCores(2))
    assert waiting.now == LONGEST_S
    facts = {"receivers": 2, "needed": 3, "cores": len(there), "executors": len(there), "waited_s": LONGEST_S}
    assert caught.value.facts == facts and caught.value.retriable
    message = str(caught.value)
    assert f"The application has {len(there)} cores on {len(there)} executors" in message and "3 in all" in message
    assert "spark.streaming.kstream.receiver.maxRegisteredResourcesWaitingTime" in message


def test_the_message_says_if_the_cores_are_enough_in_all_and_lie_on_too_small_executors() -> None:
    with pytest.raises(
        NotEnoughCoresError, match="6 cores on 2 executors, which can run 2 tasks: a task of 2 cores never spans two executors"
    ):
        Waiting(lambda _now: [3, 3]).wait_for(ReceiverCores(2, task_cpus=2))


def test_a_line_every_30_seconds_says_what_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        Waiting(lambda now: [1, 1, 1] if now >= 100 else [1] if now >= 40 else []).wait_for(ReceiverCores(2))
    need = "2 receivers take a core each for as long as they run, and batches need 1 more: 3 in all"
    assert words(caplog) == [
        f"the receivers wait for cores for 30 s of at most 600 s: {need}. The application has 0 cores on 0 executors",
        f"the receivers wait for cores for 60 s of at most 600 s: {need}. The application has 1 cores on 1 executors",
        f"the receivers wait for cores for 90 s of at most 600 s: {need}. The application has 1 cores on 1 executors",
    ]


def test_a_stop_ends_the_waiting_at_once_and_without_an_error() -> None:
    assert Waiting(lambda _now: [1], stop_at=7).wait_for(ReceiverCores(2)) == 7


def test_in_local_mode_too_few_cores_are_an_error_at_once_that_names_both_numbers() -> None:
    waiting = Waiting(lambda _now: [2], local=True)
    with pytest.raises(ConfigurationError, match=r"2 receivers take a core each .* there are 2 cores in all.* local\[3\]"):
        waiting.wait_for(ReceiverCores(2))
    assert waiting.now == 0


def test_in_local_mode_spark_is_given_a_moment_to_list_its_driver() -> None:
    assert Waiting(lambda now: [3] if now else [], local=True).wait_for(ReceiverCores(2)) > 0


@pytest.mark.parametrize(
    ("master", "conf", "most"),
    [
        ("spark://m:7077", {"spark.cores.max": "2"}, [2]),
        ("spark://m:7077", {"spark.executor.instances": "2"}, None),
        ("spark://m:7077", {}, None),
        ("yarn", {}, [1, 1]),
        ("yarn", {"spark.cores.max": "1", "spark.executor.instances": "3", "spark.executor.cores": "4"}, [4, 4, 4]),
        ("k8s://https://m", {"spark.executor.instances": "1", "spark.executor.cores": "2"}, [2]),
        ("yarn", {"spark.dynamicAllocation.enabled": "true", "spark.executor.instances": "1"}, None),
        ("yarn", {"spark.dynamicAllocation.enabled": "true", "spark.dynamicAllocation.maxExecutors": "2"}, [1, 1]),
        ("local[2]", {"spark.cores.max": "1"}, None),
    ],
)
def test_the_settings_tell_how_many_cores_a_cluster_can_give(master: str, conf: dict[str, str], most: list[int] | None) -> None:
    found = most_cores(conf, master)
    assert (None if found is None else found[0]) == most


def test_settings_that_can_never_give_enough_cores_are_named_in_the_log_before_the_waiting(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        warn_of_limit(ReceiverCores(2), most_cores({"spark.cores.max": "2"}, "spark://m:7077"))
        warn_of_limit(ReceiverCores(2), most_cores({"spark.cores.max": "3"}, "spark://m:7077"))
        warn_of_limit(ReceiverCores(2), None)
    [only] = words(caplog)
    assert "(spark.cores.max=2) give the application at most 2 cores" in only and "3 in all" in only
