"""InputInfoTracker: what each input stream gave to each batch."""

from __future__ import annotations

import threading

from kstream.batch import StreamInputInfo
from kstream.batch_time import Time
from kstream.errors import IllegalStateError


class InputInfoTracker:
    """Thread-safe. Filled when a batch is planned, read when it is submitted, cleaned with the batch's metadata."""

    def __init__(self) -> None:
        self._infos: dict[Time, dict[int, StreamInputInfo]] = {}
        self._lock = threading.Lock()

    def reportInfo(self, time: Time, info: StreamInputInfo) -> None:
        """Notes what a stream gives to a batch; IllegalStateError for the second time."""
        with self._lock:
            infos = self._infos.setdefault(time, {})
            if info.stream_id in infos:
                raise IllegalStateError(f"input stream {info.stream_id} has already reported for batch {time}", state="reported")
            infos[info.stream_id] = info

    def getInfo(self, time: Time) -> dict[int, StreamInputInfo]:
        """All that was reported for a batch; empty if nothing was."""
        with self._lock:
            return dict(self._infos.get(time, {}))

    def cleanup(self, threshold: Time) -> None:
        """Forgets batches strictly older than `threshold`."""
        with self._lock:
            for old in [t for t in self._infos if t < threshold]:
                del self._infos[old]
