"""Names and words of the metrics, and the histogram."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from kstream.metrics.families import FAMILIES, Family, MetricKind, markdown_table

MONITORING = Path(__file__).resolve().parents[2] / "docs" / "monitoring.md"


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_name_begins_with_kstream_and_has_a_base_unit(family: Family) -> None:
    assert re.fullmatch(r"kstream_([a-z]+|p99)(_([a-z]+|p99))*", family.name)
    assert family.name.endswith("_total") == (family.kind is MetricKind.COUNTER)
    assert not re.search(r"milli|_ms(_|$)|_minutes|_kilo|_mega", family.name)
    assert family.kind is not MetricKind.HISTOGRAM or family.name.endswith("_seconds")


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_meaning_is_sentences_in_plain_words(family: Family) -> None:
    assert family.meaning[0].isupper() or family.meaning[0].isdigit()
    assert family.meaning.endswith(".") and "\n" not in family.meaning


def test_every_name_is_there_once() -> None:
    names = [family.name for family in FAMILIES]
    assert len(names) == len(set(names)) > 30


def test_the_table_of_metrics_in_the_docs_is_that_of_the_code() -> None:
    table = re.search(r"<!-- metrics -->\n(.*?)\n<!-- /metrics -->", MONITORING.read_text(), re.DOTALL)
    assert table is not None and table[1] == markdown_table()
