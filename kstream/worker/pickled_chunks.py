"""The form in which workers send records, and in which received blocks hold them: many records in few pickles."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

CHUNK_BYTES = 256 * 1024


def pickled_chunks(records: Iterable[Any], dumps: Callable[[list[Any]], bytes]) -> Iterator[bytes]:
    """Yield the records as pickled lists of about 256 KB each. A list of small records has many of them.

    Args:
        records: the records; read while the lists are taken.
        dumps: pickles a list.
    """
    rest, size = iter(records), 1
    while batch := list(islice(rest, size)):
        chunk = dumps(batch)
        yield chunk
        if len(chunk) < CHUNK_BYTES:
            size *= 2
        elif len(chunk) > 10 * CHUNK_BYTES and size > 1:
            size //= 2
