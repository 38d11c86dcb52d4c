"""`kstream offsets reset` on the checkpoint of a query of Structured Streaming: the change is a batch that is committed."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from kstream.cli import query_offsets
from kstream.cli.query_offsets import change_bytes, read_committed, reset_query
from kstream.errors import ConfigurationError, StorageError
from kstream.storage import FileStore, LocalFileStore, MemoryFileStore
from tests.cli.query_checkpoints import KAFKA, REAL, data, query, run
from tests.stores import SteppingStore, WrappedStore

NEXT = b"""v1
{"batchWatermarkMs":7,"batchTimestampMs":1795503900000,"conf":{"spark.sql.shuffle.partitions":"1","kstream.offsets":"reset"}}
{"orders":{"0":3,"1":4}}
-"""
NEXT_NAMED = NEXT.replace(b"v1", b"v2").replace(b'{"orders"', b'shop:{"orders"').replace(b"\n-", b"\nother:-")


@pytest.fixture
def real(tmp_path: Path) -> Path:
    """A copy of a real checkpoint, whose last batch 2 ends at 15 and 18 of 100."""
    path = tmp_path / "query"
    shutil.copytree(REAL / "v1", path)
    return path


@pytest.fixture
def memory(real: Path) -> Iterator[MemoryFileStore]:
    """The same checkpoint in a store that has no folders."""
    store = MemoryFileStore("memory://a-query")
    for name in names(real):
        store.create(name, (real / name).read_bytes())
    yield store
    MemoryFileStore.forget(store.url)


def reset(path: Path, bootstrap: str, *options: str, to: str = "earliest") -> Result:
    return run("offsets", "reset", str(path), "--to", to, "--bootstrap", bootstrap, "--take-over", *options)


def change(store: FileStore, wanted: Any, bootstrap: str) -> None:
    """As the command, on a store of the test."""
    topics = tuple(wanted) if isinstance(wanted, dict) else ()
    reset_query(store, wanted, topics, None, (bootstrap, (), None), 1_795_503_900_000, dry_run=False, take_over=True)


def offsets(path: Path) -> dict[int, Any]:
    """The next offsets by partition, as `offsets show` has them."""
    return {row["partition"]: (row["completed"], row["next"]) for row in data("offsets", "show", str(path))["partitions"]}


def names(path: Path) -> set[str]:
    return {str(file.relative_to(path)) for file in path.rglob("*") if file.is_file()}


@pytest.mark.parametrize(("version", "lines", "golden"), [("v1", [KAFKA, "-"], NEXT), ("v2", [f"shop:{KAFKA}", "other:-"], NEXT_NAMED)])
def test_the_bytes_of_a_change(tmp_path: Path, version: str, lines: list[str], golden: bytes) -> None:
    path = query(tmp_path / "q", {4: lines}, [4], version)
    file = path / "offsets" / "4"
    file.write_text(file.read_text().replace('"conf": {}', '"conf": {"spark.sql.shuffle.partitions": "1"}'))
    (path / "commits" / "4").write_text('v1\n{"nextBatchWatermarkMs":7}')
    found = read_committed(LocalFileStore(str(path)), 0)
    first = next(iter(found.entry.sources))
    texts = {**found.entry.sources, first: '{"orders":{"0":3,"1":4}}'}
    assert change_bytes(found, texts, 1_795_503_900_000) == golden


def test_a_change_is_a_committed_batch_without_records(real: Path, bootstrap: str) -> None:
    before = names(real)
    said = reset(real, bootstrap).stdout
    assert "set, as batch 3" in said and "-15" in said and "_spark_metadata/3" in said
    assert names(real) == before | {"offsets/3", "commits/3"}
    assert (real / "commits" / "3").read_bytes() == (real / "commits" / "2").read_bytes()
    assert offsets(real) == {0: (0, 0), 1: (0, 0)}
    assert data("status", str(real))["state"] == "committed"


@pytest.mark.parametrize(
    ("text", "then"),
    [(KAFKA, '{"orders":{"0":0,"1":0}}'), ('{"orders": {"0": 15, "1": 18}}', '{"orders": {"0": 0, "1": 0}}')],
)
def test_the_new_offset_is_written_as_the_source_writes_it(tmp_path: Path, bootstrap: str, text: str, then: str) -> None:
    """Spark's own source writes no spaces, and Spark writes them for sources of Python."""
    path = query(tmp_path / "q", {0: [text]}, [0])
    assert reset(path, bootstrap).exit_code == 0
    assert (path / "offsets" / "1").read_text().splitlines()[-1] == then


