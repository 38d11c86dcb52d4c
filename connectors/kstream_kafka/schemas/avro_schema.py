"""AvroSchema: the text of an Avro schema, and what fastavro makes of it. Pure, but for the question to the registry."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

from kstream.errors import MissingDependencyError
from kstream_kafka.client.schema_registry import AVRO, INSTALL, SchemaRegistry
from kstream_kafka.errors import KafkaConfigError


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A schema. Immutable.

    Attributes:
        text: its JSON, or the name of a primitive type.
        references: (name, text) of each schema that it needs, before those that need them.
    """

    text: str
    references: tuple[tuple[str, str], ...] = ()

    def parsed(self) -> Any:
        """Return the schema as fastavro parses it.

        Raises:
            MissingDependencyError: fastavro is missing.
            Exception: an error of json or fastavro, if it is no schema.
        """
        return _parsed(self, False)

    def parsed_plain(self) -> Any:
        """Return the schema, parsed, without its logical types, but for decimals. Raises as `parsed`.

        Arrow takes dates and timestamps as numbers, which are read faster than objects are made of them.
        """
        return _parsed(self, True)

    @property
    def is_bytes(self) -> bool:
        """Whether it is `bytes`, and no more. Confluent's serializers write such values as they are, without a length."""
        parsed = self.parsed()
        return parsed == "bytes" or (isinstance(parsed, Mapping) and parsed.get("type") == "bytes")

    @staticmethod
    def given(text: str) -> AvroSchema:
        """Return the schema that a user gives. KafkaConfigError if it is none."""
        schema = AvroSchema(text)
        try:
            schema.parsed()
        except MissingDependencyError:
            raise
        except Exception as e:
            raise KafkaConfigError("schema", f"is no schema of Avro ({type(e).__name__}: {e})", "Give its JSON, or its id.") from None
        return schema

    @staticmethod
    def registered(registry: SchemaRegistry, schema_id: int, is_given: bool = False) -> AvroSchema:
        """Return a schema of the registry. May block on it.

        `is_given`: whether a user has given the id. One of a record may be damaged: see `SchemaRegistry.schema`.

        Raises:
            UnknownSchemaError: the registry does not know it.
            ValueError: it is no schema of Avro.
            KafkaError: an error of the registry.
        """
        found = registry.schema_of_kind(schema_id, AVRO, is_given)
        schema = AvroSchema(found.text, found.references)
        try:
            schema.parsed()
        except MissingDependencyError:
            raise
        except Exception as e:
            raise ValueError(f"fastavro cannot use schema {schema_id} ({type(e).__name__}: {e})") from None
        return schema


def fastavro() -> ModuleType:
    """Return the package fastavro. MissingDependencyError if it is missing."""
    try:
        import fastavro as found
    except ImportError as e:
        raise MissingDependencyError(f"Avro needs fastavro ({e}): {INSTALL}", package="fastavro", install=INSTALL) from e
    return found


@lru_cache(maxsize=1000)
def _parsed(schema: AvroSchema, is_plain: bool) -> Any:
    """Return `parsed` of a schema, or `parsed_plain`, made once in a process."""
    parse, named = fastavro().parse_schema, dict[str, Any]()
    load = (lambda text: without_logical_types(_loaded(text))) if is_plain else _loaded
    for _, needed in schema.references:
        parse(load(needed), named_schemas=named)
    return parse(load(schema.text), named_schemas=named)


def _loaded(text: str) -> Any:
    """Return the JSON of a schema. The name of a primitive type may stand there without quotes."""
    return json.loads(text) if text.lstrip()[:1] in ("{", "[", '"') else text.strip()


def without_logical_types(schema: Any) -> Any:
    """Return the JSON of a schema without its logical types, but for decimals. Pure."""
    if isinstance(schema, list):
        return [without_logical_types(branch) for branch in schema]
    if not isinstance(schema, Mapping):
        return schema
    kept: dict[str, Any] = {k: v for k, v in schema.items() if k != "logicalType" or v == "decimal"}
    for part in ("type", "items", "values"):
        if part in kept:
            kept[part] = without_logical_types(kept[part])
    if "fields" in kept:
        kept["fields"] = [without_logical_types(field) for field in kept["fields"]]
    return kept
