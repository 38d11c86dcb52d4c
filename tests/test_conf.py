"""Settings are typed, and one that does not parse is named."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstream.conf import (
    BY_KEY,
    ENTRIES,
    WITHOUT_EFFECT,
    Settings,
    check_settings,
    markdown_tables,
    parse_bool,
    parse_seconds,
    parse_time_ms,
)
from kstream.errors import ConfigurationError
from tests.fakes import FakeConf


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
    assert {entry.key: settings.get(entry.key) for entry in ENTRIES} == {entry.key: entry.default for entry in ENTRIES}


def test_a_source_whose_values_are_given_is_not_asked_for_a_setting() -> None:
    """A SparkConf calls the JVM for each key, and a batch reads ten settings."""
    settings = Settings(FakeConf({"spark.streaming.concurrentJobs": "3"}), {"spark.streaming.concurrentJobs": "2"})
    assert settings.get("spark.streaming.concurrentJobs") == 2
    assert settings.get("spark.streaming.unpersist") is True
    settings.override("spark.streaming.unpersist", "false")
    assert settings.get("spark.streaming.unpersist") is False


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
    assert settings.get("spark.streaming.concurrentJobs") == 2
    assert settings.get("spark.streaming.unpersist") is False
    assert settings.get("spark.streaming.gracefulStopTimeout") == 3000
    assert settings.get("spark.streaming.checkpoint.directory") == "/c"


@pytest.mark.parametrize("key", [entry.key for entry in ENTRIES if entry.kind != "str"])
def test_a_value_that_does_not_parse_names_its_key(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings(FakeConf({key: "a lot"})).get(key)
    assert key in str(caught.value) and "a lot" in str(caught.value)
    assert (caught.value.facts["key"], caught.value.facts["value"]) == (key, "a lot")


def test_a_key_that_is_not_in_the_table_is_our_mistake() -> None:
    with pytest.raises(KeyError):
        Settings(FakeConf()).get("spark.streaming.nonsense")


def test_keys_are_told_once_and_the_page_of_settings_is_that_of_the_code() -> None:
    assert len(BY_KEY) == len(ENTRIES)
    page = (Path(__file__).resolve().parent.parent / "docs" / "settings.md").read_text()
    tables = re.search(r"<!-- settings -->\n(.*?)\n<!-- /settings -->", page, re.DOTALL)
    assert tables is not None and tables[1] == markdown_tables()
    assert all(f"`{entry.key}`" in page for entry in ENTRIES)


def test_an_option_of_a_command_wins_over_what_is_configured() -> None:
    settings = Settings({"spark.streaming.kstream.recovery.allow": "dropped:a"})
    settings.override("spark.streaming.kstream.recovery.allow", "dropped:b")
    assert settings.get("spark.streaming.kstream.recovery.allow") == "dropped:b"


def test_known_settings_and_settings_of_others_are_no_matter() -> None:
    assert check_settings({"spark.streaming.unpersist": "false", "spark.executor.cores": "2", "spark.steaming.unpersist": "x"}) == []


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
    assert check_settings({key: "1"}) == [f"setting {key} is unknown and has no effect. Did you mean {meant!r}?"]


def test_an_unknown_setting_like_no_other_has_no_silly_hint_and_its_value_is_not_told() -> None:
    (warning,) = check_settings({"spark.streaming.kafka.sasl.password": "s3cret"})
    assert warning == (
        "setting spark.streaming.kafka.sasl.password is unknown and has no effect. `python -m kstream.conf` lists the settings."
    )


def test_settings_of_spark_without_effect_are_one_warning() -> None:
    values = {"spark.streaming.sessionByKey.deltaChainThreshold": "9", "spark.streaming.minRememberDuration": "2m"}
    assert check_settings(values) == [
        "settings of Spark that have no effect in kstream: spark.streaming.minRememberDuration "
        "(use spark.streaming.fileStream.minRememberDuration), spark.streaming.sessionByKey.deltaChainThreshold"
    ]
    assert not WITHOUT_EFFECT.keys() & BY_KEY.keys()
    assert {new for new in WITHOUT_EFFECT.values() if new} <= BY_KEY.keys()


def test_a_value_that_cannot_be_read_is_found_though_nobody_has_asked_for_it() -> None:
    with pytest.raises(ConfigurationError, match=r"poll\.ms is 'soon'"):
        check_settings({"spark.streaming.kafka.consumer.poll.ms": "soon"})
