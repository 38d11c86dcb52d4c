"""JsonDeserializer: JSON values of an RDD's records, with the types of a schema. Its rules are those of `value.format=json`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from kstream.public_call import refused
from kstream_kafka.reader.json_documents import JsonDocuments

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class JsonDeserializer:
    """A decoder of JSON values: bytes → dict of the fields of a schema. Pickled into the tasks; one thread. A value of None stays None.

    Example:
        decoder = JsonDeserializer(schema="id BIGINT, amount DECIMAL(10, 2), at TIMESTAMP")
        KafkaUtils.createDirectStream(ssc, ["orders"], kafkaParams, valueDecoder=decoder)
    """

    def __init__(self, schema: StructType | str) -> None:
        """Note the schema.

        Args:
            schema: the fields of the values, as a StructType or its DDL, which needs a SparkContext. A field that an object lacks is None,
                and a field that the schema lacks is left out.

        Raises:
            TypeError: it is neither.
            ValueError: a field has a type that no JSON value has, or is NOT NULL.
        """
        from kstream_kafka.reader.value_columns import arrow_fields, parsed_schema

        def no(reason: str, hint: str) -> Exception:
            return refused(ValueError(f"JsonDeserializer: schema {reason}.{' ' + hint if hint else ''}"))

        fields = arrow_fields(parsed_schema("JsonDeserializer", schema).fields, no)
        try:
            self._prepare(fields)
        except ValueError as e:
            raise no(str(e), "") from None

    def _prepare(self, fields: pa.Schema) -> None:
        """Make what decodes, also for an unpickled copy: only the fields are pickled. ValueError if a field has a type of no JSON value."""
        self._fields = fields
        self._documents = JsonDocuments(fields)
        self._dicts = _dicts_of(pa.struct(list(fields)))

    def __call__(self, raw: bytes | None) -> dict[str, Any] | None:
        """Return the fields of a value: points in time as datetimes, those with a zone in UTC; decimals as Decimal.

        Raises:
            ValueError: it is no single JSON object, or a field has another type. The text shows nothing of the value.
        """
        if raw is None:
            return None
        rows, reasons = self._documents.decode([raw])
        if reasons:
            raise ValueError(f"the value {reasons[0][1]}")
        found = rows[0].as_py()
        return found if self._dicts is None else self._dicts(found)

    def __getstate__(self) -> pa.Schema:
        return self._fields

    def __setstate__(self, fields: pa.Schema) -> None:
        self._prepare(fields)

    def __repr__(self) -> str:
        return f"JsonDeserializer({', '.join(f'{field.name} {field.type}' for field in self._fields)})"


def _dicts_of(kind: pa.DataType) -> Callable[[Any], Any] | None:
    """Return the function that makes a dict of each map in a value, which Arrow gives as pairs; None if there is no map."""
    if pa.types.is_map(kind):
        inner = _dicts_of(kind.item_type)
        return lambda pairs: None if pairs is None else {key: item if inner is None else inner(item) for key, item in pairs}
    if pa.types.is_list(kind):
        inner = _dicts_of(kind.value_type)
        return None if inner is None else lambda items: None if items is None else [inner(item) for item in items]
    if pa.types.is_struct(kind):
        makes = [(field.name, make) for field in kind if (make := _dicts_of(field.type)) is not None]
        if makes:
            return lambda row: None if row is None else {**row, **{name: make(row[name]) for name, make in makes}}
    return None
