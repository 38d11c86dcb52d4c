"""A query of Structured Streaming goes on with the other Kafka source: what its checkpoint and its options need."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from kstream_kafka.structured.options import starting_positions
from kstream_kafka.tools.query_migration import KAFKA, KSTREAM, SourceStanding, move_of, read_standing, write_file

from kstream.cli import main
from kstream.cli.structured_streaming import initial_offset
from kstream.errors import ConfigurationError
from kstream.storage import LocalFileStore

REAL = Path(__file__).resolve().parents[2] / "cli" / "structured_streaming"
P0, P1, P2 = ("t", 0), ("t", 1), ("t", 2)
METADATA = '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}'


def query(folder: Path, offsets: Mapping[int, list[str]], commits: list[int], metadata: str = METADATA, version: str = "v1") -> Path:
    """A checkpoint with these lines of sources by batch."""
    for name in ("offsets", "commits"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6e7382d8-5b02-4b29-9878-ffb86be14819"}')
    for number, lines in offsets.items():
        (folder / "offsets" / str(number)).write_text("\n".join([version, metadata, *lines]))
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def starts_of_spark(folder: Path, text: str, source: str = "0") -> None:
    """The file of Spark's own source with the start of the query."""
    (folder / "sources" / source).mkdir(parents=True)
    (folder / "sources" / source / "0").write_bytes(b"\0v1\n" + text.encode())


def migrate(folder: Path, *options: str) -> Result:
    return CliRunner().invoke(main, ["structured", "migrate", str(folder), *options])


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(folder: Path, *options: str) -> str:
    result = migrate(folder, *options, "--apply")
    assert result.exit_code == 1 and result.stdout == "" and len(result.stderr.splitlines()) == 1, result.output
    return result.stderr


# -- what most queries need: nothing


@pytest.mark.parametrize("to", [KAFKA, KSTREAM])
@pytest.mark.parametrize("folder", ["v1", "v2"])
def test_a_query_with_a_committed_batch_needs_nothing(to: str, folder: str) -> None:
    before = files(REAL / folder)
    result = migrate(REAL / folder, "--to", to, "--apply")
    assert result.exit_code == 0 and "goes on at its offsets: nothing must be changed" in result.stdout
    assert files(REAL / folder) == before


def test_an_open_batch_is_named_with_the_source_that_runs_it_again() -> None:
    result = migrate(REAL / "v2", "--to", KSTREAM)
    assert 'batch 1 has begun and is not committed: format("kstream") runs it again with its offsets' in result.stdout


@pytest.mark.parametrize(("to", "starts"), [*itertools.product([KAFKA, KSTREAM], ["earliest", "latest", '{"t":{"0":1}}', None])])
def test_committed_offsets_win_over_any_start(to: str, starts: str | None) -> None:
    source = SourceStanding("0", {P0: 5}, {P0: 9}, None)
    move = move_of(source, to, None if starts is None else starting_positions(starts))
    assert move.file is None and move.starting_offsets is None


# -- a first batch of Spark's own source that was not committed