def test_what_a_change_skips_is_in_the_ledger(real: Path, bootstrap: str) -> None:
    file = real.parent / "to.json"
    file.write_text('{"orders": {"0": 40, "1": 5}}')
    assert reset(real, bootstrap, to=str(file)).exit_code == 0
    assert offsets(real) == {0: (40, 40), 1: (5, 5)}
    [row] = data("ledger", str(real))["lost"]
    assert (row["partition"], row["from"], row["until"], row["cause"]) == (0, 15, 40, "reset")


def test_a_dry_run_and_a_change_to_the_same_place_write_nothing(real: Path, bootstrap: str) -> None:
    before = names(real)
    assert "dry run: nothing was changed" in reset(real, bootstrap, "--dry-run").stdout
    file = real.parent / "to.json"
    file.write_text(KAFKA)
    assert "nothing to change" in reset(real, bootstrap, to=str(file)).stdout
    assert names(real) == before


def test_one_source_moves_and_the_others_stay(tmp_path: Path, bootstrap: str) -> None:
    path = query(tmp_path / "q", {0: [KAFKA, '{"clicks":{"0":9}}', '{"other":1}']}, [0])
    assert reset(path, bootstrap, "--source", "1", to="latest").exit_code == 0
    assert (path / "offsets" / "1").read_text().splitlines()[2:] == [KAFKA, '{"clicks":{"0":20}}', '{"other":1}']
    assert "sources" not in reset(path, bootstrap, "--topic", "orders", to="latest").stderr
    assert (path / "offsets" / "2").read_text().splitlines()[2] == '{"orders":{"0":100,"1":100}}'


# -- refusals


@pytest.mark.parametrize(
    ("batches", "commits", "words"),
    [
        ({}, [], "no batch of .* has begun: set where it begins by its option startingOffsets"),
        ({0: [KAFKA], 1: [KAFKA]}, [0], "batch 1 of .* has begun and is not committed"),
        ({0: [KAFKA], 5: [KAFKA]}, [0], "batch 5 of .* has begun and is not committed"),
        ({0: [KAFKA]}, [0, 1], "is damaged: batch 1 is committed, and the last that has begun is 0"),
    ],
)
def test_only_a_query_whose_last_batch_is_committed_can_be_set(
    tmp_path: Path, bootstrap: str, batches: dict[int, list[str]], commits: list[int], words: str
) -> None:
    path = query(tmp_path / "q", batches, commits)
    before = names(path)
    result = reset(path, bootstrap)
    assert result.exit_code == 1 and len(result.stderr.splitlines()) == 1, result.output
    assert re.search(words, result.stderr), result.output
    assert names(path) == before


@pytest.mark.parametrize("name", ["state/0/0/1.delta", "state/0/_metadata/metadata"])
def test_a_query_with_state_is_refused_with_the_reason(real: Path, bootstrap: str, name: str) -> None:
    (real / name).parent.mkdir(parents=True)
    (real / name).write_bytes(b"")
    assert "has state, which belongs to the records that it has read and has a version for each batch" in reset(real, bootstrap).stderr


@pytest.mark.parametrize(
    "name",
    [
        "state/0/0/57.delta",
        "state/0/0/57.changelog",
        "state/0/_metadata/v2/57",
        "state/0/_stateSchema/default/0_5e1f",
        "state/0/0/left-keyToNumValues/57.delta",
    ],
)
def test_state_is_found_in_a_store_without_folders_by_files_that_spark_keeps(memory: MemoryFileStore, name: str) -> None:
    assert read_committed(memory, 0).batch == 2
    memory.create(name, b"")
    with pytest.raises(ConfigurationError, match="has state, which belongs to the records"):
        read_committed(memory, 0)


