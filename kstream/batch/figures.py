"""Figures: what was measured of the inputs, the states and the outputs of a batch. Each form of monitoring goes through them.

A field that is declared with `figure` is all that a form needs: it is then in the line of the batch, in `lastProgress`, in the status
record, in the metrics and on the page. Whoever measures it sets the field.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import Enum
from functools import cache, reduce
from typing import ClassVar, NamedTuple, TypeVar

F = TypeVar("F", bound="Figures")
_DECLARED = "figure"


class Unit(Enum):
    """The unit of a figure, as a person reads it."""

    COUNT = ""
    BYTES = "bytes"
    MILLISECONDS = "ms"


@dataclass(frozen=True, slots=True)
class FigureField:
    """How the forms show a figure.

    Attributes:
        label: for people, such as `state written`.
        unit: of the value.
        meaning: whole sentences; also the HELP text of the metric.
        adds: whether parts of a batch, and batches, add up. If not, the largest part counts, and the newest batch.
        key: its name in `lastProgress`, within its part of the batch, such as `writtenBytes`.
        name: its name where it stands alone, such as `state_written_bytes` in the JSON log.
    """

    label: str
    unit: Unit
    meaning: str
    adds: bool
    key: str
    name: str = ""

    def text(self, value: int) -> str:
        """Return the figure for people, such as `state written 4096 bytes`."""
        return f"{self.label} {value} {self.unit.value}".rstrip()


class KnownFigure(NamedTuple):
    """A figure with its value."""

    field: FigureField
    value: int


def figure(label: str, unit: Unit, meaning: str, *, adds: bool = True, key: str = "") -> int | None:
    """Declare a figure: the default of a field of Figures, which is None. Arguments as the attributes of FigureField.

    Args:
        key: only if it is not made of the name of the field.
    """
    return field(default=None, metadata={_DECLARED: FigureField(label, unit, meaning, adds, key)})


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one part of a batch. A value is None if it is not known. A field without a declaration only adds up."""

    part: ClassVar[str] = ""
    """Begins the name of each figure."""

    def plus(self: F, other: F) -> F:
        """Return the figures of two parts of a batch together."""
        return _folded(self, other, is_newer=False)

    def then(self: F, newer: F) -> F:
        """Return the sum of these figures, which may stand for several batches, and those of a newer batch."""
        return _folded(self, newer, is_newer=True)

    def known(self) -> list[KnownFigure]:
        """Return the declared figures whose values are known."""
        values: Iterable[tuple[FigureField, int | None]] = ((one, getattr(self, name)) for name, one in _by_field(type(self)).items())
        return [KnownFigure(one, value) for one, value in values if value is not None]

    def by_key(self) -> dict[str, int]:
        """Return the known figures by their keys, as `lastProgress` and the stored form have them."""
        return {field.key: value for field, value in self.known()}

    @classmethod
    def from_keys(cls: type[F], values: Mapping[str, int]) -> F:
        """Return the figures of a stored form: the inverse of `by_key`. Figures that a newer kstream has declared are left out."""
        return cls(**{name: values[one.key] for name, one in _by_field(cls).items() if one.key in values})


def together(nothing: F, parts: Iterable[F]) -> F:
    """Return the figures of all parts of a batch. `nothing`: those of no part."""
    return reduce(lambda one, other: one.plus(other), parts, nothing)


def declared(figures: type[Figures]) -> Sequence[FigureField]:
    """Return the declared figures of a part of a batch."""
    return list(_by_field(figures).values())


@cache
def _by_field(figures: type[Figures]) -> dict[str, FigureField]:
    """Return the declarations of a class of figures, by the names of its fields. Their keys and names are filled in."""
    found: dict[str, FigureField] = {}
    for each in fields(figures):
        one: FigureField | None = each.metadata.get(_DECLARED)
        if one is not None:
            found[each.name] = replace(one, name=f"{figures.part}_{each.name}", key=one.key or camel_case(each.name))
    return found


def camel_case(name: str) -> str:
    """Return a name of Python as JSON has it: `writtenBytes` for `written_bytes`."""
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def _folded(one: F, other: F, is_newer: bool) -> F:
    """Return both together: their sum; of a figure that does not add up the value of `other` if that is newer, else the larger one."""
    shown, values = _by_field(type(one)), dict[str, int | None]()
    for each in fields(one):
        both: tuple[int | None, int | None] = getattr(one, each.name), getattr(other, each.name)
        known = [value for value in both if value is not None]
        if each.name not in shown or shown[each.name].adds:
            values[each.name] = sum(known) if known else None
        else:
            values[each.name] = (known[-1] if is_newer else max(known)) if known else None
    return replace(one, **values)


def markdown_table() -> str:
    """Return the table of the figures in docs/monitoring.md."""
    rows = [f"| `{one.name}` | `{one.key}` | {one.meaning} |" for part in PARTS for one in declared(part)]
    return "\n".join(["| in the log | in `lastProgress` | meaning |", "|---|---|---|", *rows])


# -- the parts of a batch


@dataclass(frozen=True, slots=True)
class InputFigures(Figures):
    """Figures of an input of a batch. The first three are older than this table: each form has words of its own for them.

    Attributes:
        record_errors: the records that the errors policy has left out.
        skipped: the records that are left out at the request of `kstream skip`.
        losses: the data losses, as entries of the ledger.
    """

    part: ClassVar[str] = "input"
    record_errors: int = 0
    skipped: int = 0
    losses: int = 0
    bytes: int | None = figure(
        "input",
        Unit.BYTES,
        "The bytes of keys and values of the records, estimated. Only of inputs that know them.",
        key="numInputBytes",
    )
    latency_ms: int | None = figure(
        "latency",
        Unit.MILLISECONDS,
        "From the timestamp of a record to the end of the newest batch with records: the longest of the records with which a partition "
        "begins in the batch. Only of inputs that know it.",
        adds=False,
    )


@dataclass(frozen=True, slots=True)
class StateFigures(Figures):
    """Figures of the states of a batch, of all streams that carry state."""

    part: ClassVar[str] = "state"
    written_bytes: int | None = figure("state written", Unit.BYTES, "The bytes of state files that were written to the checkpoint.")
    read_bytes: int | None = figure(
        "state read",
        Unit.BYTES,
        "The bytes of state files that were read: after a restart, and in place of blocks that executors have lost.",
    )


@dataclass(frozen=True, slots=True)
class OutputFigures(Figures):
    """Figures of one output operation in one batch. An output that writes in transactions knows them."""

    part: ClassVar[str] = "output"
    transactions: int | None = figure("transactions", Unit.COUNT, "The transactions that were committed, by tries that have succeeded.")
    written_bytes: int | None = figure("written", Unit.BYTES, "The bytes of keys and values in these transactions.")
    spooled_bytes: int | None = figure(
        "spooled", Unit.BYTES, "The bytes that tasks have kept in temporary files until their transactions began."
    )
    fenced_attempts: int | None = figure(
        "fenced attempts",
        Unit.COUNT,
        "The attempts of tasks whose transactions another attempt has ended, as far as their results reach the driver.",
    )
    commit_p99_ms: int | None = figure(
        "commit p99", Unit.MILLISECONDS, "The 99th percentile of the times that the commits of the newest batch took.", adds=False
    )


PARTS: tuple[type[Figures], ...] = (InputFigures, StateFigures, OutputFigures)
"""The parts of a batch that have figures, in the order in which forms show them."""
