"""OffsetCommitter: the commits of a user to Kafka, for tools that show lag and for starts at `committed`.

A commit means that all earlier records are processed. So it never passes the first offset of the oldest unfinished batch, also if the user
asks for more. With concurrent jobs, batch 7 may end before batch 6. Then the commit of batch 7 is sent when batch 6 has ended.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, runtime_checkable

from kstream.batch_time import Time
from kstream.dstream.arguments import check_body_runs
from kstream.offsets.offset_range import OffsetRange, Partition, TopicAndPartition
from kstream_kafka.client.ports import DriverClient

logger = logging.getLogger("kstream.kafka")

CommitCallback: TypeAlias = Callable[[Mapping[TopicAndPartition, int], "Exception | None"], object]
"""callback(offsets, error), called after the response to a commit, usually by a thread of the client. `error` is None on success."""


@runtime_checkable
class CanCommitOffsets(Protocol):
    """An object that commits offsets to Kafka: a direct stream."""

    def commitAsync(self, offsetRanges: Sequence[OffsetRange], callback: Any = None) -> None:
        """Commit the ends of ranges for the consumer group `group.id`. Any thread; returns at once.

        Args:
            offsetRanges: ranges whose records are processed.
            callback: `callback(offsets, error)`, or an object with Java's `onComplete`. None keeps the former callback.
        """
        ...


class OffsetCommitter:
    """The commits of one stream.

    Any thread may call `ask`. The other methods belong to the driver, one thread at a time. Only `finish` waits for a broker.
    """

    def __init__(self, group: str) -> None:
        """Create the commits of a stream. Sends no request.

        Args:
            group: the consumer group.
        """
        self._group = group
        self._lock = threading.Lock()
        self._wanted: dict[Partition, set[int]] = defaultdict(set)
        self._callback: CommitCallback | None = None
        self._begins: dict[Time, dict[Partition, int]] = {}
        self._committed: dict[Partition, int] = {}
        self._under_way = False
        self._answered = threading.Condition(self._lock)

    def ask(self, ranges: Sequence[OffsetRange], callback: CommitCallback | None) -> None:
        """Ask for a commit of the ends of ranges. A later `send` sends it, when all earlier batches have ended. Any thread; does not block.

        Args:
            ranges: ranges whose records are processed.
            callback: called after the response to each commit. It replaces the former callback; None keeps that one.
        """
        with self._lock:
            for r in ranges:
                self._wanted[r.topic, r.partition].add(r.untilOffset)
            if callback is not None:
                self._callback = callback

    def planned(self, time: Time, ranges: Sequence[OffsetRange]) -> None:
        """Note that a batch of these ranges will run. Until the batch has ended, no commit passes its first offsets.

        Args:
            time: the batch time.
            ranges: the planned ranges.
        """
        self._begins[time] = {(r.topic, r.partition): r.fromOffset for r in ranges}

    def ended(self, unfinished: Collection[Time]) -> None:
        """Note that batches have ended: all except the unfinished ones.

        Args:
            unfinished: the times of the unfinished batches.
        """
        for time in [t for t in self._begins if t not in unfinished]:
            del self._begins[time]

    def send(self, client: DriverClient) -> None:
        """Send one commit with all offsets that are due. Does not wait for the response, and raises no error of the client.

        Only one commit is under way at a time, because the older one of two could arrive last. While one is, nothing is sent. A failed
        commit is logged and reported to the callback, and the next `send` repeats it.

        Args:
            client: the driver's client.
        """
        offsets, callback = self._take_due()
        if not offsets:
            return
        try:
            client.commit(self._group, offsets, lambda error: self._done(offsets, callback, error))
        except Exception as e:
            self._done(offsets, callback, e)

    def finish(self, client: DriverClient, seconds: float) -> None:
        """Send the commits that are due, and wait for the responses. Blocks up to twice `seconds`.

        Args:
            client: the driver's client.
            seconds: the longest wait for a commit under way, and then again for the last one.
        """
        self._wait(seconds)
        self.send(client)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Wait until no commit is under way, or until the time is over."""
        with self._answered:
            self._answered.wait_for(lambda: not self._under_way, seconds)

    def _take_due(self) -> tuple[dict[Partition, int], CommitCallback | None]:
        """Return the offsets to commit now, and the callback. If there are offsets, the commit is marked as under way.

        Of each partition the highest offset is due that passes no unfinished batch and is above the last committed one.
        """
        with self._lock:
            due: dict[Partition, int] = {}
            if self._under_way:
                return due, None
            floor: dict[Partition, int] = {}
            for begins in self._begins.values():
                for partition, at in begins.items():
                    floor[partition] = min(at, floor.get(partition, at))
            for p, wanted in self._wanted.items():
                allowed = {at for at in wanted if at <= floor.get(p, at)}
                wanted -= allowed
                if allowed and max(allowed) > self._committed.get(p, -1):
                    due[p] = max(allowed)
            self._under_way = bool(due)
            return due, self._callback

    def _done(self, offsets: dict[Partition, int], callback: CommitCallback | None, error: Exception | None) -> None:
        """Note the response to a commit, and call the callback. Mostly called by a thread of the client."""
        with self._answered:
            self._under_way = False
            for p, at in offsets.items():
                if error is None:
                    self._committed[p] = at
                else:
                    self._wanted[p].add(at)  # repeated with the next batch
            self._answered.notify_all()
        if error is not None:
            logger.warning("group %s: the commit of offsets failed, the next batch repeats it: %s", self._group, error)
        if callback is not None:
            self._call(callback, offsets, error)

    def _call(self, callback: CommitCallback, offsets: dict[Partition, int], error: Exception | None) -> None:
        """Call the user's callback. An error that it raises is logged."""
        try:
            callback({TopicAndPartition(*p): at for p, at in offsets.items()}, error)
        except Exception:
            logger.exception("the callback of commitAsync failed")


def as_callback(given: Any) -> CommitCallback | None:
    """Return the callback that a user gave to `commitAsync` as a function.

    Args:
        given: a function of (offsets, error), an object with Java's `onComplete`, or None.

    Returns:
        The function or the method; None for None.

    Raises:
        TypeError: `given` is none of these, or nothing would run its body.
    """
    if given is None:
        return None
    callback = getattr(given, "onComplete", given)
    if not callable(callback):
        raise TypeError("the callback of commitAsync should be a function of (offsets, error)")
    check_body_runs("commitAsync", "callback", callback)
    return callback
