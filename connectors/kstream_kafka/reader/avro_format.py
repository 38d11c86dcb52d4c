"""AvroFormat: Avro values of a chunk as typed columns. The schemas of the writers are in a schema registry, fastavro decodes.

A value is brought to the asked-for fields by their names, as Avro's rules for a reader's schema say: a field that the writer has not
is null, or has the default of the reader's schema. Each value is decoded from bytes of its own: a damaged count or length in it would else
make fastavro read all values behind it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import Any

import pyarrow as pa

from kstream_kafka.client.schema_registry import SchemaRegistry, UnknownSchemaError
from kstream_kafka.errors import SourceOptionError
from kstream_kafka.reader.chunk_parts import Part, fitting, together
from kstream_kafka.reader.registry_options import SCHEMA_ID, fields_of_options, registry_of, schema_id_of_options
from kstream_kafka.reader.value_formats import DecodedValues, MalformedValue, ValueSchema
from kstream_kafka.schemas.avro_empty_items import bounded_reader
from kstream_kafka.schemas.avro_fields import AvroFields
from kstream_kafka.schemas.avro_schema import AvroSchema, fastavro
from kstream_kafka.schemas.framed_values import FramedValues, Rows
from kstream_kafka.schemas.framing import HEAD


class AvroFormat:
    """Decodes the Avro values of one task. One thread, that of the task. It keeps the schemas of the writers that it has met."""

    def __init__(self, schema: ValueSchema) -> None:
        """Note what is asked for. Sends no request.

        Args:
            schema: the fields, and the options of the registry.

        Raises:
            KafkaConfigError, SourceOptionError: an option cannot work.
            MissingDependencyError: fastavro is missing.
        """
        fastavro()
        self._fields = schema.fields
        self._registry = registry_of(schema.options)
        self._own_id = schema_id_of_options(schema.options)
        self._readers: dict[int, _RecordReader | str] = {}

    def decode(self, values: pa.BinaryArray) -> DecodedValues:
        """Decode the values of a chunk. May block on the registry, when a schema is met for the first time.

        Raises:
            KafkaError: the registry does not answer, or refuses the request.
        """
        framed = FramedValues(values)
        malformed = [MalformedValue(row, "has no frame of a schema registry") for row in framed.unframed]
        parts: list[Part] = []
        for schema_id, rows in framed.by_schema():
            reader = self._reader(schema_id)
            if isinstance(reader, str):
                malformed += [MalformedValue(row, reader) for row in rows.tolist()]
            else:
                parts.append(reader.read(framed, rows, malformed))
        return DecodedValues(together(parts, len(values), self._fields), sorted(malformed))

    def _reader(self, schema_id: int) -> _RecordReader | str:
        """Return the reader of a writer's schema, or the reason for which none of its values fits. May block on the registry.

        Both are kept for the next chunks, except for a schema that the registry does not know. SourceOptionError if the registry has no
        reader's schema of the id that the options name.
        """
        found = self._readers.get(schema_id)
        if found is not None:
            return found
        own = None if self._own_id is None else _own_schema(self._registry, self._own_id)
        try:
            written = AvroSchema.registered(self._registry, schema_id)
            found = _RecordReader(written, own or written, self._fields)
        except UnknownSchemaError as e:
            return f"does not fit: {e}"  # the registry may know the schema while the task still runs
        except ValueError as e:
            found = f"does not fit: {e}"
        self._readers[schema_id] = found
        return found


class _RecordReader:
    """Reads the values of one writer's schema as rows of the asked-for fields. One thread."""

    def __init__(self, written: AvroSchema, own: AvroSchema, fields: pa.Schema) -> None:
        """Prepare the columns. ValueError if the values do not fit the fields.

        Args:
            written: the schema of the writer.
            own: the reader's schema, to which values are brought; the same as `written` if the query names none.
            fields: the asked-for fields.
        """
        known = AvroFields(own.parsed())
        self._built_as = pa.struct([(f.name, known.built_as(f.name, f.type) if f.name in known else f.type) for f in fields])
        self._fields = fields
        self._written = written.parsed_plain()
        self._own = None if own == written else own.parsed_plain()
        self._read = bounded_reader(self._written)

    def read(self, framed: FramedValues, rows: Rows, malformed: list[MalformedValue]) -> Part:
        """Return the values of these rows that fit, with a struct for each; the others are added to `malformed`."""
        read, written, own, data = self._read, self._written, self._own, framed.data
        found: list[dict[str, Any]] = []
        kept: list[int] = []
        for row, begin, end in zip(rows.tolist(), (framed.begins[rows] + HEAD).tolist(), framed.ends[rows].tolist(), strict=True):
            file = BytesIO(data[begin:end])
            try:
                value = read(file, written, own)
            except Exception as e:
                malformed.append(MalformedValue(row, f"is none of its Avro schema: {type(e).__name__}: {e}"))
                continue
            if file.tell() == end - begin:
                found.append(value)
                kept.append(row)
            else:
                malformed.append(MalformedValue(row, "is none of its Avro schema: it has more or fewer bytes than the schema asks for"))
        return fitting(kept, found, self._struct, malformed)

    def _struct(self, found: Sequence[Mapping[str, Any]]) -> pa.StructArray:
        """Return the struct of decoded values. An error of Arrow if a value is out of the range of its column."""
        built = pa.array(found, self._built_as)
        wanted = pa.struct(list(self._fields))
        return built if built.type == wanted else built.cast(wanted)


def avro_fields(options: Mapping[str, Any]) -> pa.Schema:
    """Return the columns of the reader's schema that the options name. As `fields_of_options`."""
    return fields_of_options(options, lambda registry, number: AvroFields(_own_schema(registry, number).parsed()).columns())


def _own_schema(registry: SchemaRegistry, number: int) -> AvroSchema:
    """Return the reader's schema. May block on the registry. SourceOptionError if the registry has no such schema of Avro."""
    try:
        return AvroSchema.registered(registry, number, is_given=True)
    except ValueError as e:
        raise SourceOptionError(SCHEMA_ID, f"is {number}, and {e}") from None
