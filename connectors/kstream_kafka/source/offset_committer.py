"""OffsetCommitter: commits of users to Kafka, for tools that show lag and for `committed` starts.

A commit means that everything below is done. So it never passes the first offset of the oldest unfinished batch, whatever the user asks:
with concurrent jobs batch 7 may end before batch 6. The rest of a commit is sent when batch 6 has ended.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeAlias

from kstream.batch_time import Time
from kstream_kafka.client.ports import DriverClient, Partition
from kstream_kafka.planning.offset_range import OffsetRange, TopicAndPartition

logger = logging.getLogger("kstream.kafka")

CommitCallback: TypeAlias = Callable[[Mapping[TopicAndPartition, int], "Exception | None"], object]
"""callback(offsets, error): a thread of the client calls it after the response to a commit. `error` is None on success."""


class OffsetCommitter:
    """The commits of one stream. Any thread may call `ask`, only the generator's thread the rest. Only `finish` waits for a broker."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._lock = threading.Lock()
        self._wanted: dict[Partition, set[int]] = defaultdict(set)
        self._callback: CommitCallback | None = None
        self._begins: dict[Time, dict[Partition, int]] = {}
        self._committed: dict[Partition, int] = {}
        self._under_way = False
        self._answered = threading.Condition(self._lock)

    def ask(self, ranges: Sequence[OffsetRange], callback: CommitCallback | None) -> None:
        """Commit the ends of these ranges as soon as all before them is done. Any thread.

        Args:
            ranges: ranges that are done.
            callback: replaces the former callback; None keeps it.
        """
        with self._lock:
            for r in ranges:
                self._wanted[r.topic, r.partition].add(r.untilOffset)
            if callback is not None:
                self._callback = callback

    def planned(self, time: Time, ranges: Sequence[OffsetRange]) -> None:
        """Note that a batch of these ranges will run. Until its end nothing after its first offsets is committed."""
        self._begins[time] = {(r.topic, r.partition): r.fromOffset for r in ranges}

    def ended(self, unfinished: Collection[Time]) -> None:
        """Note that a batch has ended, and which batches are unfinished."""
        for time in [t for t in self._begins if t not in unfinished]:
            del self._begins[time]

    def send(self, client: DriverClient) -> None:
        """Send the commits that are due. Does not wait. A failed commit is logged, reported to the callback and repeated later.

        One commit is under way at a time, because the older one of two could arrive last.
        """
        offsets, callback = self._take_due()
        if not offsets:
            return
        try:
            client.commit(self._group, offsets, lambda error: self._done(offsets, callback, error))
        except Exception as e:
            self._done(offsets, callback, e)

    def finish(self, client: DriverClient, seconds: float) -> None:
        """Send the rest and wait for the responses, up to `seconds` for a commit under way, and again for the last one."""
        self._wait(seconds)
        self.send(client)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        with self._answered:
            self._answered.wait_for(lambda: not self._under_way, seconds)

    def _take_due(self) -> tuple[dict[Partition, int], CommitCallback | None]:
        """Return the offsets to commit now, with the callback. If there are any, a commit is under way from here on."""
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
        try:
            callback({TopicAndPartition(*p): at for p, at in offsets.items()}, error)
        except Exception:
            logger.exception("the callback of commitAsync failed")


def as_callback(given: Any) -> CommitCallback | None:
    """Return the callback: a function of (offsets, error), or Java's `onComplete` of an object. TypeError for anything else."""
    if given is None:
        return None
    callback = getattr(given, "onComplete", given)
    if not callable(callback):
        raise TypeError("the callback of commitAsync should be a function of (offsets, error)")
    return callback