def test_a_query_that_ran_a_moment_ago_is_refused(real: Path, bootstrap: str) -> None:
    (real / "commits" / "2").touch()
    result = run("offsets", "reset", str(real), "--to", "latest", "--bootstrap", bootstrap)
    assert result.exit_code == 1 and "stop the query. If it is stopped, wait a minute, or give --take-over" in result.stderr
    assert not (real / "offsets" / "3").exists()


def test_a_query_that_plans_its_next_batch_meanwhile_wins(real: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch) -> None:
    planned = (real / "offsets" / "2").read_bytes()
    file = real.parent / "to.json"
    file.write_text('{"orders": {"0": 40}}')

    def prepare(store: LocalFileStore, single_writer: bool) -> None:
        (real / "offsets" / "3").write_bytes(planned)

    monkeypatch.setattr(query_offsets, "prepare_to_write", prepare)
    result = reset(real, bootstrap, to=str(file))
    assert result.exit_code == 1 and "has come meanwhile: a query runs. Stop it first" in result.stderr
    assert (real / "offsets" / "3").read_bytes() == planned and not (real / "commits" / "3").exists()
    assert data("ledger", str(real))["lost"] == []


def test_a_change_that_was_cut_short_is_finished_by_the_next_one(real: Path, bootstrap: str) -> None:
    file = real.parent / "to.json"
    file.write_text('{"orders": {"0": 40}}')
    assert reset(real, bootstrap, to=str(file)).exit_code == 0
    (real / "commits" / "3").unlink()
    shutil.rmtree(real / "kstream-ledger")
    words = "the change of the offsets in batch 3 had been cut short"
    assert words in reset(real, bootstrap, "--dry-run").stderr and not (real / "commits" / "3").exists()
    assert f"{words}: it is finished now" in reset(real, bootstrap, "--topic", "orders", to=str(file)).stdout
    assert (real / "commits" / "3").exists() and len(data("ledger", str(real))["lost"]) == 1


def half_made(real: Path, bootstrap: str) -> None:
    """A change to 40 is in the offset log, and not committed."""
    with pytest.raises(StorageError):
        change(FailsOnce(LocalFileStore(str(real)), ("create", "commits/3"), False), {"orders": {"0": 40}}, bootstrap)


@pytest.mark.parametrize("young", ["offsets/3", "commits/2", "the time in offsets/3"])
def test_a_change_is_not_finished_while_the_query_seems_to_run_it_as_a_batch(real: Path, bootstrap: str, young: str) -> None:
    half_made(real, bootstrap)
    options = ("offsets", "reset", str(real), "--to", "latest", "--bootstrap", bootstrap)
    for name in ("offsets/3", "commits/2"):
        os.utime(real / name, (1, 1) if name != young else None)
    file, now = real / "offsets" / "3", round(time.time() * 1000)
    text = file.read_text()
    old_ms = now if "time" in young else 1
    file.write_text(text.replace("1795503900000", str(old_ms)))
    if young != "offsets/3":
        os.utime(file, (1, 1))
    result = run(*options)
    assert result.exit_code == 1 and re.search("batch 3 of .* stop the query. If it is stopped, wait a minute", result.stderr)
    assert not (real / "commits" / "3").exists()
    assert "it is finished now" in run(*options, "--take-over").stdout
    assert (real / "commits" / "3").exists()


def test_a_change_that_rests_is_finished_and_another_one_made_without_take_over(real: Path, bootstrap: str) -> None:
    half_made(real, bootstrap)
    store = LocalFileStore(str(real))
    later = max(store.modified_ms("offsets/3") or 0, 1_795_503_900_000) + query_offsets.QUIET_MS
    reset_query(store, "latest", (), None, (bootstrap, (), None), later, dry_run=False, take_over=False)
    assert offsets(real) == {0: (100, 100), 1: (100, 100)}


