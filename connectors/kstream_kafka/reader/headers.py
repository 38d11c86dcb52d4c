"""headers_of: the headers of messages, read so that a broken one is an error and no crash.

confluent_kafka (2.16) fails for a header whose name is not UTF-8. Its method `headers` returns a value and sets an exception at once. The
interpreter checks for that only where C code makes the call, as `map` does. A second call for the same message returns tuples that lack
their name, and to read such an entry ends the process. The garbage collector's view of a tuple is safe: it leaves out what is missing.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, TypeAlias

Pairs: TypeAlias = "Sequence[tuple[str, bytes | None]]"
"""The (name, value) pairs of one message, in their order."""


def headers_of(messages: Sequence[Any]) -> list[Pairs | None]:
    """Return the headers of each message; None for a message without headers.

    Args:
        messages: messages of confluent_kafka.

    Raises:
        ValueError: the name of a header is not UTF-8, so the client cannot read the headers of its message.
    """
    if not messages:
        return []
    try:
        found = list(map(type(messages[0]).headers, messages))
        pairs = [pair for headers in found if headers for pair in headers]
        whole = len(gc.get_referents(*pairs)) == 2 * len(pairs)
    except (SystemError, UnicodeDecodeError):
        whole, found = False, []
    if not whole:
        raise ValueError("the name of a header is not UTF-8, and the client cannot read the headers of such a record")
    return found
