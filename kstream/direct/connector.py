"""The hooks of all Logs for the core (`kstream.connectors`), and LogTools, by which commands show and move the offsets of Logs.

This module needs no pyspark.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from kstream.batch.plan import LOG, kind_of
from kstream.connectors import ConnectorTools, OffsetChange, ResetResult, ToolNotOfferedError
from kstream.direct.log_plan import KIND, LogPlan
from kstream.errors import ConfigurationError, KStreamError
from kstream.offsets.log import Log, ends_of, with_retries
from kstream.offsets.offset_range import LostRange, Partition, PlannedRange, stored_ranges
from kstream.offsets.positions import Positions
from kstream.offsets.starting_offsets import resolve

if TYPE_CHECKING:
    from kstream.direct.log_input_dstream import LogInputDStream
    from kstream.dstream.ports import StreamHost
    from kstream.dstream.recipe import Recipe

T = TypeVar("T")


def restore_input(ssc: StreamHost, recipe: Recipe) -> LogInputDStream:
    """Create a stored stream again from its recipe, and register it with the graph. A hook of the core, called at a restart."""
    from kstream.direct.log_input_dstream import LogInputDStream

    stream = LogInputDStream.from_recipe(ssc, recipe)
    stream.register_recipe()
    return stream


def connector_tools() -> ConnectorTools:
    """Return the tools for Logs whose own connector is not installed. A hook of the core."""
    return LogPlanTools()


class LogPlanTools(ConnectorTools):
    """The tools that need only the plan data of a Log: ranges, and a rewind to an earlier plan. Any Log."""

    name = "log"
    input_kind = KIND
    leaves_out = True

    def ranges(self, data: Mapping[str, Any]) -> list[PlannedRange] | None:
        """Return the ranges in plan data, empty ones included; None if the data is no stored LogPlan of this Log. Pure."""
        return stored_ranges(data.get("ranges")) if self._knows(data) else None

    def _knows(self, data: Mapping[str, Any]) -> bool:
        return kind_of(data) == LOG

    def _not_offered(self, tool: str) -> NoReturn:
        """Raise ToolNotOfferedError: only the connector of the Log can ask it."""
        raise ToolNotOfferedError(
            f"no installed connector offers {tool} for this log: the command needs an entry point of the group kstream.connectors whose "
            "module returns LogTools for the class of the Log (docs/writing-a-connector.md)",
            connector=self.name,
            tool=tool,
        )

    def rewind(self, data: Mapping[str, Any], then: Mapping[str, Any], topics: Collection[str]) -> ResetResult:
        """Move a stream back to the beginning of an earlier plan. Asks nobody. Partitions that the stream no longer reads stay out."""
        plan = LogPlan.decode(data)
        begins = {(r.topic, r.partition): r.fromOffset for r in LogPlan.decode(then).ranges if not topics or r.topic in topics}
        return _moved(plan, {p: at for p, at in begins.items() if p in plan.until_offsets})

    def empty_plan_at(self, data: Mapping[str, Any]) -> dict[str, Any]:
        plan = LogPlan.decode(data)
        return LogPlan.empty_at(plan.log, plan.until_offsets).encode()


class LogTools(LogPlanTools):
    """The tools for one class of Logs. A connector returns `LogTools(EventsTable)` from its hook `connector_tools`."""

    def __init__(self, log_class: type[Log]) -> None:
        """Create the tools.

        Args:
            log_class: the class. Its arguments are those that the checkpoint stores, and the `--param`s of commands.
        """
        self._log_class = log_class
        self.name = log_class.name
        self.input_kind = KIND + log_class.name

    def _knows(self, data: Mapping[str, Any]) -> bool:
        return kind_of(data) == LOG and data.get("log") == self.name

    def read_parameters(self, bootstrap: str | None, params: Sequence[str], file: str | None) -> dict[str, Any]:
        """Read the arguments of the Log from a command line. A value is taken as JSON where it is JSON, else as text.

        Raises:
            ConfigurationError: `--bootstrap` is given, an option has no value, or the file cannot be read or is no JSON object.
        """
        if bootstrap is not None:
            raise ConfigurationError(f"--bootstrap is of no use for {self.name}: give --param KEY=VALUE", key="bootstrap", value=bootstrap)
        given = _read_file(Path(file)) if file is not None else {}
        for text in params:
            key, equals, value = text.partition("=")
            if not equals:
                raise ConfigurationError("--param has no value: give KEY=VALUE", key="param", value="")
            given[key.strip()] = _json_or_text(value)
        return given

    def connection(self, stored: Mapping[str, Any] | None, given: Mapping[str, Any]) -> dict[str, Any] | None:
        """Merge the stored arguments with the given ones, which win. None if there are neither."""
        return {**(stored or {}), **given} if stored is not None or given else None

    def log_ends(self, connection: Mapping[str, Any], partitions: Collection[Partition]) -> dict[Partition, int]:
        """Ask the Log for the end of each partition. Blocks.

        Raises:
            ConfigurationError: the Log cannot be made of these arguments, or it does not have a partition.
        """
        log = self._log(connection)
        latest = self._asked(lambda: ends_of(log))
        gone = sorted(set(partitions) - latest.keys())
        if gone:
            raise ConfigurationError(f"{self.name} does not have the partitions {gone}", key="partitions", value=gone)
        return {p: latest[p] for p in partitions}

    def reset(self, connection: Mapping[str, Any], data: Mapping[str, Any], to: Any, topics: Collection[str]) -> ResetResult:
        """Move a stream to other offsets. Asks the Log. Blocks.

        Args:
            connection: the arguments of the Log.
            data: the newest plan data of the stream.
            to: one position for all partitions, or `{"topic": {"0": position}}`.
            topics: the topics to move; empty for all.

        Raises:
            ConfigurationError: `to` cannot be understood, or names a partition that the stream does not read.
        """
        plan = LogPlan.decode(data)
        positions = Positions.parse(to, "--to")
        moving = {p for p in plan.until_offsets if (not topics or p[0] in topics) and positions.of(p) is not None}
        stray = sorted(positions.each.keys() - moving)
        if stray:
            raise ConfigurationError(f"--to names {stray}, which the stream does not read", key="--to", value=stray)
        log = self._log(connection)
        return _moved(plan, self._asked(lambda: resolve(log, positions, round(time.time() * 1000), moving)))

    def _asked(self, question: Callable[[], T]) -> T:
        """Return the answer of a Log. Blocks. KStreamError for any error of the Log, so that the command can print it as one line."""
        try:
            return with_retries(question, f"{self.name}: the question for offsets")
        except KStreamError:
            raise
        except Exception as e:
            raise KStreamError(f"{self.name} cannot be asked for its offsets: {type(e).__name__}: {e}") from e

    def _log(self, connection: Mapping[str, Any]) -> Log:
        """Return the Log of these arguments. ConfigurationError if its class does not take them."""
        try:
            return self._log_class(**connection)
        except TypeError as e:
            raise ConfigurationError(f"{self.name} cannot be opened: {e}; give --param KEY=VALUE", key="param", value="") from e


def _moved(plan: LogPlan, offsets: Mapping[Partition, int]) -> ResetResult:
    """Return the result of moving some partitions to these offsets. Offsets that are passed over are skipped, as entries of the ledger."""
    old = plan.until_offsets
    changes = [OffsetChange(*p, old[p], at) for p, at in sorted(offsets.items()) if old[p] != at]
    skipped = [
        LostRange(*p, old[p], at, "reset", "skipped by kstream offsets").to_json() for p, at in sorted(offsets.items()) if at > old[p]
    ]
    return ResetResult(LogPlan.empty_at(plan.log, {**old, **offsets}).encode(), changes, skipped)


def _json_or_text(value: str) -> Any:
    """Return the JSON value of a text, or the text."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _read_file(path: Path) -> dict[str, Any]:
    """Read a file with a JSON object. ConfigurationError if it cannot be read, or holds something else."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as e:
        reason = e.strerror if isinstance(e, OSError) else "it is not JSON"
        raise ConfigurationError(f"{path} cannot be read: {reason}", key="params-file", value=str(path)) from e
    if not isinstance(found, dict):
        raise ConfigurationError(f"{path} holds no JSON object", key="params-file", value=str(path))
    return dict(found)
