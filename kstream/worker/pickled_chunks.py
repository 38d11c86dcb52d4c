"""Many records as few pickles: the form in which workers send records, and in which received blocks hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

CHUNK_BYTES = 256 * 1024


def pickled_chunks(records: Iterable[Any], dumps: Callable[[list[Any]], bytes]) -> Iterator[bytes]:
    """Yield lists of the records, each pickled by `dumps`, of about 256 KB: small records many at once."""
    rest, size = iter(records), 1
    while batch := list(islice(rest, size)):
        chunk = dumps(batch)
        yield chunk
        if len(chunk) < CHUNK_BYTES:
            size *= 2
        elif len(chunk) > 10 * CHUNK_BYTES and size > 1:
            size //= 2
