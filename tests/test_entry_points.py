"""What packages offer is found without an import, also where they are only on the path."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import zipfile
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from kstream.entry_points import COMMANDS, CONNECTORS, entry_points

ROOT = Path(__file__).resolve().parent.parent
TABLE = "[kstream.connectors]\npulsar = kstream_pulsar.connector\n\n[kstream.cli]\nTail = kstream_pulsar.commands:tail\n"
OURS = {"log", "testing"}


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])


def pulsar_in(directory: Path) -> Path:
    package = directory / "kstream_pulsar"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')")
    (package / "entry_points.txt").write_text(TABLE)
    return directory


def zipped(directory: Path) -> Path:
    archive = directory.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as file:
        for path in directory.rglob("*.*"):
            file.write(path, path.relative_to(directory))
    return archive


@pytest.mark.parametrize("form", ["directory", "zip"])
def test_a_connector_that_is_only_on_the_path_is_found_and_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str) -> None:
    directory = pulsar_in(tmp_path / "lib")
    monkeypatch.setattr(sys, "path", [str(directory if form == "directory" else zipped(directory))])
    assert entry_points(CONNECTORS).keys() == {*OURS, "pulsar"}
    assert entry_points(COMMANDS) == {"Tail": EntryPoint("Tail", "kstream_pulsar.commands:tail", COMMANDS)}


def test_of_two_packages_of_one_name_the_one_that_is_imported_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = pulsar_in(tmp_path / "first"), pulsar_in(tmp_path / "second")
    (first / "kstream_pulsar" / "entry_points.txt").unlink()
    monkeypatch.setattr(sys, "path", [str(first), str(second)])
    assert entry_points(CONNECTORS).keys() == OURS


def test_what_is_installed_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(pulsar_in(tmp_path))])
    installed = EntryPoint("pulsar", "mine", CONNECTORS)
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [installed] * (group == CONNECTORS))
    assert entry_points(CONNECTORS)["pulsar"] is installed


def test_a_path_of_files_folders_and_what_is_gone_is_searched_without_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kstream_notes.txt").write_text("")
    (tmp_path / "kstream_module.py").write_text("")
    (tmp_path / "kstream_folder").mkdir()
    (tmp_path / "kstream_spark-1.0.dist-info").mkdir()
    monkeypatch.setattr(sys, "path", [str(tmp_path), str(tmp_path / "kstream_notes.txt"), str(tmp_path / "gone"), ""])
    assert entry_points(CONNECTORS).keys() == OURS


def test_the_file_of_the_kafka_connector_is_what_its_distribution_offers() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    offered = {group: _table(text, f'[project.entry-points."{group}"]') for group in (CONNECTORS, COMMANDS)}
    file = (ROOT / "connectors" / "kstream_kafka" / "entry_points.txt").read_text()
    assert {group: _table(file, f"[{group}]") for group in (CONNECTORS, COMMANDS)} == offered
    assert offered[CONNECTORS] == {"kafka": "kstream_kafka"} and len(offered[COMMANDS]) == 8


def _table(text: str, heading: str) -> dict[str, str]:
    """The rows of a table of TOML or of entry points, as text without quotes."""
    rows = text.partition(f"{heading}\n")[2].partition("\n\n")[0]
    return {name: value.strip('"') for name, value in re.findall(r"^(\S+) = (\S+)$", rows, re.MULTILINE)}
