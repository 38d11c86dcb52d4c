"""A stored plan says the kind of its input; one function knows the kind of those that do not say it."""

from __future__ import annotations

from typing import Any

import pytest

from kstream.batch.plan import BLOCKS, FILES, JSON, LOG, kind_of, with_kind, without_kind

RANGES = [["orders", 0, 5, 9]]
BEFORE = {
    "kafka": {"ranges": RANGES, "leader_epochs": [None], "from_epochs": [None], "topic_ids": None},
    LOG: {"log": "events", "ranges": RANGES},
    FILES: {"files": [], "since": 0, "listed": 0},
    BLOCKS: {"blocks": []},
    JSON: {"rdds": 1},
}


@pytest.mark.parametrize("kind", BEFORE)
def test_a_plan_that_does_not_say_its_kind_is_told_by_its_fields_and_one_that_does_by_what_it_says(kind: str) -> None:
    assert kind_of(BEFORE[kind]) == kind
    assert [kind_of({"kind": said, **BEFORE[kind]}) for said in BEFORE] == [*BEFORE]


def test_an_input_that_says_no_kind_gets_back_what_it_gave() -> None:
    """Also after it was stored by a version that added nothing."""
    given = {"rdds": 1}
    assert with_kind(given) == {"kind": "json", "rdds": 1}
    assert without_kind(with_kind(given)) == without_kind(given) == given


@pytest.mark.parametrize("given", [{"kind": "kafka", "ranges": RANGES}, {"kind": "of a connector", "at": 7}, {"kind": 7}])
def test_a_kind_that_an_input_says_is_stored_and_given_back_as_it_is(given: dict[str, Any]) -> None:
    assert with_kind(given) == given == without_kind(given)