def test_a_change_is_finished_behind_the_checks_of_state_form_and_store(
    real: Path, bootstrap: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half_made(real, bootstrap)
    prepared = list[str]()
    monkeypatch.setattr(query_offsets, "prepare_to_write", lambda store, single_writer: prepared.append(store.url))
    file = real / "offsets" / "3"
    text = file.read_text()
    file.write_text(text.replace('"conf"', '"controlBatchInfo":{"a":1},"conf"'))
    assert "which this version of kstream does not know" in reset(real, bootstrap).stderr
    file.write_text(text)
    (real / "state").mkdir()
    assert "has state" in reset(real, bootstrap).stderr
    assert not (real / "commits" / "3").exists() and prepared == []
    (real / "state").rmdir()
    assert "it is finished now" in reset(real, bootstrap).stdout and len(prepared) == 2


class FailsOnce(WrappedStore):
    """Fails at the first call of one kind for one file, before or after the call is done."""

    def __init__(self, inner: FileStore, at: tuple[str, str], is_done: bool) -> None:
        super().__init__(inner)
        self._at: tuple[str, str] | None = at
        self._is_done = is_done

    def _call(self, verb: str, name: str, action: Callable[[], Any], size: int = 0) -> Any:
        if (verb, name) != self._at:
            return action()
        self._at = None
        if self._is_done:
            action()
        raise StorageError(f"cannot {verb} {name}", path=name)


HALF_MADE = "the change is half made. Run this command again before the query starts"


@pytest.mark.parametrize(
    ("verb", "name", "words"),
    [
        ("create", "offsets/3", HALF_MADE),
        ("replace", "kstream-ledger/reset-3", HALF_MADE),
        ("create", "commits/3", HALF_MADE),
    ],
)
@pytest.mark.parametrize("is_done", [False, True])
def test_a_change_whose_store_fails_says_what_to_do_and_another_run_makes_it_once(
    real: Path, bootstrap: str, verb: str, name: str, words: str, is_done: bool
) -> None:
    store = FailsOnce(LocalFileStore(str(real)), (verb, name), is_done)
    with pytest.raises(StorageError, match=words):
        change(store, {"orders": {"0": 40}}, bootstrap)
    assert ("offsets/3" in names(real)) == (is_done or name != "offsets/3")
    change(LocalFileStore(str(real)), {"orders": {"0": 40}}, bootstrap)
    assert offsets(real) == {0: (40, 40), 1: (18, 18)}
    assert [(row["from"], row["until"]) for row in data("ledger", str(real))["lost"]] == [(15, 40)]


class Killed(BaseException):
    """The process is no more."""


def is_killed(path: Path, bootstrap: str, steps: int) -> bool:
    """Whether a change to 40 is killed, after so many beginnings and ends of its writes."""
    left = iter(range(steps))

    def step(verb: str, name: str, done: bool) -> None:
        if next(left, None) is None:
            raise Killed

    try:
        change(SteppingStore(LocalFileStore(str(path)), step), {"orders": {"0": 40}}, bootstrap)
    except Killed:
        return True
    return False


def test_a_command_that_is_killed_leaves_no_entry_without_its_change_and_commits_none_without_its_entry(
    tmp_path: Path, bootstrap: str
) -> None:
    left = list[tuple[bool, ...]]()
    for steps in range(20):
        path = tmp_path / str(steps)
        shutil.copytree(REAL / "v1", path)
        if not is_killed(path, bootstrap, steps):
            break
        left.append(tuple(name in names(path) for name in ("offsets/3", "kstream-ledger/reset-3", "commits/3")))
        change(LocalFileStore(str(path)), {"orders": {"0": 40}}, bootstrap)
        assert offsets(path) == {0: (40, 40), 1: (18, 18)}
        assert [(row["from"], row["until"]) for row in data("ledger", str(path))["lost"]] == [(15, 40)]
    assert list(dict.fromkeys(left)) == [(False, False, False), (True, False, False), (True, True, False), (True, True, True)]


def test_options_that_a_query_does_not_know_are_refused(real: Path, bootstrap: str) -> None:
    assert "choose one of its sources by --source" in reset(real, bootstrap, "--stream", "0").stderr
    assert "no source of this query reads 'users'; they read orders" in reset(real, bootstrap, "--topic", "users").stderr
    assert "the options choose no source of this query" in reset(real, bootstrap, "--source", "7").stderr
    assert "give --bootstrap" in run("offsets", "reset", str(real), "--to", "latest", "--take-over").stderr
