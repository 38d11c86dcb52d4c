"""InputInfoTracker: record counts and facts of each input stream, for each batch."""

from __future__ import annotations

import threading
from collections.abc import Set

from kstream.batch import StreamInputInfo
from kstream.batch_time import Time
from kstream.errors import IllegalStateError


class InputInfoTracker:
    """Keeps a StreamInputInfo per batch and input: added when a batch is planned, read when it is submitted, removed with its metadata.

    Thread-safe.
    """

    def __init__(self) -> None:
        self._infos: dict[Time, dict[int, StreamInputInfo]] = {}
        self._lock = threading.Lock()

    def reportInfo(self, time: Time, info: StreamInputInfo) -> None:
        """Add the info of one input to a batch.

        Raises:
            IllegalStateError: the batch has an info of this input already.
        """
        with self._lock:
            infos = self._infos.setdefault(time, {})
            if info.stream_id in infos:
                raise IllegalStateError(f"input stream {info.stream_id} has already reported for batch {time}", state="reported")
            infos[info.stream_id] = info

    def getInfo(self, time: Time) -> dict[int, StreamInputInfo]:
        """Return the infos of a batch by stream id; empty if there are none."""
        with self._lock:
            return dict(self._infos.get(time, {}))

    def cleanup(self, threshold: Time, kept: Set[Time] = frozenset()) -> None:
        """Remove the infos of batches strictly older than `threshold`, except those that are `kept`: they are tried again."""
        with self._lock:
            for old in [t for t in self._infos if t < threshold and t not in kept]:
                del self._infos[old]
