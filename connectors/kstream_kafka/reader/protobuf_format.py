"""ProtobufFormat: Protobuf values of a chunk as typed columns. The files of the writers are in a schema registry, protobuf decodes.

A field of a value goes into the column of its name. A column that the writer's message has not is null: messages carry the numbers of
their fields, so there is no reader's schema. A field that is not set is null if that can be told from its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.reader.chunk_parts import Part, fitting, together
from kstream_kafka.reader.registry_options import fields_of_options, registry_of
from kstream_kafka.reader.value_formats import DecodedValues, MalformedValue, ValueSchema
from kstream_kafka.schemas.framed_values import FramedValues
from kstream_kafka.schemas.framing import HEAD
from kstream_kafka.schemas.plain_message import DURATION, TIMESTAMP, WRAPPERS, enum_names, getter, is_map, is_repeated, microseconds
from kstream_kafka.schemas.protobuf_fields import UTC, misfit, natural, types_of
from kstream_kafka.schemas.protobuf_schema import FIRST, MessagePath, ProtobufSchema, check_protobuf, message_path

if TYPE_CHECKING:
    from google.protobuf.message import Message

Make = Callable[[Any], Any] | None
"""Makes what Arrow takes of one value of a field; None if it takes the value."""


class ProtobufFormat:
    """Decodes the Protobuf values of one task. One thread, that of the task. It keeps the messages that it has met."""

    def __init__(self, schema: ValueSchema) -> None:
        """Note what is asked for. Sends no request.

        Raises:
            KafkaConfigError: an option cannot work.
            MissingDependencyError: protobuf is missing.
        """
        check_protobuf()
        self._fields = schema.fields
        self._registry = registry_of(schema.options)
        self._readers: dict[tuple[int, MessagePath], _MessageReader] = {}

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the values of a chunk. May block on the registry, when a schema is met for the first time.

        Raises:
            KafkaError: the registry does not answer, or refuses the request.
        """
        framed = FramedValues(values)
        malformed = [MalformedValue(row, "has no frame of a schema registry") for row in framed.unframed]
        parts: list[Part] = []
        for schema_id, rows in framed.by_schema():
            by_message: dict[MessagePath, tuple[list[int], list[bytes]]] = {}
            for row, at, end in zip(rows.tolist(), framed.begins[rows].tolist(), framed.ends[rows].tolist(), strict=True):
                raw = framed.data[at:end]
                try:
                    path, begin = (FIRST, HEAD + 1) if raw[HEAD : HEAD + 1] == b"\0" else message_path(raw)
                except ValueError as e:
                    malformed.append(MalformedValue(row, f"is no value of Protobuf: {e}"))
                    continue
                of_path = by_message.setdefault(path, ([], []))
                of_path[0].append(row)
                of_path[1].append(raw[begin:])
            for path, (message_rows, payloads) in by_message.items():
                reader = self._reader(schema_id, path)
                if isinstance(reader, str):
                    malformed += [MalformedValue(row, reader) for row in message_rows]
                else:
                    parts.append(reader.read(message_rows, payloads, malformed))
        return DecodedValues(together(parts, len(values), self._fields), sorted(malformed))

    def _reader(self, schema_id: int, path: MessagePath) -> _MessageReader | str:
        """Return the reader of a message, or the reason for which none of its values fits. May block on the registry."""
        found = self._readers.get((schema_id, path))
        if found is not None:
            return found
        try:
            message = ProtobufSchema.registered(self._registry, schema_id).message_class(path)
            found = _MessageReader(message, self._fields)
        except ValueError as e:
            return f"does not fit: {e}"  # the reason is not kept: damaged values have any paths, and a schema may be known a minute later
        self._readers[schema_id, path] = found
        return found


class _MessageReader:
    """Reads the values of one message as rows of the asked-for fields. One thread."""

    def __init__(self, message: type[Message], fields: pa.Schema) -> None:
        """Prepare the columns. ValueError if the values of the message do not fit the fields."""
        known = message.DESCRIPTOR.fields_by_name
        self._fields = fields
        self._message = message
        self._get = [_column_getter(known[f.name], f.type) if f.name in known else None for f in fields]

    def read(self, rows: Sequence[int], payloads: Sequence[bytes], malformed: list[MalformedValue]) -> Part:
        """Return the payloads that fit, by their rows, with a struct for each; the others are added to `malformed`."""
        from google.protobuf.message import DecodeError

        read = self._message.FromString
        found: list[Message] = []
        kept: list[int] = []
        for row, payload in zip(rows, payloads, strict=True):
            try:
                found.append(read(payload))
                kept.append(row)
            except DecodeError as e:
                malformed.append(MalformedValue(row, f"is none of its Protobuf schema: {e}"))
        return fitting(kept, found, self._struct, malformed)

    def _struct(self, found: Sequence[Message]) -> pa.StructArray:
        """Return the struct of messages. An error of Arrow if a value is out of the range of its column."""
        arrays = [
            pa.nulls(len(found), wanted.type) if get is None else pa.array(list(map(get, found)), wanted.type)
            for wanted, get in zip(self._fields, self._get, strict=True)
        ]
        return pa.StructArray.from_arrays(arrays, fields=list(self._fields))


def _column_getter(field: Any, wanted: pa.DataType) -> Callable[[Any], Any]:
    """Return the function from a message to what Arrow takes for a column. ValueError if the field does not fit the type."""
    if is_map(field):
        if not (pa.types.is_map(wanted) and wanted.key_type in types_of(field.message_type.fields_by_name["key"])):
            raise misfit(field, wanted)
        pairs = getter(field, _value_maker(field.message_type.fields_by_name["value"], wanted.item_type))
        return lambda message: list(pairs(message).items())
    if is_repeated(field):
        if not pa.types.is_list(wanted):
            raise misfit(field, wanted)
        return getter(field, _value_maker(field, wanted.value_type))
    make = _value_maker(field, wanted)
    return attrgetter(field.name) if make is None and not field.has_presence else getter(field, make)


def _value_maker(field: Any, wanted: pa.DataType) -> Make:
    """Return what makes, of one value of a field, as of an item of a list, what Arrow takes for a type. ValueError if they do not fit."""
    kind = str(getattr(field.message_type, "full_name", ""))
    if kind == TIMESTAMP and wanted == pa.timestamp("us", UTC):
        return microseconds
    if kind == DURATION and wanted == pa.duration("us"):
        return microseconds
    if kind in WRAPPERS:
        inner = _value_maker(field.message_type.fields_by_name["value"], wanted)
        return (lambda value: value.value) if inner is None else lambda value: inner(value.value)
    if kind and pa.types.is_struct(wanted):
        known = field.message_type.fields_by_name
        parts = [wanted.field(i) for i in range(wanted.num_fields)]
        gets = [(part.name, _column_getter(known[part.name], part.type)) for part in parts if part.name in known]
        return lambda message: {name: get(message) for name, get in gets}
    if wanted not in types_of(field):
        raise misfit(field, wanted)
    if field.enum_type is not None:
        return enum_names(field)
    return Decimal if pa.types.is_decimal(wanted) else None


def protobuf_fields(options: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of the first message of the file that the options name. As `fields_of_options`."""
    return fields_of_options(options, _columns)


def _columns(registry: SchemaRegistry, number: int) -> pa.Schema:
    """Return the columns of the first message of a file. ValueError if it is unknown, or a field is no column."""
    message: Any = ProtobufSchema.registered(registry, number, is_given=True).message_class(FIRST)
    return pa.schema([(field.name, natural(field)) for field in message.DESCRIPTOR.fields])
