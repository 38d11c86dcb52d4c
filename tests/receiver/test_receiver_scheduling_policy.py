"""Which executors a receiver is given (Spark behaviours RS1–RS3)."""

from __future__ import annotations

from collections import Counter

import pytest

from kstream.receiver.receiver_scheduling_policy import (
    ExecutorLocation,
    HostLocation,
    Location,
    ReceiverSchedulingPolicy,
    ReceiverState,
    ReceiverTrackingInfo,
)

POLICY = ReceiverSchedulingPolicy


def executors(*numbers: int) -> list[ExecutorLocation]:
    return [ExecutorLocation(f"host{number}", str(number)) for number in numbers]


def active(stream: int, number: int) -> ReceiverTrackingInfo:
    return ReceiverTrackingInfo(stream, ReceiverState.ACTIVE, running=executors(number)[0])


def scheduled(stream: int, *candidates: Location) -> ReceiverTrackingInfo:
    return ReceiverTrackingInfo(stream, ReceiverState.SCHEDULED, scheduled=candidates)


def infos(*known: ReceiverTrackingInfo) -> dict[int, ReceiverTrackingInfo]:
    return {info.stream_id: info for info in known}


def test_without_executors_a_receiver_that_starts_again_has_no_candidates() -> None:
    """Spark behaviour RS1."""
    assert POLICY.rescheduleReceiver(0, None, {}, []) == []
    assert POLICY.rescheduleReceiver(0, "host1", {}, []) == []


def test_the_preferred_host_and_the_idle_executor_are_the_candidates() -> None:
    """Spark behaviour RS1."""
    found = POLICY.rescheduleReceiver(1, "host1", infos(active(0, 1)), executors(1, 2))
    assert found == [HostLocation("host1"), ExecutorLocation("host2", "2")]


def test_all_idle_executors_are_candidates_when_there_is_one() -> None:
    """Spark behaviour RS1."""
    assert POLICY.rescheduleReceiver(1, None, infos(active(0, 1)), executors(1, 2, 3, 4, 5)) == executors(2, 3, 4, 5)


def test_when_none_is_idle_all_with_the_least_weight_are_candidates() -> None:
    """RS1: weights 1.5, 0.5, 1.0, 0.5 and 0.5."""
    known = infos(
        active(0, 1), scheduled(1, *executors(2, 3)), scheduled(2, *executors(1, 3)), scheduled(3, *executors(4, 5)),
    )  # fmt: skip
    assert POLICY.rescheduleReceiver(4, None, known, executors(1, 2, 3, 4, 5)) == executors(2, 4, 5)


def test_a_scheduled_receiver_weighs_one_by_its_candidates_and_an_inactive_one_nothing() -> None:
    """RS1: 1/3 on executor 1, as a bare host counts among the candidates; 1/2 on executor 2."""
    known = infos(scheduled(0, *executors(1), HostLocation("x"), HostLocation("y")), scheduled(1, *executors(2), HostLocation("x")))
    assert POLICY.rescheduleReceiver(9, None, known, executors(1, 2)) == executors(1)
    asleep = ReceiverTrackingInfo(0, scheduled=(*executors(1),), running=executors(1)[0])
    assert POLICY.rescheduleReceiver(9, None, infos(asleep, active(1, 2)), executors(1, 2)) == executors(1)


def test_what_the_receiver_itself_did_before_and_dead_executors_count_for_nothing() -> None:
    known = infos(active(0, 1), active(1, 2), scheduled(2, *executors(3)))
    assert POLICY.rescheduleReceiver(0, None, known, executors(1, 2)) == executors(1)
    assert POLICY.rescheduleReceiver(9, None, known, executors(1, 2)) == executors(1, 2)


def test_six_receivers_on_three_executors_are_two_on_each() -> None:
    """Spark behaviour RS2."""
    found = POLICY.scheduleReceivers(dict.fromkeys(range(6)), executors(1, 2, 3))
    assert {len(candidates) for candidates in found.values()} == {1}
    assert Counter(candidates[0] for candidates in found.values()) == dict.fromkeys(executors(1, 2, 3), 2)


def test_three_receivers_on_six_executors_have_two_each_and_share_none() -> None:
    """Spark behaviour RS2."""
    found = POLICY.scheduleReceivers(dict.fromkeys(range(3)), executors(1, 2, 3, 4, 5, 6))
    assert [len(candidates) for candidates in found.values()] == [2, 2, 2]
    assert Counter(location for candidates in found.values() for location in candidates) == dict.fromkeys(executors(1, 2, 3, 4, 5, 6), 1)


def test_receivers_that_prefer_a_host_get_its_executors_and_the_others_the_rest() -> None:
    """RS2: three free ones and three for localhost, on three and three executors."""
    here = [ExecutorLocation("localhost", str(number)) for number in (0, 1, 2)]
    there = [ExecutorLocation("localhost2", str(number)) for number in (3, 4, 5)]
    found = POLICY.scheduleReceivers({0: None, 1: None, 2: None, 3: "localhost", 4: "localhost", 5: "localhost"}, here + there)
    assert {len(candidates) for candidates in found.values()} == {1}
    assert {found[stream][0] for stream in (3, 4, 5)} == set(here)
    assert {found[stream][0] for stream in (0, 1, 2)} == set(there)


def test_no_receivers_give_nothing_and_no_executors_leave_every_receiver_without_candidates() -> None:
    """Spark behaviour RS2."""
    assert POLICY.scheduleReceivers({}, executors(1, 2)) == {}
    assert POLICY.scheduleReceivers({0: None, 7: "host1"}, []) == {0: [], 7: []}


def test_an_unknown_preferred_host_is_kept_as_a_bare_host() -> None:
    """RS3: and the executors that are left idle become candidates, of the receiver with the fewest."""
    assert POLICY.scheduleReceivers({0: "elsewhere", 1: None}, executors(1)) == {0: [HostLocation("elsewhere")], 1: executors(1)}
    assert POLICY.scheduleReceivers({0: "elsewhere"}, executors(1)) == {0: [HostLocation("elsewhere"), *executors(1)]}


def test_locations_are_named_as_spark_reads_them() -> None:
    assert [str(ExecutorLocation("h", "3")), str(HostLocation("h"))] == ["executor_h_3", "h"]


def test_a_receiver_that_could_not_run_where_it_should_is_sent_to_those_of_its_candidates_that_live() -> None:
    known = infos(scheduled(0, *executors(1, 2), HostLocation("host9")), active(1, 2))
    assert POLICY.restartReceiver(0, None, known, executors(2, 3)) == executors(2)
    assert POLICY.restartReceiver(0, None, known, executors(3)) == executors(3)
    assert POLICY.restartReceiver(1, "host2", known, executors(2, 3)) == [HostLocation("host2"), *executors(3)]


@pytest.mark.parametrize(
    ("candidates", "accepted"),
    [(executors(1), True), (executors(2), False), ([HostLocation("host1")], True), ([HostLocation("host2")], False), ([], False)],
)
def test_a_receiver_may_register_only_from_one_of_its_candidates(candidates: list[Location], accepted: bool) -> None:
    assert POLICY.accepts(candidates, executors(1)[0]) is accepted
