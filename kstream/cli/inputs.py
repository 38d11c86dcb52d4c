"""The inputs of a checkpoint, as commands see them: through the tools of their connectors.

The core does not know the form of a connector's plan data. An input whose connector offers no tools is shown as JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import click

from kstream.batch.plan import without_kind
from kstream.checkpoint import LogContents, names
from kstream.checkpoint.binding import rebound
from kstream.checkpoint.input_records import read_connections
from kstream.checkpoint.reader import has_checkpoint
from kstream.cli.structured_streaming import is_query
from kstream.cli.terminal import compact, echo
from kstream.connectors import ConnectorTools, installed_tools
from kstream.errors import CheckpointError, ConfigurationError
from kstream.offsets.offset_range import Partition, PlannedRange
from kstream.spark.checkpoint_store import open_checkpoint
from kstream.storage import FileStore

Command = TypeVar("Command", bound=Callable[..., Any])
PlanData = Mapping[str, Any]
_PLACE = re.compile(r"(.+)[-/](\d+)@(\d+)")


def open_existing(path: str, or_query: bool = False) -> FileStore:
    """Open the store of a checkpoint, to read it or to leave a request in it that needs no exclusive create.

    Args:
        path: the path or URL of the checkpoint.
        or_query: whether it may be the checkpoint of a query of Structured Streaming, too; `holds_query` tells it then.

    Raises:
        CheckpointError: there is no checkpoint.
        KStreamError: the store cannot be opened or read.
    """
    store = open_checkpoint(path)
    if not has_checkpoint(store) and not (or_query and is_query(store)):
        looked = store.path(names.META)
        raise CheckpointError(f"there is no checkpoint in {store.url}: no stream has started there (looked for {looked})", path=store.url)
    return store


def holds_query(store: FileStore) -> bool:
    """Return whether a store is the checkpoint of a query of Structured Streaming, and not one of kstream. Blocks on the store."""
    return not has_checkpoint(store) and is_query(store)


def parse_place(text: str) -> tuple[str, int, int]:
    """Return (topic, partition, offset) of a text such as `orders-0@12` or `orders/0@12`. ConfigurationError for any other text."""
    found = _PLACE.fullmatch(text.strip())
    if found is None:
        message = f"{text!r} names no record: give TOPIC-PARTITION@OFFSET, for example orders-0@12"
        raise ConfigurationError(message, key="offset", value=text)
    return found[1], int(found[2]), int(found[3])


# -- plan data


@cache
def tools() -> tuple[ConnectorTools, ...]:
    """Return the tools of all installed connectors. The first call imports the connectors."""
    return tuple(installed_tools())


def systems() -> str:
    """Return the names of the systems that the installed connectors read, for a sentence: "Kafka"; "known" without connectors."""
    return " or ".join(known.name for known in tools()) or "known"


def tools_of(data: PlanData) -> ConnectorTools | None:
    """Return the tools of the connector that made this plan data; None if no installed connector knows its form."""
    return next((known for known in tools() if known.ranges(data) is not None), None)


def ranges_of(data: PlanData) -> list[PlannedRange] | None:
    """Return the ranges in the plan data of an input; None if its connector offers none."""
    return next((ranges for known in tools() if (ranges := known.ranges(data)) is not None), None)


def plan_text(data: PlanData) -> str:
    """Return the plan data of an input for people: its ranges, or JSON."""
    ranges = ranges_of(data)
    return json.dumps(dict(without_kind(data))) if ranges is None else compact(ranges)


# -- streams


@dataclass(frozen=True, slots=True)
class CheckpointOffsets:
    """The offsets of one partition in a checkpoint.

    Attributes:
        stream: the number of the stream.
        topic: the topic.
        partition: the number of the partition.
        completed: the offset up to which every batch has ended: the beginning of the oldest batch that has not, else `next`.
        next: the next offset, where the newest plan ends.
        waiting: whether the given start lay past the end of the log when the partition was last planned.
    """

    stream: int
    topic: str
    partition: int
    completed: int
    next: int
    waiting: bool


def newest_plans(contents: LogContents) -> dict[int, PlanData]:
    """Return the newest plan data by stream number, in order. Pure."""
    numbers = sorted({number for plan in contents.plans.values() for number in plan.inputs})
    return {number: newest[1] for number in numbers if (newest := contents.newest_data(number)) is not None}


def offsets_of(contents: LogContents) -> list[CheckpointOffsets]:
    """Return the offsets of every partition in the newest plan of every stream, in order. Pure.

    A batch that was given up does not run again, so `completed` does not wait for it.
    """
    found: list[CheckpointOffsets] = []
    for stream, data in newest_plans(contents).items():
        known = tools_of(data)
        waiting = set(known.waiting(data)) if known is not None else set[Partition]()
        unfinished = _oldest_unfinished(contents, stream)
        for topic, partition, _, until in sorted(ranges_of(data) or ()):
            completed = min(until, unfinished.get((topic, partition), until))
            found.append(CheckpointOffsets(stream, topic, partition, completed, until, (topic, partition) in waiting))
    return found


def _oldest_unfinished(contents: LogContents, stream: int) -> dict[Partition, int]:
    """Return for each partition the beginning of its range in the oldest unfinished batch that has this partition."""
    found: dict[Partition, int] = {}
    for time in contents.pending:
        for topic, partition, begin, _ in ranges_of(contents.plans[time].inputs.get(stream, {})) or ():
            found.setdefault((topic, partition), begin)
    return found


def kept_offsets(contents: LogContents) -> list[tuple[int, str, int, int]]:
    """Return the kept offsets of partitions that are not in the newest plans, in order. Pure.

    Returns:
        Rows of (stream, topic, partition, next offset).
    """
    begun = [plan for plan in contents.plans.values() if not plan.void]
    if contents.kept_offsets is None or not begun:
        return []
    now = rebound(contents, max(begun, key=lambda plan: plan.time).streams)
    newest = newest_plans(now)
    found: list[tuple[int, str, int, int]] = []
    for number, kept in sorted(now.kept_offsets.inputs.items() if now.kept_offsets is not None else ()):
        planned = {(topic, partition) for topic, partition, _, _ in ranges_of(newest.get(number, {})) or ()}
        rows = sorted(ranges_of(kept) or ())
        found += [(number, topic, partition, at) for topic, partition, _, at in rows if (topic, partition) not in planned]
    return found


def note_inputs_without_ranges(contents: LogContents, what: str) -> None:
    """Print a sentence for each stream whose connector offers no ranges, so that a command cannot show it.

    Args:
        contents: the content of a checkpoint.
        what: the thing that the command shows, for the sentence.
    """
    for number, data in newest_plans(contents).items():
        if ranges_of(data) is None:
            echo(f"stream {number}: its connector offers no {what}; `kstream checkpoint show` shows its plans")


# -- connections


def connection_options(command: Command) -> Command:
    """Add the options by which a command reaches the brokers."""
    options = (
        click.option("--bootstrap", metavar="HOST:PORT", help="The brokers, if the checkpoint does not store them or they have moved."),
        click.option("--param", "params", multiple=True, metavar="KEY=VALUE", help="A parameter of the connection; may be repeated."),
        click.option("--params-file", metavar="FILE", help="A file of such parameters, .json or .properties. Put secrets there."),
    )
    for option in reversed(options):
        command = option(command)
    return command


class Connections:
    """The connection parameters of streams, from the checkpoint and from the command line. The command line wins."""

    def __init__(self, store: FileStore, bootstrap: str | None, params: tuple[str, ...], file: str | None) -> None:
        """Note where the parameters come from. Reads nothing.

        Args:
            store: the checkpoint.
            bootstrap: the value of `--bootstrap`.
            params: the values of `--param`.
            file: the path of `--params-file`.
        """
        self._store = store
        self._options = bootstrap, params, file
        self._read: dict[str, tuple[dict[int, dict[str, Any]], dict[str, Any]]] = {}

    def parameters_of(self, stream: int, connector: ConnectorTools) -> dict[str, Any]:
        """Return the connection parameters of a stream.

        Reads the store and the file at the first call for each connector. A record that cannot be read counts as not stored.

        Raises:
            ConfigurationError: an option or the file of parameters cannot be read; or the checkpoint stores no parameters, and the command
                line names no broker.
            ToolNotOfferedError: the connector asks no brokers.
        """
        if connector.name not in self._read:
            self._read[connector.name] = read_connections(self._store, connector.input_kind), connector.read_parameters(*self._options)
        stored, given = self._read[connector.name]
        connection = connector.connection(stored.get(stream), given)
        if connection is None:
            raise ConfigurationError(
                f"{self._store.url} stores no {connector.name} parameters of stream {stream} (a parameter may hold a secret, the stream "
                "may have an end, or an older kstream wrote the checkpoint): give --bootstrap HOST:PORT, and the other parameters that the "
                "brokers require by --param or --params-file",
                key="bootstrap",
                value=None,
            )
        return connection
