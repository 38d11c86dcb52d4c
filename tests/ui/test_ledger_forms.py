"""The ledger as the page shows it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from kstream.batch import SkippedRecord
from kstream.batch_time import Time
from kstream.checkpoint.history import LedgerEntry
from kstream.offsets.offset_range import PlannedRange
from kstream.ui.ledger_forms import ledger_forms


def ranges_of(data: Mapping[str, Any]) -> list[PlannedRange] | None:
    return [PlannedRange(*row) for row in data["ranges"]] if "ranges" in data else None


def shown(kind: str, streams: Mapping[int, Any], **fields: Any) -> list[tuple[int | None, str]]:
    entry = LedgerEntry(kind, Time(1000), 2000, 1, streams, **fields)
    return [(form["stream"], form["text"]) for form in ledger_forms(entry, ranges_of)]


def loss(partition: int, until: int | None = 8) -> dict[str, Any]:
    return {"topic": "orders", "partition": partition, "from": 5, "until": until, "cause": "deletion", "detail": ""}


def test_losses_are_named_up_to_four_and_the_others_are_counted() -> None:
    assert shown("lost", {0: [loss(0), loss(1, None)], 1: [loss(p) for p in range(6)]}) == [
        (0, "orders/0 [5, 8): deletion; orders/1 [5, …): deletion"),
        (1, "orders/0 [5, 8): deletion; orders/1 [5, 8): deletion; orders/2 [5, 8): deletion; orders/3 [5, 8): deletion; … 2 more"),
    ]


def test_a_loss_without_offsets_is_shown_as_json() -> None:
    assert shown("lost", {2: [{"blocks": ["input-2-1"]}]}) == [(2, '{"blocks": ["input-2-1"]}')]


def test_a_batch_that_was_given_up_names_what_it_was_to_read_where_the_connector_tells() -> None:
    data = {"ranges": [["orders", 0, 5, 9], ["orders", 1, 7, 7]]}
    assert shown("given-up", {0: data, 1: {"from": 3}}, failures=4) == [
        (0, "given up: the batch has failed 4 times; it was to read orders/0 [5, 9)"),
        (1, "given up: the batch has failed 4 times"),
    ]
    assert shown("given-up", {}, failures=4) == [(None, "given up: the batch has failed 4 times")]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("skipped", "orders-0@5 left out as asked for by me (outputs that had read it: 0, 2)"),
        ("to-skip", "orders-0@5 to be left out; the batch has not ended. Asked for by me (outputs that had read it: 0, 2)"),
        ("not-skipped", "orders-0@5 not left out: the batch has ended with it. Asked for too late by me (outputs that had read it: 0, 2)"),
    ],
)
def test_a_request_of_kstream_skip_says_what_became_of_it(kind: str, text: str) -> None:
    assert shown(kind, {0: [SkippedRecord(0, "orders", 0, 5, (0, 2))]}, note="by me") == [(0, text)]
    named = SkippedRecord(0, "orders", 0, 5, (0,), ("output 'sums', foreachRDD at job.py:47",))
    assert "(outputs that had read it: output 'sums', foreachRDD at job.py:47)" in shown(kind, {0: [named]}, note="by me")[0][1]