def test_kstream_begins_the_first_batch_of_sparks_source_where_that_began(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t":{"0":9,"1":4}}']}, [])
    starts_of_spark(tmp_path, '{"t":{"1":4,"0":2}}')
    before = files(tmp_path)
    result = migrate(tmp_path, "--to", KSTREAM, "--apply")
    assert '.option("startingOffsets", \'{"t":{"0":2,"1":4}}\')' in result.stdout.splitlines()
    assert files(tmp_path) == before, "an option says it, and no file"


def test_a_partition_that_came_in_the_first_batch_begins_at_its_first_record() -> None:
    move = move_of(SourceStanding("0", None, {P0: 9, P1: 3}, {P0: 2}), KSTREAM, None)
    assert move.starting_offsets == '{"t":{"0":2,"1":-2}}'
    positions = starting_positions(move.starting_offsets)
    assert {p: str(positions.of(p)) for p in (P0, P1)} == {P0: "offset 2", P1: "earliest"}


def test_back_to_sparks_source_its_start_is_still_there(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t":{"0":9}}']}, [])
    starts_of_spark(tmp_path, '{"t":{"0":2}}')
    before = files(tmp_path)
    assert "has its start in sources/0/0: nothing must be changed" in migrate(tmp_path, "--to", KAFKA, "--apply").stdout
    assert files(tmp_path) == before


# -- a first batch of kstream that was not committed


def test_the_start_of_a_query_that_began_at_latest_is_the_end_of_its_first_batch(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t": {"0": 9, "1": 4}}']}, [])
    before = files(tmp_path)
    shown = migrate(tmp_path, "--to", KAFKA, "--starting-offsets", "latest")
    assert "--apply writes the file" in shown.stdout and files(tmp_path) == before
    assert migrate(tmp_path, "--to", KAFKA, "--starting-offsets", "latest", "--apply").exit_code == 0
    written = {**before, "sources/0/0": b'\0v1\n{"t":{"0":9,"1":4}}'}
    assert files(tmp_path) == written
    again = migrate(tmp_path, "--to", KAFKA, "--starting-offsets", "latest", "--apply")
    assert again.exit_code == 0 and "nothing must be changed" in again.stdout and files(tmp_path) == written


def test_the_file_of_the_start_is_read_as_spark_writes_it(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t": {"0": 9}}']}, [])
    migrate(tmp_path, "--to", KAFKA, "--starting-offsets", "latest", "--apply")
    assert initial_offset(LocalFileStore(tmp_path), "0") == '{"t":{"0":9}}'


@pytest.mark.parametrize("starts", ["earliest", '{"t":{"0":3,"1":-2}}'])
def test_sparks_source_finds_a_start_that_is_not_latest_again_by_itself(starts: str) -> None:
    move = move_of(SourceStanding("0", None, {P0: 9, P1: 4}, None), KAFKA, starting_positions(starts))
    assert move.file is None and "nothing must be changed" in move.sentence


def test_given_offsets_and_latest_are_stored_together_without_partitions_that_came_later() -> None:
    move = move_of(SourceStanding("shop", None, {P0: 9, P1: 4, P2: 7}, None), KAFKA, starting_positions('{"t":{"0":3,"1":-1}}'))
    assert move.file == ("sources/shop/0", b'\0v1\n{"t":{"0":3,"1":4}}')


def test_a_start_that_nobody_can_know_is_refused_with_the_way_out(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t": {"0": 9, "1": 4}}']}, [])
    before = files(tmp_path)
    assert "let kstream commit its first batch (trigger availableNow) and move then" in refusal(tmp_path, "--to", KAFKA)
    assert "began at both ends" in refusal(tmp_path, "--to", KAFKA, "--starting-offsets", '{"t":{"0":-2,"1":-1}}')
    assert "startingOffsets" in refusal(tmp_path, "--to", KAFKA, "--starting-offsets", "late")
    assert files(tmp_path) == before


def test_kstream_goes_on_with_a_first_batch_of_its_own(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t": {"0": 9}}']}, [])
    assert "goes on with the options that it has" in migrate(tmp_path, "--to", KSTREAM).stdout


# -- queries of several sources


def test_each_source_has_its_own_need_and_sources_of_other_kinds_are_left_alone(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t":{"0":9}}', "17", '{"u":{"0":4}}']}, [])
    starts_of_spark(tmp_path, '{"t":{"0":2}}', "0")
    starts_of_spark(tmp_path, '{"u":{"0":0}}', "2")
    said = migrate(tmp_path, "--to", KSTREAM).stdout
    assert '{"t":{"0":2}}' in said and '{"u":{"0":0}}' in said and "source 1" not in said
    only = migrate(tmp_path, "--to", KSTREAM, "--source", "2").stdout
    assert '{"t":{"0":2}}' not in only and '{"u":{"0":0}}' in only
    assert "no Kafka source '1'; it has 0, 2" in refusal(tmp_path, "--to", KSTREAM, "--source", "1")


def test_a_source_that_has_read_nothing_before_committed_batches_begins_by_its_options(tmp_path: Path) -> None:
    query(tmp_path, {3: ['{"t":{"0":9}}', "-"]}, [3])
    assert "source 1 has read nothing yet" in migrate(tmp_path, "--to", KAFKA).stdout


def test_a_pattern_without_topics_is_an_offset(tmp_path: Path) -> None:
    query(tmp_path, {0: ["{}"]}, [0])
    assert read_standing(LocalFileStore(tmp_path)).sources == [SourceStanding("0", {}, None, None)]


# -- what is refused


@pytest.mark.parametrize(
    ("offsets", "commits", "metadata", "said"),
    [
        ({}, [], METADATA, "no batch of"),
        ({4: ['{"t":{"0":1}}']}, [], METADATA, "without asyncProgressTrackingEnabled"),
        ({2: ['{"t":{"0":1}}'], 4: ['{"t":{"0":2}}']}, [2], METADATA, "without asyncProgressTrackingEnabled"),
        ({3: ['{"t":{"0":1}}'], 4: ['{"t":{"0":2}}']}, [5], METADATA, "is damaged"),
        ({0: ['{"t":{"0":1}}']}, [0], "", "no micro-batch"),
        ({0: ['{"t":{"0":1}}']}, [0], "[]", "no micro-batch"),
        ({0: ['{"t":{"0":1}}']}, [0], '{"batchTimestampMs":1,"sourceMetadataInfo":{"0":{}}}', "has sourceMetadataInfo"),
        ({0: ['{"t":{"0":1}}']}, [0], '{"batchTimestampMs":1,"controlBatchInfo":{"operationType":"x"}}', "has controlBatchInfo"),
        ({0: ['{"logOffset":3}']}, [0], METADATA, "reads Kafka"),
    ],
)
@pytest.mark.parametrize("to", [KAFKA, KSTREAM])
def test_what_is_not_known_is_refused_in_one_sentence_and_nothing_changes(
    tmp_path: Path, offsets: dict[int, list[str]], commits: list[int], metadata: str, said: str, to: str
) -> None:
    query(tmp_path, offsets, commits, metadata)
    before = files(tmp_path)
    assert said in refusal(tmp_path, "--to", to) and files(tmp_path) == before


def test_another_version_of_the_offset_log_and_a_folder_that_is_no_query_are_refused(tmp_path: Path) -> None:
    query(tmp_path / "v9", {0: ["0:{}"]}, [0], version="v9")
    assert "has the version v9" in refusal(tmp_path / "v9", "--to", KAFKA)
    assert "there is no checkpoint of Structured Streaming" in refusal(tmp_path / "nowhere", "--to", KAFKA)
    assert json.loads((tmp_path / "v9" / "metadata").read_text())


def test_a_start_that_came_meanwhile_is_never_written_over(tmp_path: Path) -> None:
    query(tmp_path, {0: ['{"t": {"0": 9}}']}, [])
    starts_of_spark(tmp_path, '{"t":{"0":7}}')
    store = LocalFileStore(tmp_path)
    with pytest.raises(ConfigurationError, match=r"has come meanwhile: a query runs[.] Stop it first"):
        write_file(store, "sources/0/0", b'\0v1\n{"t":{"0":9}}')
    assert initial_offset(store, "0") == '{"t":{"0":7}}'


def test_standing_of_a_query_in_mid_batch(tmp_path: Path) -> None:
    query(tmp_path, {6: ['{"t":{"0":1}}'], 7: ['{"t":{"0":5,"1":2}}']}, [6])
    standing = read_standing(LocalFileStore(tmp_path))
    assert (standing.committed, standing.open) == (6, 7)
    assert standing.sources == [SourceStanding("0", {P0: 1}, {P0: 5, P1: 2}, None)]


def test_starting_offsets_are_checked_before_anything_is_read() -> None:
    with pytest.raises(ConfigurationError, match="startingOffsets"):
        starting_positions("sometimes")
