"""The offsets in a checkpoint of Structured Streaming.

The files under `structured_streaming/` are real: Structured Streaming of Spark 4.3 has written them, `rate` by its rate source, `v1` and
`v2` by a data source in Python that gives offsets of Kafka's form, since Kafka's own source is a jar. What a test writes itself has the
form that Spark's sources and documentation give: the lines of `KafkaSourceOffset` and of the initial offsets, several sources, `-`.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kstream.cli.offsets_import import sentences
from kstream.cli.structured_streaming import Carried, carried_offsets, kafka_offsets
from kstream.errors import ConfigurationError
from kstream.offsets.offset_log import sources_of
from kstream.storage import LocalFileStore

REAL = Path(__file__).parent / "structured_streaming"
KAFKA = '{"orders":{"0":123,"1":45}}'


def carried(folder: Path, source: str | None = None, skip: bool = False) -> Carried:
    return carried_offsets(LocalFileStore(folder), source, skip)


def refusal(folder: Path, source: str | None = None, skip: bool = False) -> str:
    with pytest.raises(ConfigurationError) as refused:
        carried(folder, source, skip)
    return str(refused.value)


def query(folder: Path, offsets: dict[int, list[str]], commits: list[int], version: str = "v1") -> Path:
    """A checkpoint with these lines of sources by batch, Spark's checksums and a temporary file."""
    for name in ("offsets", "commits", "sources/0"):
        (folder / name).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"6e7382d8-5b02-4b29-9878-ffb86be14819"}')
    for number, lines in offsets.items():
        text = "\n".join([version, '{"batchWatermarkMs":0,"batchTimestampMs":1,"conf":{}}', *lines])
        (folder / "offsets" / str(number)).write_text(text)
        (folder / "offsets" / f".{number}.crc").write_bytes(b"crc\0")
    (folder / "offsets" / ".99.0e1c.tmp").write_text("v1")
    for number in commits:
        (folder / "commits" / str(number)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    return folder


def test_a_real_checkpoint_goes_on_after_its_last_committed_batch() -> None:
    assert carried(REAL / "v1") == Carried("0", {"orders": {"0": 15, "1": 18}}, 2, None, False)


def test_a_real_checkpoint_with_named_sources_and_a_batch_that_has_begun_is_read_again_or_skipped_on_request() -> None:
    assert carried(REAL / "v2") == Carried("shop", {"orders": {"0": 5, "1": 6}}, 0, 1, False)
    assert carried(REAL / "v2", "shop", skip=True) == Carried("shop", {"orders": {"0": 10, "1": 12}}, 0, 1, True)


def test_a_real_checkpoint_of_another_source_is_refused() -> None:
    assert refusal(REAL / "rate") == f"source 0 of {REAL / 'rate'} is no Kafka source: its offset is 11"


def test_the_offsets_of_kafkas_source_are_the_next_ones_to_read(tmp_path: Path) -> None:
    query(tmp_path, {41: ['{"orders":{"0":100,"1":40}}'], 42: [KAFKA]}, [40, 41, 42])
    assert carried(tmp_path).offsets == {"orders": {"0": 123, "1": 45}}


def test_a_first_batch_that_is_not_committed_begins_where_its_source_began(tmp_path: Path) -> None:
    query(tmp_path, {0: [KAFKA]}, [])
    assert "no batch of" in refusal(tmp_path) and "where source 0 began" in refusal(tmp_path)
    (tmp_path / "sources/0/0").write_bytes(b'\0v1\n{"orders":{"2":7,"0":0}}')
    assert carried(tmp_path) == Carried("0", {"orders": {"0": 0, "2": 7}}, None, 0, False)
    assert carried(tmp_path, skip=True).offsets == json.loads(KAFKA)
    (tmp_path / "sources/0/0").write_bytes(b"\0v7\n{}")
    assert "has the version v7" in refusal(tmp_path)


def test_a_source_is_chosen_by_number_where_there_are_several(tmp_path: Path) -> None:
    query(tmp_path, {5: [KAFKA, '{"clicks":{"0":9}}', "-", '{"logOffset":3}']}, [5])
    said = refusal(tmp_path)
    assert f"{tmp_path} has 4 sources: 0 ({KAFKA}), 1 (" in said and said.endswith("Choose one with --source")
    assert carried(tmp_path, "1").offsets == {"clicks": {"0": 9}}
    assert "has no source '7'" in refusal(tmp_path, "7")
    assert "no Kafka source" in refusal(tmp_path, "3")
    assert "where source 2 began" in refusal(tmp_path, "2"), "a source without an offset has read nothing yet"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("v3\n{}\n" + KAFKA, "has the version v3: kstream reads v1 and v2 of the offset log"),
        ("\x1b[2J", r"has the version \x1b[2J: "),
        ("v1\n{}", "is damaged"),
        ("v1", "is damaged"),
        ("v2\n{}\n" + KAFKA, "is damaged"),
        ("", "has the version : "),
    ],
)
def test_an_unknown_form_is_refused_in_one_sentence(text: str, said: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        sources_of(text, "/q/offsets/3")
    assert said in str(refused.value) and str(refused.value).startswith("/q/offsets/3 ")


def test_what_is_no_checkpoint_and_what_has_no_batch_is_refused(tmp_path: Path) -> None:
    assert refusal(tmp_path / "nowhere").startswith("there is no checkpoint of Structured Streaming in ")
    query(tmp_path, {}, [])
    assert refusal(tmp_path) == f"no batch of {tmp_path} has begun: it has no offsets to carry over"


def test_a_committed_batch_without_its_offsets_is_damage(tmp_path: Path) -> None:
    query(tmp_path, {3: [KAFKA]}, [3, 4])
    assert refusal(tmp_path) == f"{tmp_path} is damaged: batch 4 is committed, and {tmp_path / 'offsets/4'} is missing"


@pytest.mark.parametrize(
    "text", ["5", "-", "{}", '{"logOffset":3}', '{"a":{}}', '{"a":{"x":1}}', '{"a":{"0":-2}}', '{"a":{"0":"1"}}', '{"a":{"0":true}}', "[1]"]
)
def test_offsets_of_other_sources_are_not_taken_for_kafkas(text: str) -> None:
    assert kafka_offsets(text) is None


def test_topics_and_partitions_are_in_order() -> None:
    found = kafka_offsets('{"b":{"10":1,"9":2},"a":{"0":3}}')
    assert found is not None and json.dumps(found) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'


def test_the_command_says_what_is_known_about_the_batches() -> None:
    offsets = {"orders": {"0": 1, "1": 2}}
    assert sentences(Carried("0", offsets, 4, None, False), "/q") == [
        "batch 4 is the last one of /q that is committed; source 0 reads orders (2 partitions)"
    ]
    again = "batch 5 has begun and is not committed: perhaps it was processed. Its records are read again (--uncommitted skip: not)"
    assert sentences(Carried("0", offsets, 4, 5, False), "/q")[1] == again
    assert sentences(Carried("0", offsets, None, 0, True), "/q") == [
        "no batch of /q is committed; source 0 reads orders (2 partitions)",
        "batch 0 has begun and is not committed: perhaps it was processed. Its records are left out",
    ]
