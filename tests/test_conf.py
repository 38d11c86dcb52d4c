"""Settings are typed, and one that does not parse is named."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from kstream.checkpoint.settings import CHECKPOINT_DIRECTORY
from kstream.conf import INT, ConfigEntry, Settings, SettingsTable, parse_bool, parse_seconds, parse_time_ms, text_of
from kstream.context.settings import GRACEFUL_STOP_TIMEOUT, RECOVERY_ALLOW
from kstream.context.settings_table import settings_table
from kstream.dstream.settings import UNPERSIST
from kstream.errors import ConfigurationError
from kstream.scheduler.settings import CONCURRENT_JOBS
from tests.fakes import FakeConf

TABLE = settings_table()
ROOT = Path(__file__).resolve().parent.parent
FILES = sorted(path for folder in ("kstream", "connectors") for path in (ROOT / folder).rglob("settings.py"))


def entries_in(path: Path) -> dict[str, ConfigEntry[object]]:
    """The entries that a settings.py declares, by their constants."""
    module = importlib.import_module(".".join(path.relative_to(ROOT).with_suffix("").parts).removeprefix("connectors."))
    return {name: value for name, value in vars(module).items() if isinstance(value, ConfigEntry)}


def declared_types(path: Path) -> dict[str, tuple[str, ...]]:
    """The types of the values of a settings.py, as pyright reads them: constant → the names of its types."""
    declared = [node for node in ast.parse(path.read_text()).body if isinstance(node, ast.AnnAssign)]
    return {ast.unparse(node.target): tuple(ast.unparse(node.annotation)[len("ConfigEntry[") : -1].split(" | ")) for node in declared}


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("500ms", 500), ("10s", 10_000), ("2m", 120_000), ("2min", 120_000), ("1h", 3_600_000), (" 1 D ", 86_400_000)],
)
def test_times_are_read_with_sparks_units(text: str, ms: int) -> None:
    assert parse_time_ms(text) == ms


@pytest.mark.parametrize("text", ["", "s", "-1s", "1.5s", "10 parsecs", "1s2s"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a time"):
        parse_time_ms(text)


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), (" 60 ", 60), ("60s", 60), ("500ms", 0.5), ("1h", 3600)])
def test_of_some_settings_a_number_without_a_unit_is_seconds(text: str, seconds: float) -> None:
    assert parse_seconds(text) == seconds


def test_booleans_are_two_words_in_any_case() -> None:
    assert parse_bool("TRUE") is True and parse_bool(" false ") is False
    with pytest.raises(ValueError, match="neither"):
        parse_bool("yes")


def test_an_unset_setting_has_its_default() -> None:
    settings = Settings(FakeConf())
    assert [settings[entry] for entry in TABLE.entries] == [entry.default for entry in TABLE.entries]


def test_a_source_whose_values_are_given_is_not_asked_for_a_setting() -> None:
    """A SparkConf calls the JVM for each key, and a batch reads ten settings."""
    settings = Settings(FakeConf({"spark.streaming.concurrentJobs": "3"}), {"spark.streaming.concurrentJobs": "2"})
    assert settings[CONCURRENT_JOBS] == 2
    assert settings[UNPERSIST] is True
    settings.override(UNPERSIST, "false")
    assert settings[UNPERSIST] is False


def test_a_set_value_is_parsed_by_its_kind() -> None:
    settings = Settings(
        FakeConf(
            {
                "spark.streaming.concurrentJobs": "2",
                "spark.streaming.unpersist": "false",
                "spark.streaming.gracefulStopTimeout": "3s",
                "spark.streaming.checkpoint.directory": "/c",
            }
        )
    )
    assert settings[CONCURRENT_JOBS] == 2
    assert settings[UNPERSIST] is False
    assert settings[GRACEFUL_STOP_TIMEOUT] == 3000
    assert settings[CHECKPOINT_DIRECTORY] == "/c"


@pytest.mark.parametrize("entry", [entry for entry in TABLE.entries if entry.kind.name != "str"], ids=str)
def test_a_value_that_does_not_parse_names_its_key(entry: ConfigEntry[object]) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(FakeConf({entry.key: "a lot"}))[entry]
    assert entry.key in str(caught.value) and "a lot" in str(caught.value)
    assert (caught.value.facts["key"], caught.value.facts["value"]) == (entry.key, "a lot")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_value_of_a_setting_has_the_type_that_its_room_declares(path: Path) -> None:
    """`settings[ENTRY]` has the type of the entry, and pyright believes the declaration."""
    entries, declared = entries_in(path), declared_types(path)
    assert list(entries) == list(declared)
    texts = {"bool": "true", "int": "7", "float": "0.5", "ms": "3s", "s": "60", "bytes": "1m", "str": "a word"}
    for name, entry in entries.items():
        value = Settings({entry.key: (*entry.words, texts[entry.kind.name])[0]})[entry]
        assert declared[name] == (type(value).__name__, *(["None"] if entry.default is None else []))
        assert entry.default is None or entry.kind.parse(text_of(entry.default)) == entry.default


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.parent.name)
def test_the_settings_of_a_room_know_nothing_of_the_room(path: Path) -> None:
    """So each room may read the settings of a lower one, and the table may have those of all."""
    found = [ast.unparse(node) for node in ast.parse(path.read_text()).body if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [line.partition(" import ")[0] for line in found] == ["from __future__", "from kstream.conf"]


def test_each_setting_of_a_room_is_in_the_table_once_and_each_of_the_table_is_of_a_room() -> None:
    declared = [entry.key for path in FILES for entry in entries_in(path).values()]
    assert sorted(declared) == sorted(entry.key for entry in TABLE.entries) == sorted(set(declared))
    assert len(declared) > 80


def test_the_page_of_settings_is_that_of_the_code() -> None:
    page = (ROOT / "docs" / "settings.md").read_text()
    tables = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", page, re.DOTALL)
    assert tables is not None and tables[1] == TABLE.markdown()
    printed = subprocess.run([sys.executable, "-m", "kstream.conf"], capture_output=True, text=True, check=True, cwd=ROOT)
    assert printed.stdout == tables[1] + "\n"


def test_the_settings_are_printed_also_where_there_is_no_pyspark() -> None:
    program = """
