"""FileStoreContract: the promises of every FileStore, as tests to inherit. Only running them needs pytest.

    class TestMyStore(FileStoreContract):
        def make_store(self) -> FileStore: ...     # a new, empty store

Override `reopen` if a second handle on the same store is not made by copying the object.
"""

from __future__ import annotations

import copy
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial

from kstream.errors import AlreadyExistsError, MissingFileError, OutsideStoreError
from kstream.storage import AppendingStore, FileStore

_RACERS = 8
_ROUNDS = 25


class FileStoreContract(ABC):
    """The tests of a FileStore. A subclass makes the store. The names of the tests are the promises."""

    @abstractmethod
    def make_store(self) -> FileStore:
        """Return a new, empty store. Every test calls it for a store of its own."""

    def reopen(self, store: FileStore) -> FileStore:
        """Return a second handle on the same files. Any thread."""
        return copy.copy(store)

    def test_what_was_created_can_be_read(self) -> None:
        store = self.make_store()
        store.create("folder/name", b"\x00bytes\xff")
        assert store.read("folder/name") == b"\x00bytes\xff"
        assert store.exists("folder/name")

    def test_a_file_may_be_empty_or_large(self) -> None:
        store = self.make_store()
        large = bytes(range(256)) * 8192
        store.create("empty", b"")
        store.create("large", large)
        assert (store.read("empty"), store.read("large")) == (b"", large)
        assert (store.size("empty"), store.size("large")) == (0, len(large))

    def test_create_refuses_a_name_that_is_taken_and_leaves_it_alone(self) -> None:
        store = self.make_store()
        store.create("name", b"first")
        error = _raised(AlreadyExistsError, lambda: store.create("name", b"second"))
        assert store.path("name") in str(error)
        assert store.read("name") == b"first"

    def test_of_many_who_create_one_name_exactly_one_wins(self) -> None:
        store = self.make_store()
        for round_number in range(_ROUNDS):
            name = f"race/{round_number}"
            winners = _race(self, store, name)
            assert len(winners) == 1, f"{len(winners)} winners"
            assert store.read(name) == _content(winners[0])

    def test_a_reader_beside_a_writer_sees_nothing_or_the_whole(self) -> None:
        store = self.make_store()
        whole = b"x" * 300_000
        seen: list[int] = []
        stop = threading.Event()

        def watch() -> None:
            while not stop.is_set():
                for name in store.list("watched"):
                    seen.append(len(store.read(f"watched/{name}")))

        watcher = threading.Thread(target=watch)
        watcher.start()
        for number in range(20):
            store.create(f"watched/{number:03d}", whole)
        stop.set()
        watcher.join(30)
        assert set(seen) <= {len(whole)}
        assert len(store.list("watched")) == 20

    def test_another_handle_sees_what_was_created(self) -> None:
        store = self.make_store()
        store.create("name", b"bytes")
        other = self.reopen(store)
        assert other.read("name") == b"bytes"
        _raised(AlreadyExistsError, lambda: other.create("name", b"mine"))

    def test_replace_makes_and_overwrites(self) -> None:
        store = self.make_store()
        store.replace("name", b"old")
        store.replace("name", b"new")
        assert store.read("name") == b"new"

    def test_a_missing_file_is_told_by_its_place(self) -> None:
        store = self.make_store()
        error = _raised(MissingFileError, lambda: store.read("folder/missing"))
        assert store.path("folder/missing") in str(error)
        assert store.path("folder/missing") in str(_raised(MissingFileError, lambda: store.size("folder/missing")))
        assert store.path("folder/missing") in str(_raised(MissingFileError, lambda: store.modified_ms("folder/missing")))
        assert not store.exists("folder/missing")

    def test_a_file_that_is_replaced_is_not_older_than_before(self) -> None:
        store = self.make_store()
        store.replace("name", b"old")
        before = store.modified_ms("name")
        store.replace("name", b"new")
        after = store.modified_ms("name")
        assert (before is None and after is None) or (before is not None and after is not None and before <= after)

    def test_delete_takes_the_file_away_and_may_be_repeated(self) -> None:
        store = self.make_store()
        store.create("folder/name", b"1")
        store.delete("folder/name")
        store.delete("folder/name")
        assert not store.exists("folder/name")
        store.create("folder/name", b"2")
        assert store.read("folder/name") == b"2"

    def test_list_has_the_sorted_names_of_one_folder_only(self) -> None:
        store = self.make_store()
        for name in ("b", "folder/2", "folder/10", "folder/deep/3", "folder2/4", "a"):
            store.create(name, b"")
        assert store.list() == ["a", "b"]
        assert store.list("folder") == ["10", "2"]
        assert store.list("folder/deep") == ["3"]

    def test_a_folder_that_is_not_there_is_empty(self) -> None:
        assert self.make_store().list("nowhere") == []
        assert self.make_store().list() == []

    def test_a_name_that_leads_out_of_the_store_is_refused(self) -> None:
        store = self.make_store()
        for name in ("/etc/victim", "../victim", "folder/../../victim", "folder/..", ".."):
            asked: list[Callable[[], object]] = [
                partial(store.create, name, b"1"),
                partial(store.replace, name, b"1"),
                *(partial(ask, name) for ask in (store.read, store.exists, store.size, store.modified_ms, store.list, store.delete)),
            ]
            if isinstance(store, AppendingStore):
                asked += [partial(store.open_to_append, name), partial(store.read_at, name, 0, 1)]
            for ask in asked:
                error = _raised(OutsideStoreError, ask)
                assert repr(name) in str(error) and store.url in str(error)
        store.create("folder/..a..", b"1")
        assert store.list("folder") == ["..a.."]

    def test_a_store_says_where_it_lies(self) -> None:
        store = self.make_store()
        assert store.path("folder/name").startswith(store.url)
        assert store.path("folder/name").endswith("folder/name")


def _content(racer: int) -> bytes:
    return f"written by {racer} ".encode() * 2000


def _race(contract: FileStoreContract, store: FileStore, name: str) -> list[int]:
    """Let threads create the same file at the same time. Return the numbers of those that succeeded."""
    start = threading.Barrier(_RACERS)
    winners: list[int] = []

    def create(racer: int) -> None:
        handle = contract.reopen(store)
        start.wait(30)
        try:
            handle.create(name, _content(racer))
        except AlreadyExistsError:
            return
        winners.append(racer)

    threads = [threading.Thread(target=create, args=(racer,)) for racer in range(_RACERS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return winners


def _raised(kind: type[BaseException], action: object) -> BaseException:
    """Call `action` and return the error of this kind that it raises. AssertionError if it raises none."""
    assert callable(action)
    try:
        action()
    except kind as e:
        return e
    raise AssertionError(f"{kind.__name__} was not raised")
