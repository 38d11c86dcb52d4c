"""The simulated store: every fault does what its name says, and create stays atomic through all of them."""

from __future__ import annotations

import random

import pytest

from kstream.errors import AlreadyExistsError, MissingFileError, StorageError
from tests.simulator import NO_FAULTS, Faults, History
from tests.simulator.store import SimulatedStore, StoreView


class Made:
    """A store with the view of one driver; `points` counts where others could have run."""

    def __init__(self, faults: Faults = NO_FAULTS) -> None:
        self.truth = SimulatedStore(History(1000), random.Random(1))
        self.truth.faults = faults
        self.points = 0
        self.lines: list[str] = []
        self.view = StoreView(self.truth, 1, self._point, self.lines.append)

    def _point(self) -> None:
        self.points += 1


def always(kind: str) -> Faults:
    return Faults(write=1.0, kinds=(kind,))


def test_without_faults_it_is_a_store() -> None:
    view = Made().view
    view.create("f/a", b"1")
    with pytest.raises(AlreadyExistsError):
        view.create("f/a", b"2")
    view.replace("f/b", b"3")
    assert (view.read("f/a"), view.exists("f/b"), view.list("f"), view.list()) == (b"1", True, ["a", "b"], [])
    view.delete("f/a")
    view.delete("f/a")
    assert not view.exists("f/a")
    with pytest.raises(MissingFileError):
        view.read("f/a")


def test_a_lost_write_is_an_error_and_nothing_is_stored() -> None:
    made = Made(always("lost"))
    with pytest.raises(StorageError):
        made.view.create("a", b"1")
    assert made.truth.files == {}


def test_a_write_may_be_stored_and_reported_as_failed() -> None:
    made = Made(always("stored-then-failed"))
    with pytest.raises(StorageError) as caught:
        made.view.create("a", b"1")
    assert made.truth.files == {"a": b"1"} and not isinstance(caught.value, AlreadyExistsError)


def test_a_client_that_tries_twice_is_told_that_its_own_file_exists() -> None:
    made = Made(always("doubled"))
    with pytest.raises(AlreadyExistsError):
        made.view.create("a", b"1")
    assert made.truth.files == {"a": b"1"}


def test_a_delayed_write_lands_later_unless_the_name_is_taken_by_then() -> None:
    made = Made(always("delayed"))
    for name in ("a", "b"):
        with pytest.raises(StorageError):
            made.view.create(name, b"late")
    assert made.truth.files == {}
    made.truth.faults = NO_FAULTS
    made.view.create("b", b"early")
    lines = {made.truth.land(), made.truth.land()}
    assert made.truth.files == {"a": b"late", "b": b"early"} and made.truth.delayed == []
    assert lines == {"store: delayed create a lands", "store: delayed create b comes too late"}


def test_delayed_writes_land_in_any_order() -> None:
    orders: set[str] = set()
    for seed in range(10):
        made = Made(always("delayed"))
        made.truth = SimulatedStore(History(1000), random.Random(seed))
        made.truth.faults = always("delayed")
        view = StoreView(made.truth, 1, lambda: None, made.lines.append)
        for data in (b"1", b"2"):
            with pytest.raises(StorageError):
                view.create("a", data)
        made.truth.land()
        orders.add(made.truth.files["a"].decode())
    assert orders == {"1", "2"}


def test_a_delayed_delete_takes_the_file_away_later() -> None:
    made = Made()
    made.view.create("a", b"1")
    made.truth.faults = always("delayed")
    with pytest.raises(StorageError):
        made.view.delete("a")
    assert "a" in made.truth.files
    made.truth.land()
    assert made.truth.files == {}


def test_reads_fail_too() -> None:
    view = Made(Faults(read=1.0)).view
    for call in (lambda: view.read("a"), lambda: view.exists("a"), lambda: view.list()):
        with pytest.raises(StorageError):
            call()


def test_a_listing_may_show_what_is_just_being_deleted_but_misses_nothing() -> None:
    shown: set[tuple[str, ...]] = set()
    made = Made()
    for _ in range(30):
        made.view.create("f/a", b"1")
        made.view.replace("f/b", b"1")
        made.view.delete("f/a")
        shown.add(tuple(made.view.list("f")))
        assert made.view.list("f") == ["b"]
    assert shown == {("b",), ("a", "b")}


def test_others_may_run_before_and_after_each_write_and_before_each_read() -> None:
    made = Made()
    made.view.create("a", b"1")
    assert made.points == 2
    made.view.read("a")
    assert made.points == 3
    assert made.lines == ["create a", "read a"]


def test_looks_for_a_newer_writer_are_noted() -> None:
    made = Made()
    made.view.exists("epoch-2")
    made.view.create("epoch-2", b"")
    made.view.exists("epoch-2")
    made.truth.faults = Faults(read=1.0)
    with pytest.raises(StorageError):
        made.view.exists("epoch-3")
    made.truth.faults = NO_FAULTS
    made.view.exists("meta")
    assert [look.answer for look in made.truth.history.looks] == ["clear", "fenced", "error"]
