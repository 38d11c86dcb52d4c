"""Connectors: the look-up of connectors, and the tools that a connector offers to commands.

A connector is a package with five hooks. Only the first is required.

    restore_input(ssc, recipe)    function of the connector's module: restores an input stream of a stored graph
    continuous_source(given)      function of the same module: what `continuousStream` reads
    connector_tools()             function of the same module: the ConnectorTools that commands use
    connector_settings()          function of the same module: a SettingsTable of the settings that the connector reads
    kstream.cli                   group of entry points: commands of its own, by name, as click commands

Entry points of group `kstream.connectors` name the module (`kstream.entry_points`). The core names no connector.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from types import MappingProxyType, ModuleType
from typing import Any, Literal, NamedTuple, NoReturn, TypeAlias

from kstream.conf import SettingsTable
from kstream.entry_points import COMMANDS, CONNECTORS, entry_points
from kstream.errors import KStreamError, MissingDependencyError
from kstream.offsets.offset_range import Partition as Partition
from kstream.offsets.offset_range import PlannedRange as PlannedRange
from kstream.offsets.offset_range import UnreadableRange as UnreadableRange
from kstream.public_call import refused

logger = logging.getLogger(__name__)


class ToolNotOfferedError(KStreamError):
    """A command needs a tool that the connector of a stream does not offer. Facts: connector, tool."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One record of a log, as its system stores it: bytes that nobody has decoded.

    Attributes:
        topic, partition, offset: the place of the record.
        timestamp_ms: milliseconds since the Unix epoch; None if the record has no timestamp.
        timestamp_type: what the timestamp means, in the system's own word; "" without a timestamp.
        key, value: the bytes; None if the record has none.
        headers: name and value of each header, in order. A name may occur more than once.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None = None
    timestamp_type: str = ""
    key: bytes | None = None
    value: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()


@dataclass(frozen=True, slots=True)
class OffsetChange:
    """The new next offset of one partition. `old` is None if the stream did not read it, `new` if the partition no longer exists."""

    topic: str
    partition: int
    old: int | None
    new: int | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ResetResult:
    """The result of moving a stream to other offsets.

    Attributes:
        data: plan data that reads nothing and ends at the new offsets.
        changes: the partitions whose next offset changes.
        skipped: the ranges that no batch will read, as entries of the ledger.
    """

    data: dict[str, Any]
    changes: list[OffsetChange]
    skipped: list[dict[str, Any]]


