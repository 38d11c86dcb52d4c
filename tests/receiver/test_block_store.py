"""The blocks of one executor: in memory up to a budget, on disk beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.errors import BlockNotStoredError
from kstream.receiver.block_store import BlockStore, Level

MEMORY, BOTH, DISK = (level.value for level in (Level.MEMORY, Level.MEMORY_AND_DISK, Level.DISK))


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_blocks_beyond_the_budget_lie_on_disk_and_come_back_the_same(tmp_path: Path) -> None:
    store = BlockStore(10, tmp_path / "blocks")
    for n in range(4):
        store.put(f"b{n}", [bytes([n]) * 3, b"", b"x"], BOTH)
    assert files(tmp_path / "blocks") == ["b2", "b3"]
    assert [store.get(f"b{n}") for n in range(4)] == [(bytes([n]) * 3, b"", b"x") for n in range(4)]
    assert store.usage() == {"blocks": 4, "memory_bytes": 8, "disk_bytes": 8}  # of the chunks


def test_memory_is_free_again_after_a_removal_and_files_are_gone(tmp_path: Path) -> None:
    store = BlockStore(4, tmp_path)
    store.put("a", [b"aaaa"])
    store.put("b", [b"bbbb"])
    store.remove(["a", "b", "never"])
    assert files(tmp_path) == [] and store.usage() == {"blocks": 0, "memory_bytes": 0, "disk_bytes": 0}
    store.put("c", [b"cccc"], MEMORY)
    for name in ("a", "b"):
        with pytest.raises(KeyError):
            store.get(name)


def test_a_block_for_memory_alone_that_does_not_fit_is_refused_with_the_figures(tmp_path: Path) -> None:
    """Spark behaviour BH3."""
    store = BlockStore(10, tmp_path)
    store.put("a", [bytes(8)], MEMORY)
    with pytest.raises(BlockNotStoredError, match="block b of 3 bytes does not fit into the 2 bytes of memory that are left"):
        store.put("b", [bytes(3)], MEMORY)
    with pytest.raises(KeyError):
        store.get("b")


def test_a_block_for_disk_alone_takes_no_memory(tmp_path: Path) -> None:
    store = BlockStore(10, tmp_path)
    store.put("a", [b"a"], DISK)
    assert store.usage() == {"blocks": 1, "memory_bytes": 0, "disk_bytes": 1} and store.get("a") == (b"a",)


def test_a_block_that_is_there_stays_as_it_is(tmp_path: Path) -> None:
    """One whose acknowledgement was lost is put again."""
    store = BlockStore(2, tmp_path)
    for name in ("in memory", "on disk"):
        name = name.replace(" ", "-")
        store.put(name, [b"xx"])
        store.put(name, [b"yy"])
        assert store.get(name) == (b"xx",)
    assert store.usage()["blocks"] == 2


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".", "x" * 201])
def test_a_name_cannot_lead_out_of_the_folder(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="no name of a block"):
        BlockStore(0, tmp_path).put(name, [b"x"])


def test_a_disk_that_takes_nothing_is_told_and_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = BlockStore(0, tmp_path / "file" / "blocks")
    with pytest.raises(BlockNotStoredError, match="block a could not be written to"):
        store.put("a", [b"x"])
    assert store.usage()["blocks"] == 0
