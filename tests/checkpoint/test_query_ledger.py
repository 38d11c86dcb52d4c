"""The ledger of a query: one entry for each batch, however often it is planned."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.checkpoint.query_ledger import FOLDER, QueryLoss, acknowledge_loss, add_losses, read_query_ledger
from kstream.errors import CorruptRecordError
from kstream.offsets.offset_range import LostRange
from kstream.storage import LocalFileStore
from tests.stores import CountingStore

GOLDEN = (
    b'{"at":1700000000000,"checksum":"9d9fe91df802ab533ddd260852856664cec9fe01413a2fac7b1ef5fc0c513a0a","kind":"query-loss","lost":'
    b'[{"cause":"retention","detail":"d","from":5,"partition":0,"topic":"orders","until":8}],"version":1}'
)


ACKNOWLEDGED_GOLDEN = (
    b'{"at":1700000009000,"by":"host-1, pid 4711","checksum":"70a906da4ae8f7754784'
    b'f309ea2ab8251b581048026305f26d1a2ecb8b71ea42","entry":"kstream-ledger/batch-1","kind":"acknowledged","version":1}'
)


def retention(begin: int, until: int, partition: int = 0) -> LostRange:
    return LostRange("orders", partition, begin, until, "retention", "d")


ANEW = LostRange("orders", 0, 9, None, "recreation", "the topic was created again")


@pytest.fixture
def store(tmp_path: Path) -> LocalFileStore:
    return LocalFileStore(str(tmp_path))


def test_the_bytes_and_the_name_of_an_entry(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1_700_000_000_000, [retention(5, 8)])
    assert store.list(FOLDER) == ["batch-1"]
    assert store.read("kstream-ledger/batch-1") == GOLDEN


def test_entries_are_read_as_they_were_written_oldest_first(store: LocalFileStore) -> None:
    add_losses(store, "batch-b", 2, [retention(5, 8, 1), retention(1, 3)])
    add_losses(store, "batch-a", 3, [ANEW])
    assert read_query_ledger(store) == [QueryLoss(2, (retention(1, 3), retention(5, 8, 1))), QueryLoss(3, (ANEW,))]


def test_a_query_without_losses_has_an_empty_ledger(store: LocalFileStore) -> None:
    assert read_query_ledger(store) == []


def test_a_batch_that_is_planned_again_has_one_entry_which_grows_as_more_is_removed(store: LocalFileStore) -> None:
    for at_ms, until in ((1, 8), (2, 8), (3, 12), (4, 8)):
        add_losses(store, "batch-1", at_ms, [retention(5, until)])
    assert read_query_ledger(store) == [QueryLoss(1, (retention(5, 12),))]


def test_what_is_known_of_a_topic_made_anew_stays_though_a_later_try_knows_less(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1, [ANEW])
    add_losses(store, "batch-1", 2, [LostRange("orders", 0, 2, 9, "truncation", "the batch ends before it begins"), retention(0, 1)])
    assert read_query_ledger(store) == [QueryLoss(1, (retention(0, 1), ANEW))]


def test_a_damaged_entry_is_an_error_and_never_an_empty_ledger(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1, [ANEW])
    store.replace("kstream-ledger/batch-1", store.read("kstream-ledger/batch-1").replace(b"orders", b"Orders"))
    with pytest.raises(CorruptRecordError):
        read_query_ledger(store)


# -- acknowledged entries


def test_the_bytes_and_the_name_of_an_acknowledgement_of_an_entry(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1_700_000_000_000, [retention(5, 8)])
    [entry] = read_query_ledger(store)
    assert acknowledge_loss(store, entry, 1_700_000_009_000, "host-1, pid 4711")
    assert not acknowledge_loss(store, entry, 1_700_000_010_000, "another"), "the first one stays"
    assert store.list("kstream-acknowledged") == ["batch-1-1c4ffe931ccb"]
    assert store.read("kstream-acknowledged/batch-1-1c4ffe931ccb") == ACKNOWLEDGED_GOLDEN
    assert store.read("kstream-ledger/batch-1") == GOLDEN, "the entry stays as it is"


def test_an_entry_of_which_more_is_lost_after_its_acknowledgement_is_a_new_one(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1, [retention(5, 8)])
    for entry in read_query_ledger(store):
        acknowledge_loss(store, entry, 2, "a person")
    add_losses(store, "batch-1", 3, [retention(5, 8)])
    assert [entry.is_acknowledged for entry in read_query_ledger(store)] == [True]
    add_losses(store, "batch-1", 3, [retention(5, 12)])
    add_losses(store, "batch-2", 4, [retention(12, 13)])
    assert [entry.is_acknowledged for entry in read_query_ledger(store)] == [False, False]


def test_an_acknowledgement_of_what_has_grown_meanwhile_hides_nothing(store: LocalFileStore) -> None:
    add_losses(store, "batch-1", 1, [retention(5, 8)])
    [seen] = read_query_ledger(store)
    add_losses(store, "batch-1", 2, [retention(5, 12)])
    assert acknowledge_loss(store, seen, 3, "a person")
    assert [entry.is_acknowledged for entry in read_query_ledger(store)] == [False]


def test_a_query_without_losses_costs_one_listing(store: LocalFileStore) -> None:
    counted = CountingStore(store)
    read_query_ledger(counted)
    assert [verb for verb, _, _ in counted.take()] == ["list"]