import runpy, sys
sys.modules["pyspark"] = sys.modules["py4j"] = None
runpy.run_module("kstream.conf", run_name="__main__")
"""
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    assert printed.stdout == TABLE.markdown() + "\n" and printed.stderr == ""


def test_an_option_of_a_command_wins_over_what_is_configured() -> None:
    settings = Settings({"spark.streaming.kstream.recovery.allow": "dropped:a"})
    settings.override(RECOVERY_ALLOW, "dropped:b")
    assert settings[RECOVERY_ALLOW] == "dropped:b"


def test_known_settings_and_settings_of_others_are_no_matter() -> None:
    assert TABLE.check({"spark.streaming.unpersist": "false", "spark.executor.cores": "2", "spark.steaming.unpersist": "x"}) == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("spark.streaming.kafka.maxRatePerPartiton", "spark.streaming.kafka.maxRatePerPartition"),
        ("spark.streaming.kstream.kafka.onDataLos", "spark.streaming.kstream.kafka.onDataLoss"),
        ("spark.streaming.concurrentjobs", "spark.streaming.concurrentJobs"),
        ("spark.streaming.kstream.kafka.maxRatePerPartition", "spark.streaming.kafka.maxRatePerPartition"),
        ("spark.streaming.kstream.retries", "spark.streaming.kstream.batch.retries"),
    ],
)
def test_a_misspelt_setting_is_a_warning_with_the_nearest_name(key: str, meant: str) -> None:
    assert TABLE.check({key: "1"}) == [f"setting {key} is unknown and has no effect. Did you mean {meant!r}?"]


def test_an_unknown_setting_like_no_other_has_no_silly_hint_and_its_value_is_not_told() -> None:
    (warning,) = TABLE.check({"spark.streaming.kafka.sasl.password": "s3cret"})
    assert warning == (
        "setting spark.streaming.kafka.sasl.password is unknown and has no effect. `python -m kstream.conf` lists the settings."
    )


def test_settings_of_spark_without_effect_are_one_warning() -> None:
    values = {"spark.streaming.sessionByKey.deltaChainThreshold": "9", "spark.streaming.minRememberDuration": "2m"}
    assert TABLE.check(values) == [
        "settings of Spark that have no effect in kstream: spark.streaming.minRememberDuration "
        "(use spark.streaming.fileStream.minRememberDuration), spark.streaming.sessionByKey.deltaChainThreshold"
    ]
    known = {entry.key for entry in TABLE.entries}
    assert not TABLE.without_effect.keys() & known
    assert {new for new in TABLE.without_effect.values() if new} <= known


def test_a_value_that_cannot_be_read_is_found_though_nobody_has_asked_for_it() -> None:
    with pytest.raises(ConfigurationError, match=r"poll\.ms is 'soon'"):
        TABLE.check({"spark.streaming.kafka.consumer.poll.ms": "soon"})


@pytest.fixture
def fresh() -> Iterator[None]:
    """The table is composed anew in the test, and after it."""
    settings_table.cache_clear()
    yield
    settings_table.cache_clear()


def test_the_settings_of_a_connector_are_known_only_where_it_is_installed(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = {"spark.streaming.kafka.consumer.poll.ms": "soon", "spark.streaming.kafka.consumer.cache.enabled": "true"}
    monkeypatch.setitem(sys.modules, "kstream_kafka", None)
    assert [warning.split(" is ")[0] for warning in settings_table().check(theirs)] == [f"setting {key}" for key in sorted(theirs)]
    assert not [entry for entry in settings_table().entries if "kafka" in entry.key]


def test_another_connector_brings_settings_too(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    entry = ConfigEntry("spark.streaming.pulsar.maxTasks", INT, 0, "Maximum tasks per batch of a stream of Pulsar.")
    offer = SimpleNamespace(connector_settings=lambda: SettingsTable({"Reading Pulsar": (entry,)}))
    found = [SimpleNamespace(name="pulsar", load=lambda: offer)]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **asked: found * (asked["group"] == "kstream.connectors"))
    assert list(settings_table().groups)[-1] == "Reading Pulsar" and settings_table().check({entry.key: "5"}) == []
    with pytest.raises(ConfigurationError, match="maxTasks is 'many', which is not a int: Maximum tasks"):
        settings_table().check({entry.key: "many"})


def test_the_groups_of_a_connector_keep_their_order_among_those_of_the_core() -> None:
    core, theirs = (
        SettingsTable({group: [ConfigEntry(f"{of}.{group}", INT, 0, "")] for group in groups})
        for of, groups in (("core", "ADE"), ("its", "BCDF"))
    )
    both = core.with_connector(theirs)
    assert {group: [entry.key for entry in entries] for group, entries in both.groups.items()} == {
        "A": ["core.A"],
        "B": ["its.B"],
        "C": ["its.C"],
        "D": ["its.D", "core.D"],
        "E": ["core.E"],
        "F": ["its.F"],
    }
