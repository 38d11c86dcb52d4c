"""How many executors a job should have for the speed of its batches, and which of them may end."""

from __future__ import annotations

import pytest

from kstream.conf import Settings
from kstream.errors import ConfigurationError
from kstream.scheduler.executor_allocation_policy import (
    ExecutorAllocationPolicy,
    Scaling,
    allocation_policy,
    removable_executors,
    warnings_of,
)

DYNAMIC = "spark.streaming.dynamicAllocation."
ON = {f"{DYNAMIC}enabled": "true", "spark.master": "spark://host:7077"}


def policy_of(receivers: int = 0, **values: str) -> ExecutorAllocationPolicy:
    found = allocation_policy(Settings({**ON, **{f"{DYNAMIC}{key}": value for key, value in values.items()}}), receivers)
    assert found is not None
    return found


def executors(*ids: int, cores: int = 2) -> dict[str, int]:
    return {str(number): cores for number in ids}


# -- when and how far


@pytest.mark.parametrize(
    ("ratio", "scaling", "total"),
    [
        (1.0, Scaling.UP, 3), (2.0, Scaling.UP, 4), (2.5, Scaling.UP, 5), (0.901, Scaling.UP, 3), (0.9, Scaling.UP, 3),
        (0.899, Scaling.NONE, 2), (0.301, Scaling.NONE, 2), (0.3, Scaling.DOWN, 1), (0.299, Scaling.DOWN, 1), (0.0, Scaling.DOWN, 1),
    ],
)  # fmt: skip
def test_the_ratio_decides_and_both_bounds_belong_to_their_side(ratio: float, scaling: Scaling, total: int) -> None:
    """Spark behaviour EA1."""
    decision = ExecutorAllocationPolicy().decide(ratio, executors(1, 2), {"1": 1})
    assert (decision.scaling, decision.executors, decision.total) == (scaling, 2, total)
    assert decision.removable == (("2",) if scaling is Scaling.DOWN else ())


@pytest.mark.parametrize(
    ("receivers", "values", "totals"),
    [
        (1, {}, {(0, 1): 1, (1, 1): 2, (2, 2): 4}),
        (2, {}, {(0, 1): 2, (1, 1): 2, (2, 2): 4}),
        (1, {"minExecutors": "2"}, {(0, 1): 2, (0, 3): 3, (1, 2): 3, (2, 2): 4}),
        (1, {"maxExecutors": "2"}, {(0, 1): 1, (0, 3): 2, (1, 2): 2, (2, 1): 2, (2, 2): 2}),
    ],
    ids=["one receiver", "two receivers", "a minimum", "a maximum"],
)
def test_what_is_asked_for_lies_within_the_minimum_and_the_maximum(
    receivers: int, values: dict[str, str], totals: dict[tuple[int, int], int]
) -> None:
    """Spark behaviour EA2."""
    policy = policy_of(receivers, **values)
    assert {case: policy.target_total(*case) for case in totals} == totals


@pytest.mark.parametrize("ratio", [0.0, 0.5])
def test_a_job_below_its_minimum_asks_for_it_whatever_the_ratio_is(ratio: float) -> None:
    """Here; Spark waits until the ratio asks for more."""
    policy = ExecutorAllocationPolicy(min_executors=3)
    decision = policy.decide(ratio, executors(1), {})
    assert (decision.scaling, decision.total) == (Scaling.UP, 3)
    assert policy.decide(ratio, executors(1, 2, 3), {}).scaling is Scaling.NONE


def test_to_ask_for_no_executor_more_is_a_mistake_of_the_caller() -> None:
    """Spark behaviour EA2."""
    for new in (0, -1):
        with pytest.raises(ValueError, match="at least one executor more"):
            ExecutorAllocationPolicy().target_total(2, new)


# -- which may end


