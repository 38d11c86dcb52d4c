"""OffsetCommitter: the offsets of a stream in Kafka's consumer groups, for tools that show lag and for starts at `committed`.

A commit means that all earlier records are processed. So it never passes the first offset of the oldest unfinished batch, also if the user
asks for more. With concurrent jobs, batch 7 may end before batch 6. Then the commit of batch 7 is sent when batch 6 has ended.

A group gets its offsets in one of two ways. A published group follows the completed batches by itself. In the group `group.id` the user
may commit the ranges that he names (`commitAsync`). If `group.id` is published, it follows the completed batches, and a request of the user
adds only its callback.
"""

from __future__ import annotations

import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeAlias, runtime_checkable

from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.dstream.arguments import check_body_runs
from kstream.offsets.offset_range import OffsetRange, Partition, TopicAndPartition
from kstream.public_call import refused
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import KafkaConfigError

logger = logging.getLogger("kstream.kafka")

RENEWAL_MS = 3_600_000
"""Milliseconds after which a published group gets all of its offsets again.

Kafka drops an offset that was not committed for `offsets.retention.minutes`, a week by default. So a partition without new records would
vanish from the tools.
"""

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
    """The commits of one stream, for its group `group.id` and for the published groups.

    Any thread may call `ask` and `succeeded`. The other methods belong to the driver, one thread at a time. Only `finish` waits for a
    broker.
    """

    def __init__(self, group: str | None, clock: Clock | None = None) -> None:
        """Create the commits of a stream. Sends no request.

        Args:
            group: the consumer group `group.id`; None if the stream has none.
            clock: the clock, for tests; None for the system's.
        """
        self._group = group
        self._clock = clock or SystemClock()
        self._answered = threading.Condition()
        self._groups = {} if group is None else {group: GroupCommits(group)}
        """The commits of each group. No group is added after the start."""
        self._begins: dict[Time, dict[Partition, int]] = {}
        self._ends: dict[Partition, int] = {}
        """The ends of the newest planned batch."""
        self._succeeded: set[Time] = set()
        """Batches whose jobs have succeeded under this driver, and whose completion may not be stored yet."""
        self._has_completed = False
        """Whether this driver has completed a batch."""

    def publish(self, group: str | None) -> None:
        """Let a group follow the completed batches. Before the start; any number of groups.

        Args:
            group: the consumer group; None for `group.id`.

        Raises:
            KafkaConfigError: `group` is None, and the stream has no `group.id`.
            TypeError: `group` is no text.
            ValueError: `group` is empty.
        """
        if group is not None and not isinstance(group, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise refused(TypeError(f"publishOffsets: group should be a text or None, it is a {type(group).__name__}"))
        if group == "":
            raise refused(ValueError("publishOffsets: group is empty; name a consumer group, or leave it out for group.id"))
        name = group if group is not None else self._own_group("publishOffsets needs a group: name it, or set group.id.")
        self._groups.setdefault(name, GroupCommits(name)).is_published = True

    def ask(self, ranges: Sequence[OffsetRange], callback: CommitCallback | None) -> None:
        """Ask for a commit of the ends of ranges. A later `send` sends it, when all earlier batches have ended. Any thread; does not block.

        Args:
            ranges: ranges whose records are processed.
            callback: called after the response to each commit. It replaces the former callback; None keeps that one.

        Raises:
            KafkaConfigError: the stream has no `group.id`.
        """
        commits = self._groups[self._own_group("commitAsync needs a group to commit for.")]
        with self._answered:
            commits.ask(ranges, callback)

    def _own_group(self, hint: str) -> str:
        """Return the group `group.id`. KafkaConfigError, with this hint, if there is none."""
        if self._group is None:
            raise KafkaConfigError("group.id", "is missing", hint)
        return self._group

    def planned(self, time: Time, ranges: Sequence[OffsetRange]) -> None:
        """Note that a batch of these ranges will run. Until the batch has ended, no commit passes its first offsets.

        A partition that begins before its last planned end was cut or made anew: what was asked and committed for it is forgotten.

        Args:
            time: the batch time, later than those of earlier calls.
            ranges: the planned ranges.
        """
        if not self._groups:
            return
        begins = {(r.topic, r.partition): r.fromOffset for r in ranges}
        anew = [p for p, at in begins.items() if at < self._ends.get(p, at)]
        if anew:
            with self._answered:
                for commits in self._groups.values():
                    commits.begin_anew(anew)
        self._begins[time] = begins
        self._ends = {(r.topic, r.partition): r.untilOffset for r in ranges}

    def succeeded(self, time: Time) -> None:
        """Note that the jobs of a batch have succeeded under this driver. Any thread; does not block."""
        with self._answered:
            self._succeeded.add(time)

    def ended(self, unfinished: Collection[Time]) -> None:
        """Note that batches have ended: all except the unfinished ones. Those of them that have succeeded are completed."""
        with self._answered:
            completed = {time for time in self._succeeded if time not in unfinished}
            self._succeeded -= completed
        self._has_completed = self._has_completed or bool(completed)
        for time in [t for t in self._begins if t not in unfinished]:
            del self._begins[time]

    def send(self, client: DriverClient) -> None:
        """Send one commit a group, with all offsets that are due. Does not wait for the response, and raises no error of the client.

        Only one commit of a group is under way at a time, because the older one of two could arrive last. While one is, nothing is sent. A
        failed commit is logged and reported to the callback, and the next `send` repeats it.
        """
        floor: dict[Partition, int] = {}
        for begins in self._begins.values():
            for partition, at in begins.items():
                floor[partition] = min(at, floor.get(partition, at))
        completed = {p: min(end, floor.get(p, end)) for p, end in self._ends.items()} if self._has_completed else {}
        for commits in self._groups.values():
            with self._answered:
                offsets = commits.take_due(floor, completed, self._clock.monotonic_ms())
                done = partial(self._done, commits, offsets, commits.callback)
            if offsets:
                try:
                    client.commit(commits.group, offsets, done)
                except Exception as e:
                    done(e)

    def finish(self, client: DriverClient, seconds: float) -> None:
        """Send the commits that are due, and wait for the responses. Blocks up to twice `seconds`.

        Args:
            client: the driver's client.
            seconds: the longest wait for the commits under way, and then again for the last ones.
        """
        self._wait(seconds)
        self.send(client)
        self._wait(seconds)

    def _wait(self, seconds: float) -> None:
        """Wait until no commit is under way, or until the time is over."""
        with self._answered:
            self._answered.wait_for(lambda: not any(commits.is_under_way for commits in self._groups.values()), seconds)

    def _done(self, commits: GroupCommits, offsets: dict[Partition, int], callback: CommitCallback | None, error: Exception | None) -> None:
        """Note the response to a commit of these offsets, log what is new, and call the callback. Mostly in a thread of the client."""
        with self._answered:
            is_new = commits.take_answer(offsets, error)
            self._answered.notify_all()
        if error is not None:
            level = logging.WARNING if is_new else logging.DEBUG
            logger.log(level, "group %s: the commit of offsets failed, the next batch repeats it: %s", commits.group, error)
        elif is_new:
            logger.info("group %s: offsets are committed again", commits.group)
        if callback is not None:
            self._call(callback, offsets, error)

    def _call(self, callback: CommitCallback, offsets: dict[Partition, int], error: Exception | None) -> None:
        """Call the user's callback. An error that it raises is logged."""
        try:
            callback({TopicAndPartition(*p): at for p, at in offsets.items()}, error)
        except Exception:
            logger.exception("the callback of commitAsync failed")


class GroupCommits:
    """The commits for one group. Not thread-safe: OffsetCommitter calls all methods under its lock.

    Attributes:
        group: the consumer group.
        is_published: whether the group follows the completed batches.
        callback: the user's callback.
        is_under_way: whether a commit has no response yet.
    """

    def __init__(self, group: str) -> None:
        self.group = group
        self.is_published = False
        self.callback: CommitCallback | None = None
        self.is_under_way = False
        self._wanted: dict[Partition, set[int]] = defaultdict(set)
        self._committed: dict[Partition, int] = {}
        self._renewed_ms: int | None = None
        self._failure: type[Exception] | None = None
        """The class of the error of the last commit; None after a success."""

    def ask(self, ranges: Sequence[OffsetRange], callback: CommitCallback | None) -> None:
        """Note the ends of ranges, except for a published group, and the callback unless it is None."""
        if not self.is_published:
            for r in ranges:
                self._wanted[r.topic, r.partition].add(r.untilOffset)
        if callback is not None:
            self.callback = callback

    def begin_anew(self, partitions: Collection[Partition]) -> None:
        """Forget these partitions. Their topic was created again, or their log was cut: lower offsets than before are due from now on."""
        for partition in partitions:
            self._wanted.pop(partition, None)
            self._committed.pop(partition, None)

    def take_due(self, floor: Mapping[Partition, int], completed: Mapping[Partition, int], now_ms: int) -> dict[Partition, int]:
        """Return the offsets to commit now. If there are any, a commit is under way from now on. While one is, nothing is due.

        Args:
            floor: the offsets that no commit may pass.
            completed: the offsets up to which all batches are completed, for a published group.
            now_ms: the time of a monotonic clock, in ms.
        """
        if self.is_under_way:
            return {}
        due = self._published(completed, now_ms) if self.is_published else self._asked_for(floor)
        self.is_under_way = bool(due)
        return due

    def _published(self, completed: Mapping[Partition, int], now_ms: int) -> dict[Partition, int]:
        """Return the completed offsets that are not committed yet; all of them at first, and again every RENEWAL_MS."""
        if self._renewed_ms is None or now_ms - self._renewed_ms >= RENEWAL_MS:
            self._renewed_ms = now_ms
            self._committed.clear()
        return {p: at for p, at in completed.items() if self._committed.get(p) != at}

    def _asked_for(self, floor: Mapping[Partition, int]) -> dict[Partition, int]:
        """Return, and note as asked no longer, the offsets that the user wants and that pass no floor: the highest of each partition.

        An offset that is not above the last committed one is left out.
        """
        due: dict[Partition, int] = {}
        for p, wanted in self._wanted.items():
            allowed = {at for at in wanted if at <= floor.get(p, at)}
            wanted -= allowed
            if allowed and max(allowed) > self._committed.get(p, -1):
                due[p] = max(allowed)
        return due

    def take_answer(self, offsets: Mapping[Partition, int], error: Exception | None) -> bool:
        """Note the response to the commit under way. `error`: None for a success.

        Returns:
            Whether the log should tell it: a failure unlike the one before, or a success after a failure.
        """
        self.is_under_way = False
        before, self._failure = self._failure, None if error is None else type(error)
        for p, at in offsets.items():
            if error is None:
                self._committed[p] = at
            elif not self.is_published:
                self._wanted[p].add(at)  # repeated with the next batch
        return self._failure is not before


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
