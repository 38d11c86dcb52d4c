"""The kind of an input, as each stored plan says it, and `kind_of`, which also knows it for plans of before. Pure.

kind            the input whose plan it is
"log"           the direct stream of a Log
"files"         a file stream
"blocks"        a receiver stream
"json"          an input whose plan is JSON values that only the input itself knows
any other       an input of a connector, such as "kafka"
"""

from __future__ import annotations

from collections.abc import Mapping

from kstream.batch.plan import Json

LOG, FILES, BLOCKS, JSON = "log", "files", "blocks", "json"
_FIELD = "kind"


def kind_of(data: Mapping[str, Json]) -> str:
    """Return the kind of input that has stored a plan, also that of a plan which does not say it: until 2026-11 none did.

    Args:
        data: the stored plan of one input.
    """
    said: object = data.get(_FIELD)
    if isinstance(said, str):
        return said
    if "log" in data:
        return LOG
    if "ranges" in data:
        return "kafka"
    return FILES if "files" in data else BLOCKS if "blocks" in data else JSON


def with_kind(encoded: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what the log stores of an encoded plan: if the plan does not say its kind, this is JSON."""
    return encoded if _FIELD in encoded else {_FIELD: JSON, **encoded}


def without_kind(stored: Mapping[str, Json]) -> Mapping[str, Json]:
    """Return what `encode` gave: the inverse of `with_kind`. A plan of before is returned as it is."""
    return {key: value for key, value in stored.items() if key != _FIELD} if stored.get(_FIELD) == JSON else stored