@pytest.mark.parametrize(
    ("least", "ids", "receivers", "ends"),
    [
        (1, (1, 2), {"1": 1}, ("2",)),
        (1, (1, 2), {"1": 1, "2": 1}, ()),
        (1, (1,), {}, ()),
        (1, (1,), {"1": 1}, ()),
        (2, (1, 2, 3), {"1": 1, "2": 1}, ("3",)),
        (2, (1, 2), {"1": 1}, ()),
        (1, (1, 2), {}, ("2", "1")),
    ],
    ids=["one is free", "none is free", "the only one", "the only one receives", "above a minimum", "at the minimum", "all are free"],
)
def test_only_an_executor_without_a_receiver_ends_and_only_above_the_minimum(
    least: int, ids: tuple[int, ...], receivers: dict[str, int], ends: tuple[str, ...]
) -> None:
    """Spark behaviour EA3."""
    decision = ExecutorAllocationPolicy(min_executors=least).decide(0.1, executors(*ids), receivers)
    assert decision.removable == ends
    assert decision.scaling is (Scaling.DOWN if ends else Scaling.NONE) and bool(decision.reason) is not bool(ends)


@pytest.mark.parametrize(("least", "receivers", "totals"), [(1, 3, {4: 3, 3: 3, 2: 2}), (3, 1, {4: 3, 3: 3}), (2, 2, {3: 2, 2: 2})])
def test_a_job_shrinks_below_neither_its_minimum_nor_its_receivers(least: int, receivers: int, totals: dict[int, int]) -> None:
    """Here; Spark shrinks to an explicit minimum, and then a receiver that starts again may find no core."""
    policy = policy_of(receivers, minExecutors=str(least))
    on_one = {"1": receivers}
    assert {count: policy.decide(0.1, executors(*range(1, count + 1), cores=4), on_one).total for count in totals} == totals
    if receivers > least:
        assert policy.decide(0.1, executors(1, 2, cores=4), on_one).reason == f"the job has {receivers} receivers"


def test_the_receivers_alone_are_no_reason_to_ask_for_executors() -> None:
    """An explicit minimum, and a maximum below the receivers, are the user's word."""
    policy = policy_of(3, minExecutors="1", maxExecutors="2")
    assert policy.decide(0.5, executors(1, cores=4), {}).scaling is Scaling.NONE
    assert policy.decide(1.0, executors(1, 2, cores=4), {}).total == 2


def test_the_executor_that_came_last_ends_first() -> None:
    """The older ones have what batches have cached."""
    assert removable_executors(executors(9, 10, 2), {}) == ["10", "9", "2"]
    assert removable_executors({"host-a": 1, "7": 1}, {}) == ["7", "host-a"]


def test_the_last_core_for_batches_never_ends() -> None:
    """In Spark it does: then a job whose receivers hold all cores never ends a batch again, and so never grows again."""
    assert removable_executors(executors(1, 2, cores=1), {"1": 1}) == []
    assert removable_executors(executors(1, 2, 3, cores=1), {"1": 1}) == ["3", "2"]
    assert removable_executors({"1": 1, "2": 0}, {"1": 1}) == [], "an executor that can run no task leaves the others what they have"


def test_a_receiver_that_may_start_on_an_executor_keeps_it() -> None:
    """As `ReceiverTracker.receivers_on_executors` counts one that has not registered yet."""
    assert removable_executors(executors(1, 2, 3), {"1": 1, "2": 1, "3": 0}) == ["3"]


# -- the settings


def test_it_is_off_unless_its_own_setting_is_true() -> None:
    """Spark behaviour EA5."""
    assert allocation_policy(Settings({})) is None
    assert allocation_policy(Settings({"spark.dynamicAllocation.enabled": "true"})) is None
    assert allocation_policy(Settings({**ON, f"{DYNAMIC}enabled": "false", f"{DYNAMIC}minExecutors": "0"})) is None
    assert policy_of() == ExecutorAllocationPolicy(60, 0.9, 0.3, 1, None)