Verdict: TypeAlias = Literal["ok", "warning", "failed", "not checked"]


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check of `kstream doctor`, such as a look at the brokers of a stream.

    Attributes:
        name: what was looked at: `brokers`, `topics` …
        verdict: what was found.
        seen: the facts, as a clause.
        remedy: what to do, as a sentence; "" if all is well.
    """

    name: str
    verdict: Verdict
    seen: str
    remedy: str = ""


class NeededPackage(NamedTuple):
    """A package that inputs need on the driver and on the executors, for `kstream doctor`.

    Attributes:
        name: what `pip install` calls it.
        module: what is imported of it.
        purpose: what it is for, as the beginning of a sentence: "To read Kafka".
    """

    name: str
    module: str
    purpose: str


class ConnectorTools:
    """The tools of commands for inputs that read partitions of topics by offset. A connector offers a subclass.

    Commands show the plan data of an input without tools as JSON. A subclass must override `ranges`. If it does not override another
    method, the commands that need that method end with ToolNotOfferedError.

    All methods are called in the thread of the command, and may raise any KStreamError, which the command prints as one line. A module
    of tools must not import pyspark, nor a client library before a method that asks brokers is called.
    """

    name: str
    """The name of the system, for sentences: "Kafka"."""
    input_kind: str
    """The kind of the recipes of these inputs. The checkpoint stores connection parameters under it."""
    leaves_out: bool = False
    """Whether its inputs can leave single records out of a batch (`InputDStream.without`), for `kstream skip`."""
    worker_modules: Sequence[str] = ()
    """Modules that the tasks of its inputs import on the executors. A start on a cluster looks whether they can."""
    packages: Sequence[NeededPackage] = ()
    """Packages that its inputs need, the most important first."""
    command_sections: Mapping[str, Sequence[str]] = MappingProxyType({})
    """Its commands by their sections in the reference of all commands. A section that the core has gets them at its end."""
    client_loggers: Sequence[str] = ()
    """Loggers of client libraries that are silent by default. `--verbose` shows their messages."""

    def ranges(self, data: Mapping[str, Any]) -> list[PlannedRange] | None:
        """Return the ranges in the plan data of an input. Pure.

        Returns:
            Every partition that the plan holds, empty ranges included; None if the data belongs to another kind of input.
        """
        raise NotImplementedError

    def waiting(self, data: Mapping[str, Any]) -> Collection[Partition]:
        """Return the partitions in plan data whose given start offset lies past the end of their log, as it was at that plan. Pure.

        The stream waits there until the log reaches the offset, and commands say so.
        """
        return ()

    def read_parameters(self, bootstrap: str | None, params: Sequence[str], file: str | None) -> dict[str, Any]:
        """Read the connection parameters of a command line.

        Args:
            bootstrap: the value of `--bootstrap`, which wins over the others.
            params: the values of `--param`, each KEY=VALUE, which win over the file.
            file: the path of `--params-file`.

        Raises:
            ConfigurationError: an option or the file cannot be read.
        """
        self._not_offered("the parameters of its brokers")

    def connection(self, stored: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Merge the parameters that a checkpoint stores for a stream with those of the command line, which win.

        Returns:
            The parameters of a connection; None if they name no broker.
        """
        self._not_offered("the parameters of its brokers")

    def log_ends(self, connection: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask the brokers for the end offset of each partition's log. Blocks.

        Args:
            connection: the result of `connection`.
            partitions: the partitions to look up.
        """
        self._not_offered("the ends of its logs")

    def read_records(
        self, connection: Mapping[str, Any], data: Mapping[str, Any], ranges: Sequence[PlannedRange]
    ) -> Iterator[LogRecord | UnreadableRange]:
        """Read records, for `kstream peek` for one. Without a group and without a commit. Lazy; blocks on the brokers.

        Args:
            connection: the result of `connection`.
            data: plan data of the stream. Of a range that is in it, records that were written after the log was cut or made anew are not
                taken for the planned ones.
            ranges: the ranges, planned or not, of partitions that `data` has.

        Yields:
            The records in the order of the ranges, and in the place of lost ones an UnreadableRange.
        """
        self._not_offered("a look at its records")

    def examine(self, connection: Mapping[str, Any], data: Mapping[str, Any]) -> list[Finding]:
        """Look whether a stream could read on: brokers, permissions, the identity of its topics, its offsets. Changes nothing. Blocks.

        What is wrong with the brokers is a finding, not an error.

        Args:
            connection: the result of `connection`.
            data: the newest plan data of the stream.
        """
        self._not_offered("a look at its brokers")

    def query_offsets(self, offset: Any) -> Mapping[Partition, int] | None:
        """Return the next offsets in the offset of a source of Structured Streaming. Pure.

        Args:
            offset: the JSON value that the checkpoint of a query has of the source.

        Returns:
            The next offset of each partition; None if it is the offset of another kind of source.
        """
        return None

    def plan_at(self, offsets: Mapping[Partition, int]) -> dict[str, Any]:
        """Return plan data that reads nothing and ends at these offsets, which `query_offsets` has returned. Pure."""
        self._not_offered("offsets of queries")

    def reset(self, connection: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str]) -> ResetResult:
        """Move a stream to other offsets. Asks the brokers. Blocks.

        Args:
            connection: the parameters of the stream's connection.
            data: the newest plan data of the stream.
            to: one position for all partitions, or positions by topic and partition.
            topics: the topics to move; empty for all topics of the stream.
        """
        self._not_offered("a reset of offsets")

    def rewind(self, data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str]) -> ResetResult:
        """Move a stream back to the beginning of an earlier plan. Asks no broker.

        Args:
            data: the newest plan data of the stream.
            then: the data of the earlier plan.
            topics: the topics to move; empty for all topics of the stream.
        """
        self._not_offered("a rewind of offsets")

    def empty_plan_at(self, data: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return plan data that reads nothing and ends where `data` ends; None to leave the stream out when others move. Pure."""
        return None

    def _not_offered(self, tool: str) -> NoReturn:
        """Raise ToolNotOfferedError. `tool` names the missing tool, for the message."""
        raise ToolNotOfferedError(f"the connector of {self.name} does not offer {tool}", connector=self.name, tool=tool)


def load(name: str) -> ModuleType:
    """Import the module of a connector.

    Raises:
        MissingDependencyError: no connector has this name.
        ImportError: its module cannot be imported.
    """
    found = entry_points(CONNECTORS)
    if name not in found:
        known = ", ".join(sorted(found))
        raise MissingDependencyError(f"no connector named {name!r}; known: {known}. Is its package installed?", package=name)
    return found[name].load()


def continuous_source(given: object) -> Any:
    """Return the log that `continuousStream` reads, made by the connector to whose package the argument belongs.

    Raises:
        TypeError: no connector makes a log of it.
    """
    for module in _modules("its logs cannot be read without batches"):
        if module.__name__ == _package(given) and hasattr(module, "continuous_source"):
            return module.continuous_source(given)
    raise refused(TypeError(f"continuousStream: {given!r} is no log of a connector, as the strategies of its documentation are"))


def installed_tools() -> list[ConnectorTools]:
    """Return the tools of all connectors, in the order of the connectors' names; those for any Log come last. Imports their modules.

    A connector without tools is left out, and so is one that cannot be imported; see `_modules`.
    """
    return [module.connector_tools() for module in _modules("its inputs are shown as JSON") if hasattr(module, "connector_tools")]


def installed_settings() -> list[SettingsTable]:
    """Return the settings that connectors bring, in the order of the connectors' names. Imports their modules.

    A connector without settings is left out, and so is one that cannot be imported; see `_modules`.
    """
    return [module.connector_settings() for module in _modules("its settings are unknown") if hasattr(module, "connector_settings")]


def _modules(without: str) -> Iterator[Any]:
    """Import the modules of all connectors, in the order of the connectors' names; that for any Log comes last.

    A module that cannot be imported is left out. A warning says so, and what follows from it (`without`).
    """
    for name, entry_point in sorted(entry_points(CONNECTORS).items(), key=lambda found: (found[0] == "log", found[0])):
        try:
            yield entry_point.load()
        except (ImportError, AttributeError) as e:
            logger.warning("connector %s cannot be imported, %s: %s", name, without, e)


def modules_of_workers(inputs: Iterable[object]) -> list[str]:
    """Return the modules that tasks import on the executors: kstream's, and those of the connectors of these input streams."""
    packages = {_package(stream) for stream in inputs}
    return ["kstream", *(module for tools in installed_tools() if _package(tools) in packages for module in tools.worker_modules)]


def _package(value: object) -> str:
    """Return the top package of an object's class, by which a connector's inputs and its tools are matched."""
    return type(value).__module__.partition(".")[0]


def commands() -> dict[str, EntryPoint]:
    """Return the commands that connectors add to `kstream`, by name. Imports none of them."""
    return entry_points(COMMANDS)
