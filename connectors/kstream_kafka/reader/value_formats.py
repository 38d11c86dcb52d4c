"""The formats of values: what turns the values of a chunk into typed columns, in a worker. Needs pyarrow, but no Spark.

    ValueSchema     what a query asks for: the format, the fields, the mode. It travels into the tasks
    ValueFormat     the decoder of a task, by `ValueSchema.open`. FORMATS has one opener for each format, by its name
    DecodedValues   what it makes of a chunk: a struct with a row for each value, and the values that do not fit

A format judges values, and knows neither records nor modes. What becomes of a value that does not fit is decided by its caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias, get_args

import pyarrow as pa

Mode: TypeAlias = Literal["permissive", "fail", "dead-letter"]
"""What becomes of a value that does not fit: a row of nulls, the end of the task, or a dead letter and no row."""
MODES: tuple[Mode, ...] = get_args(Mode)
VALUE = "value"
"""The name of the only field of the format `text`."""


class MalformedValue(NamedTuple):
    """A value that does not fit.

    Attributes:
        row: its position in the chunk.
        reason: why, in a few words that a sentence goes on with, as "is no JSON: …".
    """

    row: int
    reason: str


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The values of a chunk, decoded.

    Attributes:
        rows: a struct of the fields of the schema, in their order, with a row for each value of the chunk. The row of a null value, and of
            a malformed one, is null.
        malformed: the values that do not fit, with rising rows.
    """

    rows: pa.StructArray
    malformed: Sequence[MalformedValue] = ()


class ValueFormat(Protocol):
    """Decodes the values of one task. One thread, that of the task. It may keep what it learns from chunk to chunk."""

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the values of a chunk. May block, as on a schema registry.

        Args:
            values: the values, null for a record without one (a tombstone). It may be a slice, and it may be empty.

        Raises:
            Exception: an error for which no value is to blame.
        """
        ...


@dataclass(frozen=True, slots=True)
class ValueSchema:
    """What a query asks of the values. Immutable; pickled into the tasks.

    Attributes:
        format: the name of the format, one of FORMATS.
        fields: the fields of the values, at least one. All may be null, at every depth.
        mode: what becomes of a value that does not fit.
        options: the options of the format, by their names: texts, or what a schema registry takes. They may have a secret, so no text
            shows them.
    """

    format: str
    fields: pa.Schema
    mode: Mode = "permissive"
    options: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)

    def open(self) -> ValueFormat:
        """Return the decoder of a task. Sends no request: the driver opens it, too, to check the schema.

        Raises:
            ValueError: a field has a type that the format does not have, or an option cannot work.
        """
        return FORMATS[self.format].open(self)


@dataclass(frozen=True, slots=True)
class FormatEntry:
    """A format as the registry of formats has it.

    Attributes:
        open: makes the decoder of a task, in a worker. What only this format needs is imported there.
        fields: returns the fields of a query that names none, by the options of the format. Called on the driver, where it may block. None
            if a query must name the fields.
        has_registry: whether the schemas of its values are in a schema registry, which the options name.
    """

    open: Callable[[ValueSchema], ValueFormat]
    fields: Callable[[Mapping[str, Any]], pa.Schema] | None = None
    has_registry: bool = False


def struct_of(arrays: Sequence[pa.Array], fields: pa.Schema, null: pa.BooleanArray) -> pa.StructArray:
    """Return the struct of these columns.

    Args:
        arrays: a column for each field.
        fields: the fields, at least one.
        null: for each row whether it is null.
    """
    return pa.StructArray.from_arrays(list(arrays), fields=list(fields), mask=null)


def null_rows(values: pa.BinaryArray, malformed: Iterable[MalformedValue] = ()) -> pa.BooleanArray:
    """Return for each value whether its row is null: there is no value, or it is malformed."""
    rows = [bad.row for bad in malformed]
    if not rows:
        return values.is_null()
    null = values.is_null().to_numpy(zero_copy_only=False).copy()
    null[rows] = True
    return pa.array(null)


class TextFormat:
    """Values as UTF-8. The only field is `value`."""

    def __init__(self, schema: ValueSchema) -> None:
        self._fields = schema.fields

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the values of a chunk: all at once, and one by one only if that fails."""
        malformed: list[MalformedValue] = []
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:
            found: list[str | None] = []
            for row, value in enumerate(values.to_pylist()):
                try:
                    found.append(None if value is None else value.decode())
                except UnicodeDecodeError as e:
                    found.append(None)
                    malformed.append(MalformedValue(row, f"is no UTF-8: {e.reason} at byte {e.start}"))
            texts = pa.array(found, pa.string())
        return DecodedValues(struct_of([texts], self._fields, null_rows(values, malformed)), malformed)


def _json(schema: ValueSchema) -> ValueFormat:
    """Return a decoder of JSON."""
    from kstream_kafka.reader.json_values import JsonFormat

    return JsonFormat(schema)


def _avro(schema: ValueSchema) -> ValueFormat:
    """Return the decoder of Avro."""
    from kstream_kafka.reader.avro_format import AvroFormat

    return AvroFormat(schema)


def _avro_fields(options: Mapping[str, Any]) -> pa.Schema:
    """Return the fields of the schema that the options name. Blocks on the registry."""
    from kstream_kafka.reader.avro_format import avro_fields

    return avro_fields(options)


def _protobuf(schema: ValueSchema) -> ValueFormat:
    """Return the decoder of Protobuf."""
    from kstream_kafka.reader.protobuf_format import ProtobufFormat

    return ProtobufFormat(schema)


def _protobuf_fields(options: Mapping[str, Any]) -> pa.Schema:
    """Return the fields of the file that the options name. Blocks on the registry."""
    from kstream_kafka.reader.protobuf_format import protobuf_fields

    return protobuf_fields(options)


FORMATS: dict[str, FormatEntry] = {
    "avro": FormatEntry(_avro, _avro_fields, has_registry=True),
    "protobuf": FormatEntry(_protobuf, _protobuf_fields, has_registry=True),
    "json": FormatEntry(_json),
    "text": FormatEntry(TextFormat, lambda _options: pa.schema([(VALUE, pa.string())])),
}
"""Every format, by its name."""
