"""ValueEncoding: how the column `value` of a frame that is written becomes bytes, by the option `value.format`.

The driver checks types by the frame alone. The tasks open the encoder, which may ask a schema registry once in a process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timezone
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql.types import ArrayType, BinaryType, DataType, MapType, StringType, StructType, TimestampType

from kstream_kafka.errors import RowEncodingError, SourceOptionError
from kstream_kafka.reader.registry_options import SCHEMA_ID, found_by_id, registry_of, schema_id_of_options
from kstream_kafka.sink.frame_columns import COLUMNS
from kstream_kafka.structured.sink_options import SCHEMA, SUBJECT, TEXT, SinkOptions

if TYPE_CHECKING:
    import pyarrow as pa

Encode: TypeAlias = Callable[[Mapping[str, Any]], bytes]
"""Returns the bytes of a row, as `plain_rows` gives it. ValueError, in words that go on behind `the value`, if it has none."""


@dataclass(frozen=True, slots=True)
class ValueEncoding:
    """How the values of a frame are encoded. Immutable; pickled into the tasks.

    Attributes:
        format: the name of the format.
        struct: the type of the column `value`.
        options: the options of the format. They may have a secret, so no text shows them.
    """

    format: str
    struct: StructType
    options: Mapping[str, str] = field(repr=False)

    @staticmethod
    def of(options: SinkOptions, value: DataType) -> ValueEncoding | None:
        """Return how the values are encoded; None if they are written as they are. Sends no request.

        Args:
            options: the options of the sink.
            value: the type of the column `value`.

        Raises:
            SourceOptionError: the format does not encode a column of this type.
            MissingDependencyError: a package of the format is missing.
        """
        if options.value_format is None:
            return None
        if options.value_format == TEXT:
            if not isinstance(value, StringType):
                raise _refused(value, "value.format=text needs a STRING")
            return None
        if not isinstance(value, StructType):
            hint = "AS value of struct(…), for example."
            raise _refused(value, f"value.format={options.value_format} needs a STRUCT", hint)
        made = ValueEncoding(options.value_format, value, options.format_options)
        if SCHEMA_ID not in made.options:  # the schema is here, and its id is not needed to know whether the columns fit
            made.prepared(lambda _subject, _schema: 0)
        return made

    def open(self) -> FrameEncoder:
        """Return the encoder of a task. May block on the registry. Errors as `prepared`."""
        return FrameEncoder(self, self.prepared(lambda subject, schema: registry_of(self.options).register(subject, "AVRO", schema)))

    @property
    def arrow(self) -> pa.StructType:
        """The struct in types of Arrow. SourceOptionError if one of its fields has none."""
        from kstream_kafka.reader.value_columns import arrow_type

        found: Any = arrow_type(self.struct)
        if found is None:
            raise _refused(self.struct, "a type of it cannot be encoded")
        return found

    def prepared(self, register: Callable[[str, str], int]) -> Encode:
        """Return what encodes a row, after a check that the columns fit the schema. Driver and tasks call it; may block on the registry.

        Args:
            register: returns the id that a schema, given as text, has under a subject. The driver's check gives any number.

        Raises:
            SourceOptionError: the columns do not fit the schema, or the registry has no such schema.
            KafkaError: an error of the registry.
            MissingDependencyError: a package of the format is missing.
        """
        struct = self.arrow
        try:
            if self.format == "json":
                from kstream_kafka.structured.json_rows import JsonRows

                return JsonRows(struct)
            return self._of_registry(struct, register)
        except ValueError as e:
            raise _refused(self.struct, str(e)) from None

    def _of_registry(self, struct: pa.StructType, register: Callable[[str, str], int]) -> Encode:
        """Return what encodes a row by a schema of the registry."""
        number = schema_id_of_options(self.options)
        if self.format == "protobuf":
            from kstream_kafka.schemas.protobuf_rows import ProtobufRows
            from kstream_kafka.schemas.protobuf_schema import FIRST, ProtobufSchema

            assert number is not None
            file = found_by_id(number, lambda: ProtobufSchema.registered(registry_of(self.options), number, is_given=True))
            return ProtobufRows(file.message_class(FIRST), number, struct)
        from kstream_kafka.schemas.avro_rows import AvroRows
        from kstream_kafka.schemas.avro_schema import AvroSchema

        if number is not None:
            schema = found_by_id(number, lambda: AvroSchema.registered(registry_of(self.options), number, is_given=True))
        else:
            schema = AvroSchema.given(self.options[SCHEMA])
            number = register(self.options[SUBJECT], schema.text)
        return AvroRows(schema, number, struct)


class FrameEncoder:
    """Encodes the values of one task, and counts them, so that an error has the place of its row. One thread."""

    def __init__(self, encoding: ValueEncoding, encode: Encode) -> None:
        self._encoding, self._encode = encoding, encode
        self._arrow = encoding.arrow
        self._rows = 0

    def of_column(self, values: pa.Array) -> pa.BinaryArray:
        """Return the bytes of a column. RowEncodingError if a value has none."""
        import pyarrow as pa

        from kstream_kafka.schemas.plain_rows import plain_rows

        rows: Iterable[Any]
        try:
            rows = plain_rows(values, self._arrow)
        except ValueError:  # it does not say in which row
            rows = self._one_by_one(values)
        return pa.array(self._encoded(rows), pa.binary())

    def of_row(self, value: Any) -> bytes | None:
        """Return the bytes of a cell of a row of Spark, as Spark before 4.1 gives it. RowEncodingError if it has none."""
        return self._encoded([plain_cell(value, self._encoding.struct)])[0]

    def _one_by_one(self, values: pa.Array) -> Iterator[Any]:
        """Yield `plain_rows` of a column of which a row has none. RowEncodingError at that row."""
        from kstream_kafka.schemas.plain_rows import plain_rows

        for i in range(len(values)):
            try:
                (row,) = plain_rows(values.slice(i, 1), self._arrow)
            except ValueError as e:  # its text may have a value
                reason = "has a string that is no UTF-8" if isinstance(e, UnicodeError) else f"cannot be read: {type(e).__name__}"
                raise RowEncodingError(self._rows + 1, _task(), self._encoding.format, reason) from None
            yield row

    def _encoded(self, values: Iterable[Any]) -> list[bytes | None]:
        """Return the bytes of values, None for null, and count them. RowEncodingError, which has the row's number, if one has none."""
        encode, found = self._encode, list[bytes | None]()
        for value in values:
            self._rows += 1
            try:
                found.append(None if value is None else encode(value))
            except ValueError as e:
                raise RowEncodingError(self._rows, _task(), self._encoding.format, str(e)) from None
        return found


def plain_cell(value: Any, kind: DataType) -> Any:
    """Return a cell of a row of Spark in the form of `plain_rows`. Pure."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {field.name: plain_cell(value[field.name], field.dataType) for field in kind.fields}
    if isinstance(kind, ArrayType):
        return [plain_cell(item, kind.elementType) for item in value]
    if isinstance(kind, MapType):
        return [(plain_cell(key, kind.keyType), plain_cell(item, kind.valueType)) for key, item in value.items()]
    if isinstance(kind, BinaryType):
        return bytes(value)  # protobuf refuses a bytearray
    if isinstance(kind, TimestampType) and value.tzinfo is None:
        value = value.astimezone(timezone.utc)  # toInternal does not know the second hour of two, `fold`
    return kind.toInternal(value) if kind.needConversion() else value


def _task() -> int:
    """Return the number of the frame's partition that this task writes; 0 outside of a task."""
    from pyspark import TaskContext

    task = TaskContext.get()
    return 0 if task is None else task.partitionId()


def _refused(kind: DataType, reason: str, hint: str = "") -> SourceOptionError:
    """Return the error for a column `value` that cannot be encoded."""
    return SourceOptionError(COLUMNS, f"have 'value' as {kind.simpleString()}, and {reason}", hint)
