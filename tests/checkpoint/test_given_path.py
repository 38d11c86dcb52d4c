"""The checkpoint that `kstream run` was given: the job chooses no other one, whatever name it uses for the same directory."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.checkpoint.given_path import check_directory, check_start, given_checkpoint
from kstream.errors import ConfigurationError


@pytest.fixture(autouse=True)
def in_a_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link").symlink_to(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    "name", ["checkpoint", "checkpoint/", "./checkpoint", "HERE/checkpoint", "file:HERE/checkpoint", "file://HERE/checkpoint", "link"]
)
@pytest.mark.parametrize("given", ["checkpoint", "HERE/checkpoint"])
def test_two_names_of_one_directory_are_no_error(tmp_path: Path, name: str, given: str) -> None:
    with given_checkpoint(given.replace("HERE", str(tmp_path))):
        check_directory(name.replace("HERE", str(tmp_path)))


@pytest.mark.parametrize("name", ["s3a://bucket/orders", "S3://bucket/orders/", "s3://bucket/orders"])
def test_two_urls_of_one_prefix_are_no_error(name: str) -> None:
    with given_checkpoint("s3://bucket/orders"):
        check_directory(name)


@pytest.mark.parametrize(("name", "given"), [("other", "checkpoint"), ("orders", "s3://bucket/orders"), ("s3://bucket/b", "s3://bucket/a")])
def test_another_directory_is_refused_and_both_are_named(name: str, given: str) -> None:
    with (
        given_checkpoint(given),
        pytest.raises(ConfigurationError, match=rf"sets the checkpoint {name}, and `kstream run` has --checkpoint {given}:"),
    ):
        check_directory(name)


def test_a_program_of_ones_own_starts_its_context_and_chooses_its_checkpoint() -> None:
    with given_checkpoint("checkpoint"), pytest.raises(ConfigurationError, match="would run without the checkpoint checkpoint"):
        check_start()
    check_start()
    check_directory("other")
