"""UnknownIds: for how long an id is unknown, how many are remembered, and when the registry is asked again."""

from __future__ import annotations

from kstream_kafka.client.unknown_ids import AGAIN_AFTER_S, MOST, PATIENT_FOR, UNKNOWN_FOR_S, UnknownIds


def with_ids(count: int, now: float = 0.0) -> UnknownIds:
    ids = UnknownIds()
    for number in range(count):
        ids.add(number, now)
    return ids


def test_an_id_is_unknown_for_a_minute():
    ids = with_ids(1)
    assert ids.pauses(0, UNKNOWN_FOR_S - 1) is None
    assert ids.pauses(0, UNKNOWN_FOR_S) == AGAIN_AFTER_S


def test_the_registry_is_asked_again_about_the_first_unknown_ids_of_a_minute_only():
    assert with_ids(PATIENT_FOR - 1).pauses(99, 1.0) == AGAIN_AFTER_S
    assert with_ids(PATIENT_FOR).pauses(99, 1.0) == ()
    assert sum(AGAIN_AFTER_S) <= 1


def test_with_too_many_unknown_ids_no_other_one_is_asked_for_until_one_is_a_minute_old():
    ids, new, other = with_ids(MOST - 1), MOST, MOST + 1
    assert ids.pauses(new, 1.0) == () and not ids.are_too_many
    ids.add(new, 1.0)
    assert ids.are_too_many and ids.pauses(other, 2.0) is None
    assert ids.pauses(other, UNKNOWN_FOR_S) == AGAIN_AFTER_S


def test_no_more_ids_are_remembered_than_stop_the_requests():
    ids = with_ids(2 * MOST)
    assert ids.pauses(MOST - 1, 1.0) is None
    ids.pauses(MOST, UNKNOWN_FOR_S)
    assert not ids.are_too_many
