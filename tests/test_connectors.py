"""Connectors are found by entry point or in the first-party table; a stranger is named."""

from __future__ import annotations

import importlib.metadata
from types import SimpleNamespace
from typing import Any

import pytest

from kstream import connectors
from kstream.errors import MissingDependencyError


def test_the_kafka_connector_is_found_without_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    assert connectors.load("kafka").__name__ == "kstream_kafka"


def test_an_entry_point_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, Any]] = []
    found = [SimpleNamespace(name="kafka", load=lambda: "mine"), SimpleNamespace(name="other", load=lambda: "other")]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **kwargs: (asked.append(kwargs), found)[1])
    assert connectors.load("kafka") == "mine" and connectors.load("other") == "other"
    assert asked[0] == {"group": "kstream.connectors"}


def test_an_unknown_connector_is_named_with_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    with pytest.raises(MissingDependencyError, match=r"'kinesis'.*kafka"):
        connectors.load("kinesis")
