"""The argument TOPIC of a command, and the options by which its brokers are reached: those of a checkpoint's stream, or given ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from kstream.checkpoint import read_log
from kstream.cli.inputs import Connections, connection_options, newest_plans, open_existing, tools_of
from kstream.errors import ConfigurationError
from kstream_kafka.tools.connector_tools import KafkaTools, names_brokers, read_parameters

Command = TypeVar("Command", bound=Callable[..., Any])
API_TIMEOUT = "default.api.timeout.ms"
PATIENCE_MS = 5_000
"""The timeout of a request in ms, where a person waits at a terminal and has given none."""


def of_brokers(command: Command) -> Command:
    """Add the options by which brokers are reached."""
    stored = click.option("--checkpoint", metavar="PATH", help="The checkpoint of the job: its stored parameters reach the brokers.")
    return stored(connection_options(command))


def of_a_topic(command: Command) -> Command:
    """Add the argument TOPIC, and the options by which its brokers are reached."""
    return click.argument("topic")(of_brokers(command))


def connection_of(checkpoint: str | None, bootstrap: str | None, params: Sequence[str], params_file: str | None) -> dict[str, Any]:
    """Return the Kafka parameters: those of the command line, else those of the first Kafka stream of a checkpoint. Reads the files.

    Args:
        checkpoint: the value of `--checkpoint`.
        bootstrap: the value of `--bootstrap`.
        params: the values of `--param`.
        params_file: the path of `--params-file`.

    Raises:
        ConfigurationError: no broker is named, an option cannot be read, or the checkpoint has no Kafka stream.
        KStreamError: the checkpoint cannot be read.
    """
    if checkpoint is None:
        given = read_parameters(bootstrap, params, params_file)
        if not names_brokers(given):
            raise ConfigurationError("which brokers? Give --checkpoint PATH or --bootstrap HOST:PORT", key="bootstrap", value=None)
        return given
    store = open_existing(checkpoint)
    for number, data in newest_plans(read_log(store)).items():
        tools = tools_of(data)
        if isinstance(tools, KafkaTools):
            return Connections(store, bootstrap, tuple(params), params_file).parameters_of(number, tools)
    raise ConfigurationError(f"{checkpoint} has no Kafka stream: give --bootstrap HOST:PORT", key="checkpoint", value=checkpoint)


def impatient(connection: dict[str, Any]) -> dict[str, Any]:
    """Return the parameters with a timeout of seconds for brokers that do not answer, unless they have one. Pure."""
    return {API_TIMEOUT: PATIENCE_MS, **connection}
