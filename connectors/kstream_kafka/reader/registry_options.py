"""The options of a query for values of a schema registry."""

from __future__ import annotations

from collections.abc import Mapping

from kstream_kafka.client.schema_registry import PREFIX, SchemaRegistry
from kstream_kafka.errors import SourceOptionError

SCHEMA_ID = "value.schema.id"
"""The option with the id of the reader's schema."""


def registry_of(options: Mapping[str, str]) -> SchemaRegistry:
    """Return the registry that the options of a query name. KafkaConfigError if they cannot work."""
    return SchemaRegistry({name.removeprefix(PREFIX): value for name, value in options.items() if name.startswith(PREFIX)})


def schema_id_of_options(options: Mapping[str, str]) -> int | None:
    """Return the id of the reader's schema; None if the options name none. SourceOptionError if it is no number."""
    given = options.get(SCHEMA_ID)
    if given is None:
        return None
    if not given.strip().isdecimal():
        raise SourceOptionError(SCHEMA_ID, f"is {given!r}", "It must be a number: the id of a schema in the registry.")
    return int(given)
