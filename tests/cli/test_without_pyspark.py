"""Commands that need no Spark run where pyspark is not installed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kstream_kafka.demo.embedded_broker import MockCluster

SECONDS = 60
ALL_COMMANDS = """
import click
from kstream.cli import main

context = click.Context(main)
for name in main.list_commands(context):
    print(name, "Not available" in main.get_command(context, name).get_short_help_str(200))
"""


@pytest.fixture
def bootstrap() -> Iterator[str]:
    cluster = MockCluster()
    yield cluster.bootstrap
    del cluster


@pytest.fixture
def without_pyspark(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs Python with these arguments, as if neither pyspark nor Java were installed."""
    for name in ("pyspark", "pyarrow", "py4j"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not installed')\n")
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**os.environ, "PYTHONPATH": path, "PATH": "/nonexistent", "JAVA_HOME": "/nonexistent"}

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False)

    return run


def test_every_command_of_kstream_and_of_its_connectors_is_there(without_pyspark: Callable[..., subprocess.CompletedProcess[str]]) -> None:
    done = without_pyspark("-c", ALL_COMMANDS)
    assert done.returncode == 0, done.stderr
    found = dict(line.split() for line in done.stdout.splitlines())
    assert {"run", "lag", "tail", "sink", "audit", "demo"} <= found.keys() and set(found.values()) == {"False"}, done.stdout


@pytest.mark.parametrize(("command", "topic"), [("sink ls", "kstream-receipts"), ("audit totals", "kstream-audit")])
def test_the_commands_of_the_sink_ask_the_brokers(
    bootstrap: str, command: str, topic: str, without_pyspark: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    done = without_pyspark("-m", "kstream.cli", *command.split(), "--bootstrap", bootstrap)
    assert done.stderr.startswith(f"kstream: there is no topic {topic}: "), (done.stdout, done.stderr)
