"""One table of what runs on managed platforms: the page has it, and so has the exception."""

from __future__ import annotations

from pathlib import Path

import pytest

from kstream.errors import ConfigurationError
from kstream.spark.platforms import NO_RDDS, PLATFORMS, RUNS_NOT, UNTESTED, check_platform, markdown

PAGE = Path(__file__).parent.parent.parent / "docs" / "deployment.md"
OF_CONNECT = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


def test_the_page_has_the_table_of_the_code() -> None:
    assert PAGE.read_text().partition("<!-- platforms -->\n")[2].partition("\n<!-- /platforms -->")[0] == markdown()


def test_no_platform_is_said_to_run_as_none_was_tried() -> None:
    assert {each.streams for each in PLATFORMS} == {RUNS_NOT, UNTESTED}
    assert len({each.name for each in PLATFORMS}) == len(PLATFORMS)


def test_a_session_of_spark_connect_is_refused_with_the_sentence_of_the_page() -> None:
    with pytest.raises(ConfigurationError) as refused:
        check_platform(OF_CONNECT(), {})
    assert str(refused.value) == NO_RDDS and NO_RDDS in PAGE.read_text()


def test_a_process_that_pyspark_has_made_a_client_is_refused_and_the_server_in_it_is_not() -> None:
    client = {"SPARK_CONNECT_MODE_ENABLED": "1"}
    with pytest.raises(ConfigurationError, match="no SparkContext and no RDDs"):
        check_platform(object(), client)
    check_platform(object(), {**client, "SPARK_LOCAL_REMOTE": "1"})
    check_platform(object(), {})
