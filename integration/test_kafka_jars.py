"""Where the broker's jars come from, with fetches that only pretend."""

from __future__ import annotations

from pathlib import Path

import pytest

from integration import kafka_jars
from integration.kafka_jars import JarsMissingError

BROKER_JAR = "kafka_2.13-4.3.1.jar"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no folder named by the user."""
    monkeypatch.delenv(kafka_jars.DIRECTORY_VARIABLE, raising=False)
    monkeypatch.setattr(kafka_jars, "CACHE", tmp_path / ".cache")
    return tmp_path / ".cache" / f"kafka-{kafka_jars.KAFKA}"


def fetches(monkeypatch: pytest.MonkeyPatch, **ends: str | Exception) -> list[str]:
    """`maven` and `ivy` leave a jar of that name or fail; returns who was asked, in order."""
    asked: list[str] = []

    def fetch(name: str, end: str | Exception, folder: Path) -> None:
        asked.append(name)
        if isinstance(end, Exception):
            raise end
        (folder / end).touch()

    monkeypatch.setattr("shutil.which", lambda name: "mvn" if "maven" in ends else None)
    for name, end in ends.items():
        monkeypatch.setattr(kafka_jars, f"_fetch_by_{name}", lambda folder, name=name, end=end: fetch(name, end, folder))
    return asked


def test_jars_are_fetched_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fetches(monkeypatch, ivy=BROKER_JAR)
    assert kafka_jars.kafka_jars() == cache == kafka_jars.kafka_jars()
    assert asked == ["ivy"]
    assert [entry.name for entry in cache.parent.iterdir()] == [cache.name]


def test_a_fetch_that_was_cut_short_is_redone(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.mkdir(parents=True)
    (cache / "half.jar").touch()
    fetches(monkeypatch, ivy=BROKER_JAR)
    kafka_jars.kafka_jars()
    assert sorted(entry.name for entry in cache.iterdir()) == [".complete", BROKER_JAR]


def test_where_maven_fails_ivy_is_asked(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = fetches(monkeypatch, maven=OSError("JAVA_HOME is not defined"), ivy=BROKER_JAR)
    kafka_jars.kafka_jars()
    assert asked == ["maven", "ivy"]


def test_a_failure_is_one_line_with_both_reasons_and_leaves_nothing(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fetches(monkeypatch, maven=OSError("no route"), ivy="other.jar")
    with pytest.raises(JarsMissingError, match=r"Maven: no route; Ivy: no jar came.*KSTREAM_KAFKA_JARS") as e:
        kafka_jars.kafka_jars()
    assert "\n" not in str(e.value)
    assert list(cache.parent.iterdir()) == []


def test_a_folder_the_user_names_is_only_read(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    (theirs / "letter.txt").write_text("dear")
    monkeypatch.setenv(kafka_jars.DIRECTORY_VARIABLE, str(theirs))
    with pytest.raises(JarsMissingError, match="holds no kafka_2"):
        kafka_jars.kafka_jars()
    assert (theirs / "letter.txt").read_text() == "dear"
    (theirs / BROKER_JAR).touch()
    assert kafka_jars.kafka_jars() == theirs
