"""RegistryCodec: the base of what decodes or encodes single values by a schema registry."""

from __future__ import annotations

from collections.abc import Iterable

from kstream_kafka.client.schema_registry import SchemaRegistry


class RegistryCodec:
    """A function of the connector that has a registry, which may have a password. Pickled into the tasks."""

    def __init__(self, registry: SchemaRegistry) -> None:
        """Note the registry. Sends no request."""
        self._registry = registry

    def not_storable(self) -> list[str]:
        """Return the names of the settings of the registry that may hold a secret, which are never stored."""
        return self._registry.not_storable()

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._registry})"


def secrets_in(functions: Iterable[object]) -> list[str]:
    """Return the names of the settings that may hold a secret, of all registries that functions of a job have. Pure."""
    return sorted({name for function in functions if isinstance(function, RegistryCodec) for name in function.not_storable()})
