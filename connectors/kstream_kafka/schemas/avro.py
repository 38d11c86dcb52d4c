"""AvroDeserializer and AvroSerializer: Avro values of an RDD's records, in Confluent's framing. fastavro decodes and encodes them."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from typing import Any, TypeAlias

from kstream_kafka.client.schema_registry import AVRO, SchemaRegistry
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.schemas.avro_empty_items import bounded_reader
from kstream_kafka.schemas.avro_schema import AvroSchema, fastavro
from kstream_kafka.schemas.framing import HEAD, frame_of, schema_id_of
from kstream_kafka.schemas.registry_codec import RegistryCodec

Read: TypeAlias = Callable[[BytesIO], Any]
"""Reads one value from where the file stands, and leaves it after the value."""


class AvroDeserializer(RegistryCodec):
    """A decoder of Avro values: bytes → dict, number, text … Pickled into the tasks; one thread.

    Records become dicts. Logical types become Decimal, date, datetime, time and UUID. A value of None stays None.

    Example:
        KafkaUtils.createDirectStream(ssc, ["orders"], kafkaParams, valueDecoder=AvroDeserializer(registry))
    """

    def __init__(self, registry: SchemaRegistry, schema: str | int | None = None) -> None:
        """Note registry and schema. Sends no request.

        Args:
            registry: the registry with the schemas of the writers. A worker asks it once for each schema.
            schema: the reader's schema, to which all values are brought by the rules of Avro: its text, or its id in the registry. None for
                the schema with which each value was written.

        Raises:
            MissingDependencyError: fastavro is missing.
            KafkaConfigError: the text is no Avro schema.
        """
        fastavro()
        super().__init__(registry)
        self._schema = schema
        self._own = AvroSchema.given(schema) if isinstance(schema, str) else None
        self._reads: dict[int, Read] = {}

    def __call__(self, raw: bytes | None) -> Any:
        """Return the value of these bytes. May block on the registry.

        Raises:
            ValueError: they are no framed value of Avro, or their schema is not known or does not fit the reader's schema.
            SchemaRegistryUnreachableError: no registry answered, after the retries of its client.
            SchemaRegistryRefusedError: it refuses the request.
            KafkaConfigError: the id of the reader's schema is none of an Avro schema.
        """
        if raw is None:
            return None
        schema_id = schema_id_of(raw)
        read = self._reads.get(schema_id)
        if read is None:
            read = self._reads[schema_id] = self._read_of(schema_id)
        file = BytesIO(raw)
        file.seek(HEAD)
        try:
            value = read(file)
            rest = len(raw) - file.tell()
        except Exception as e:
            raise ValueError(f"the value is none of the Avro schema {schema_id}: {type(e).__name__}: {e}") from e
        if rest:
            raise ValueError(f"the value is none of the Avro schema {schema_id}: {rest} bytes are left after it")
        return value

    def _read_of(self, schema_id: int) -> Read:
        """Return the function that reads the values of a writer's schema. May block on the registry. Errors as `__call__`."""
        if isinstance(self._schema, int) and self._own is None:
            try:
                self._own = AvroSchema.registered(self._registry, self._schema, is_given=True)
            except ValueError as e:
                raise KafkaConfigError("schema", f"is {self._schema}, and {e}") from None
        return _reader(AvroSchema.registered(self._registry, schema_id), self._own)

    def __reduce__(self) -> Any:
        return AvroDeserializer, (self._registry, self._schema)


class AvroSerializer(RegistryCodec):
    """An encoder of Avro values: dict, number, text … → bytes. Pickled into the tasks; one thread. A value of None stays None.

    Example:
        totals.saveToKafka("totals", kafkaParams, value=AvroSerializer(registry, TOTAL, "totals-value"))
    """

    def __init__(self, registry: SchemaRegistry, schema: str, subject: str) -> None:
        """Note the schema. Sends no request.

        Args:
            registry: the registry. A worker asks it once for the id of the schema, and so registers the schema if it is not there.
            schema: the text of the schema.
            subject: its subject in the registry; for the values of a topic this is `<topic>-value`, by the registry's own rule.

        Raises:
            MissingDependencyError: fastavro is missing.
            KafkaConfigError: the text is no Avro schema.
        """
        super().__init__(registry)
        self._schema, self._subject = AvroSchema.given(schema), subject
        self._write: Callable[[Any], bytes] | None = None

    def __call__(self, value: Any) -> bytes | None:
        """Return the framed bytes of a value. May block on the registry.

        Raises:
            TypeError, ValueError: the value does not fit the schema.
            SchemaRegistryUnreachableError: no registry answered, after the retries of its client.
            SchemaRegistryRefusedError: it refuses the schema, such as one that is not compatible.
        """
        if value is None:
            return None
        if self._write is None:
            self._write = _writer(self._schema, self._registry.register(self._subject, AVRO, self._schema.text))
        return self._write(value)

    def __reduce__(self) -> Any:
        return AvroSerializer, (self._registry, self._schema.text, self._subject)


def _reader(written: AvroSchema, own: AvroSchema | None) -> Read:
    """Return the function that reads the values of a writer's schema, brought to the reader's own schema if there is one.

    Values of the schema `bytes` have no length: it takes all bytes that are left.
    """
    if written.is_bytes:
        return BytesIO.read
    writers, readers = written.parsed(), None if own is None else own.parsed()
    read = bounded_reader(writers)
    return lambda file: read(file, writers, readers)


def _writer(schema: AvroSchema, schema_id: int) -> Callable[[Any], bytes]:
    """Return the function that encodes the values of a schema, with their frame."""
    parsed, frame, write = schema.parsed(), frame_of(schema_id), fastavro().schemaless_writer
    if schema.is_bytes:
        return lambda value: frame + (value if isinstance(value, bytes) else value.encode())

    def encode(value: Any) -> bytes:
        file = BytesIO()
        file.write(frame)
        write(file, parsed, value)
        return file.getvalue()

    return encode
