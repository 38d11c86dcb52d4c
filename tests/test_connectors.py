"""Connectors, their tools and their commands are found by entry point, or by the file of a package that is only on the path."""

from __future__ import annotations

import importlib.metadata
import logging
from collections.abc import Callable
from importlib.metadata import EntryPoint
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from kstream import connectors
from kstream.cli import main
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


def install(monkeypatch: pytest.MonkeyPatch, group: str, name: str, load: Callable[[], Any]) -> None:
    """As if a package with one entry point were installed."""
    monkeypatch.setattr(
        importlib.metadata, "entry_points", lambda **asked: [SimpleNamespace(name=name, load=load)] * (asked["group"] == group)
    )


def missing() -> Any:
    raise ImportError("No module named 'pulsar'")


def test_an_unknown_connector_is_named_with_those_that_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    with pytest.raises(MissingDependencyError, match=r"'kinesis'.*kafka"):
        connectors.load("kinesis")


def test_the_known_connectors_are_those_installed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "kstream.connectors", "pulsar", missing)
    with pytest.raises(MissingDependencyError, match=r"known: kafka, log, pulsar, testing\."):
        connectors.load("kinesis")


def test_tools_are_those_of_the_connectors_that_offer_some(monkeypatch: pytest.MonkeyPatch) -> None:
    tools = connectors.ConnectorTools()
    install(monkeypatch, "kstream.connectors", "pulsar", lambda: SimpleNamespace(connector_tools=lambda: tools))
    assert [type(found).__name__ for found in connectors.installed_tools()] == ["KafkaTools", "ConnectorTools", "LogPlanTools"]
    install(monkeypatch, "kstream.connectors", "pulsar", lambda: SimpleNamespace())
    assert [found.name for found in connectors.installed_tools()] == ["Kafka", "log"]


def test_a_connector_that_cannot_be_imported_leaves_the_tools_of_the_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    install(monkeypatch, "kstream.connectors", "pulsar", missing)
    with caplog.at_level(logging.WARNING):
        assert [found.name for found in connectors.installed_tools()] == ["Kafka", "log"]
    assert "connector pulsar cannot be imported" in caplog.text


def test_a_command_of_a_connector_is_one_of_kstream_and_is_imported_when_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded: list[str] = []

    def load() -> click.Command:
        loaded.append("tail")
        return click.Command("tail", callback=lambda: click.echo("the newest records"), short_help="Show the newest records.")

    install(monkeypatch, "kstream.cli", "tail", load)
    assert CliRunner().invoke(main, ["ledger", "--help"]).exit_code == 0 and loaded == []
    assert "Show the newest records." in CliRunner().invoke(main, ["--help"]).output
    assert CliRunner().invoke(main, ["tail"]).output == "the newest records\n"


def test_a_command_that_cannot_be_imported_is_one_line_and_hides_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    install(monkeypatch, "kstream.cli", "tail", missing)
    result = CliRunner().invoke(main, ["tail", "--last", "5"])
    assert result.exit_code == 1
    assert result.output == "kstream: the command tail comes with a connector that cannot be imported: No module named 'pulsar'\n"
    listed = CliRunner().invoke(main, ["--help"]).output
    assert "its connector is missing" in listed and "ledger" in listed


def test_the_commands_of_kafka_are_there_without_entry_points(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **_: [])
    modules = {"demo": "kstream_kafka.demo.command:demo_command", "broker": "kstream_kafka.demo.broker_command:broker_command"}
    names = ("audit", "dlq", "produce", "sink", "structured", "tail")
    modules.update({name: f"kstream_kafka.tools.{name}_command:{name}_command" for name in names})
    assert connectors.commands() == {name: EntryPoint(name, where, "kstream.cli") for name, where in modules.items()}
    assert "Orders a second" in CliRunner().invoke(main, ["demo", "--help"]).output
