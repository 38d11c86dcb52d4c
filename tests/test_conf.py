"""Settings are typed, and one that does not parse is named."""

from __future__ import annotations

import pytest

from kstream.conf import BY_KEY, ENTRIES, Settings, markdown_table, parse_bool, parse_time_ms
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


def test_keys_are_told_once_and_all_shown_in_the_table() -> None:
    assert len(BY_KEY) == len(ENTRIES)
    assert all(f"`{entry.key}`" in markdown_table() for entry in ENTRIES)


def test_an_option_of_a_command_wins_over_what_is_configured() -> None:
    settings = Settings({"spark.streaming.kstream.recovery.allow": "dropped:a"})
    settings.override("spark.streaming.kstream.recovery.allow", "dropped:b")
    assert settings.get("spark.streaming.kstream.recovery.allow") == "dropped:b"