def test_it_is_refused_beside_sparks_own_dynamic_allocation() -> None:
    """Spark behaviour EA5."""
    with pytest.raises(ConfigurationError, match="cannot be enabled for both streaming and core at the same time"):
        allocation_policy(Settings({**ON, "spark.dynamicAllocation.enabled": "true"}))


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*, 3]"])
def test_in_local_mode_it_is_refused_with_what_to_do(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"the driver is the only executor\. Set it to false, or"):
        allocation_policy(Settings({**ON, "spark.master": master}))
    assert allocation_policy(Settings({**ON, "spark.master": "local-cluster[2,1,1024]"})) is not None


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"minExecutors": "0"}, "minExecutors must be above zero, it is 0"),
        ({"minExecutors": "-1"}, "minExecutors must be above zero, it is -1"),
        ({"maxExecutors": "0"}, "maxExecutors must be above zero, it is 0"),
        ({"minExecutors": "4", "maxExecutors": "3"}, "maxExecutors must not be less than .*: they are 3 and 4"),
        ({"scalingInterval": "0"}, "scalingInterval must be above zero"),
        ({"scalingUpRatio": "0"}, "scalingUpRatio must be above zero"),
        ({"scalingUpRatio": "nan"}, "scalingUpRatio must be above zero"),
        ({"scalingDownRatio": "-0.1"}, "scalingDownRatio must be above zero"),
        ({"scalingUpRatio": "0.3"}, "scalingUpRatio must be more than .*: they are 0.3 and 0.3"),
        ({"scalingUpRatio": "0.2"}, "scalingUpRatio must be more than .*: they are 0.2 and 0.3"),
    ],
)
def test_settings_that_cannot_work_are_refused(values: dict[str, str], said: str) -> None:
    """Spark behaviour EA4."""
    with pytest.raises(ConfigurationError, match=said) as caught:
        policy_of(**values)
    assert caught.value.facts["key"].startswith(DYNAMIC)


def test_settings_at_the_edge_are_accepted() -> None:
    """Spark behaviour EA4: a maximum below the number of receivers is accepted, too."""
    equal = policy_of(minExecutors="3", maxExecutors="3")
    assert (equal.min_executors, equal.max_executors) == (3, 3)
    fewer = policy_of(2, maxExecutors="1")
    assert (fewer.min_executors, fewer.max_executors, fewer.target_total(0, 1)) == (2, 1, 2)


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("90s", 90), ("2m", 120), ("1500ms", 1.5)])
def test_a_scaling_interval_without_a_unit_is_in_seconds(text: str, seconds: float) -> None:
    assert policy_of(scalingInterval=text).interval_s == seconds


def test_a_start_warns_of_received_blocks_that_end_with_their_executors_and_of_too_low_a_maximum() -> None:
    low = ExecutorAllocationPolicy(max_executors=1)
    off = Settings({})
    lost, few = warnings_of(off, low, 2, has_log=False)
    assert "data can be lost" in lost and "writeAheadLog.enable=true" in lost
    assert "maxExecutors is 1, less than the 2 receivers" in few
    assert warnings_of(off, low, 2, has_log=True) == [few]
    assert warnings_of(off, low, 0, has_log=False) == [] == warnings_of(off, low, 1, has_log=True)


def test_a_start_warns_of_receivers_under_sparks_own_dynamic_allocation_too() -> None:
    on = {"spark.dynamicAllocation.enabled": "true", "spark.master": "spark://h:7077"}
    (lost,) = warnings_of(Settings(on), None, 1, has_log=False)
    assert lost.startswith("spark.dynamicAllocation.enabled is true: ") and "data can be lost" in lost
    local = Settings({**on, "spark.master": "local[2]"})
    assert warnings_of(Settings(on), None, 1, has_log=True) == [] == warnings_of(local, None, 1, has_log=False)
    assert warnings_of(Settings(on), None, 0, has_log=False) == [] == warnings_of(Settings({}), None, 1, has_log=False)
