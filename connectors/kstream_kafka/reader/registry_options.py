"""The options for values of a schema registry: those of a query, and of `foreachBatch` by the same names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from kstream_kafka.client.schema_registry import PREFIX, SchemaRegistry
from kstream_kafka.errors import SourceOptionError

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")
SCHEMA_ID = "value.schema.id"
"""The option with the id of the reader's schema."""


def options_of(registry: SchemaRegistry, schema_id: int | None) -> dict[str, Any]:
    """Return the options that name a registry, and the reader's schema. Pure. Inverse of `registry_of` and `schema_id_of_options`."""
    settings = {f"{PREFIX}{name}": value for name, value in registry.settings.items()}
    return settings if schema_id is None else {**settings, SCHEMA_ID: str(schema_id)}


def registry_of(options: Mapping[str, Any]) -> SchemaRegistry:
    """Return the registry that the options of a query name. KafkaConfigError if they cannot work."""
    return SchemaRegistry({name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)})


def schema_id_of_options(options: Mapping[str, Any]) -> int | None:
    """Return the id of the reader's schema; None if the options name none. SourceOptionError if it is no number."""
    given = options.get(SCHEMA_ID)
    if given is None:
        return None
    if not given.strip().isdecimal():
        raise SourceOptionError(SCHEMA_ID, f"is {given!r}", "It must be a number: the id of a schema in the registry.")
    return int(given)


def fields_of_options(options: Mapping[str, Any], columns: Callable[[SchemaRegistry, int], pa.Schema]) -> pa.Schema:
    """Return the columns of the schema that the options name. Called on the driver; blocks on the registry.

    Args:
        options: the options of a query.
        columns: returns the columns of a schema of a registry, by its id. ValueError if it is unknown or has a field that is no column.

    Raises:
        SourceOptionError: the options name no schema, or `columns` refuses it.
        KafkaError: an error of the registry.
    """
    number = schema_id_of_options(options)
    if number is None:
        raise SourceOptionError(SCHEMA_ID, "is missing, and the query names no columns", "Give one of them.")
    return found_by_id(number, lambda: columns(registry_of(options), number))


def found_by_id(number: int, find: Callable[[], T]) -> T:
    """Return the result of `find`, which asks the registry for the schema of an id. Its ValueError becomes an error about the option.

    Raises:
        SourceOptionError: `find` has raised a ValueError, since the registry has no such schema, or the schema does not fit.
        KafkaError: an error of the registry.
    """
    try:
        return find()
    except ValueError as e:
        raise SourceOptionError(SCHEMA_ID, f"is {number}, and {e}") from None
