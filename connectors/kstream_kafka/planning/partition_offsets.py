"""PartitionOffsets: the next offset of every partition that a direct stream reads.

`snapshot` asks the brokers and moves no offset. Only `advance` moves offsets, when a plan is durable. So a plan that could not be stored
changes nothing, and the next plan starts at the same offsets. Differences from the last durable plan (new partitions, recreated topics,
logs that were cut) are pending changes until a plan that contains them is durable.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kstream.clock import Clock
from kstream.offsets.offset_range import LostRange, Partition, describe_offsets
from kstream.offsets.positions import Positions
from kstream_kafka.client.ports import DriverClient, LogEnd, Subscription
from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError, TopicRecreatedError, UnknownTopicError
from kstream_kafka.planning.missing_partitions import SECOND_LOOK_MS, MissingPartitions
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.starting_offsets import EARLIEST, OffsetResolver

logger = logging.getLogger("kstream.kafka")


@dataclass(frozen=True, slots=True)
class LogEndSnapshot:
    """The next offsets and the log ends of a stream at one moment, from which a plan is made. Immutable.

    Attributes:
        current: partition → next offset.
        latest: partition → end of its log.
        ahead: partitions whose given start is after the end of their log. They wait with empty ranges.
        missing: partitions that the brokers do not show. They keep their offsets, with empty ranges.
    """

    current: Mapping[Partition, int]
    latest: Mapping[Partition, LogEnd]
    ahead: frozenset[Partition]
    missing: frozenset[Partition] = frozenset()


@dataclass
class _PendingChanges:
    """Differences from the last durable plan.

    Attributes:
        begins: partition → next offset, for new partitions and for partitions that continue at another offset.
        gone: deleted partitions.
        ids: topic → topic id, for topics whose id was checked since the last plan.
        lost: losses that the next plan must store.
    """

    begins: dict[Partition, int] = field(default_factory=dict[Partition, int])
    gone: set[Partition] = field(default_factory=set[Partition])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    lost: list[LostRange] = field(default_factory=list[LostRange])


class PartitionOffsets:
    """The next offsets of a stream. Used only on the driver. Not thread-safe: one thread at a time, except for `recheck_topic_ids`.

    The stream looks for new partitions every `max_age_ms`, unless the subscription names partitions one by one. A partition that is found
    after the start begins at its earliest record, whatever the reset policy is. Otherwise records from before its discovery would be lost.
    Only an offset that the user gave for this partition wins over that rule. If a pattern chose a topic that is deleted, its partitions
    leave the stream with a recorded loss. Until the deletion is certain they are missing partitions, with empty ranges. If the user named
    the topic, its deletion is an error.

    The topic ids are checked when a topic may have been recreated: at a restart, after each look for partitions, when a log is shorter than
    the next offset, and after `recheck_topic_ids`.
    """

    def __init__(
        self,
        subscription: Subscription,
        starting_offsets: Positions,
        resolver: OffsetResolver,
        max_age_ms: int,
        monotonic_ms: Callable[[], int],
        tolerate_loss: bool = False,
    ) -> None:
        """Create the offsets of a stream. Sends no request.

        Args:
            subscription: the topics and partitions of the stream.
            starting_offsets: where the partitions that exist at the first start begin.
            resolver: turns positions into offsets.
            max_age_ms: the time in ms between two looks for new partitions.
            monotonic_ms: a monotonic clock in ms.
            tolerate_loss: whether a loss is recorded for the next plan and the stream continues; otherwise each snapshot raises it.
        """
        self._subscription = subscription
        self._starting_offsets = starting_offsets
        self._resolver = resolver
        self._max_age_ms = max_age_ms
        self._monotonic_ms = monotonic_ms
        self._tolerate_loss = tolerate_loss
        self._looked_ms: int | None = None
        self._next: dict[Partition, int] = {}
        self._epochs: dict[Partition, int | None] = {}
        self._ids: dict[str, str] = {}
        self._returned_topics: set[str] = set()
        """Topics that have come back to the stream and are not yet in a plan."""
        self._pending = _PendingChanges()
        self._must_check_ids = False
        self._missing = MissingPartitions(monotonic_ms)
        self._ahead: frozenset[Partition] = frozenset()
        self.closed = False
        """Whether the set of partitions is final, as in a bounded run. Then the stream looks for no new partitions."""

    @property
    def offsets(self) -> dict[Partition, int]:
        """The next offset of each partition after the last durable plan, without the pending changes. A copy."""
        return dict(self._next)

    @property
    def positions(self) -> dict[Partition, int]:
        """The start of each partition in the next plan: `offsets` with the pending changes. A copy."""
        return {p: at for p, at in {**self._next, **self._pending.begins}.items() if p not in self._pending.gone}

    @property
    def ahead(self) -> frozenset[Partition]:
        """The partitions whose given start was after the end of their log at the last answer."""
        return self._ahead

    @property
    def missing(self) -> frozenset[Partition]:
        """The partitions that the brokers do not show, and of which it is not known whether they were deleted."""
        return self._missing.partitions

    @property
    def topic_ids(self) -> dict[str, str]:
        """The topic id of each topic that is read; empty if the brokers have no ids."""
        topics = {topic for topic, _ in self.positions}
        return {topic: topic_id for topic, topic_id in {**self._ids, **self._pending.ids}.items() if topic in topics}

    @property
    def lost(self) -> list[LostRange]:
        """The losses that the next plan must store. A copy."""
        return list(self._pending.lost)

    def epoch_of(self, partition: Partition) -> int | None:
        """Return the leader epoch under which the partition's position was reached; None if it is unknown."""
        return None if partition in self._pending.begins else self._epochs.get(partition)

    def recheck_topic_ids(self) -> None:
        """Let the next snapshot check the topic ids, because a topic may have been recreated. Any thread; sends no request."""
        self._must_check_ids = True

    def begin(self, client: DriverClient) -> None:
        """Resolve the starting offset of every partition, at a first start. Blocks on the brokers.

        Raises:
            KafkaConfigError: an offset is given for a partition that does not exist or is not read, or a partition has no starting offset.
            UnknownTopicError: a named topic does not exist.
            KafkaError: another error of the client.
        """
        known = self._known(client)
        stray = sorted(self._starting_offsets.each.keys() - known)
        if stray:
            raise KafkaConfigError("fromOffsets", f"names partitions that this stream does not read or the cluster does not have: {stray}")
        self._ids = client.topic_ids({topic for topic, _ in known})  # first, so that the offsets of a newer topic are refused
        self._next = self._resolver.resolve(client, {p: self._starting_offsets.of(p) for p in known})
        self._ahead = self._past_the_end(client, self._next)
        self._looked_ms = self._monotonic_ms()

    def restore(self, plan: KafkaPlan) -> None:
        """Continue after the newest stored plan, at a restart. Sends no request.

        Partitions that the stream no longer reads are left out and logged. The next snapshot checks the topic ids.

        Args:
            plan: the newest stored plan.
        """
        stored = plan.until_offsets
        self._next = {p: at for p, at in stored.items() if self.reads(p)}
        if left := {p: at for p, at in stored.items() if p not in self._next}:
            logger.warning(
                "the stream no longer reads %s; the checkpoint keeps these offsets until the stream reads the partitions again",
                describe_offsets(left),
            )
        self._epochs = plan.until_epochs
        self._ids = dict(plan.topic_ids)
        self._ahead = plan.ahead & self._next.keys()
        self._must_check_ids = True

    def restore_kept(self, kept: KafkaPlan) -> None:
        """Continue at kept offsets, for partitions that had left the stream and are read again. Called after `restore`. Sends no request.

        Args:
            kept: the kept offsets. Partitions that the stream does not read are ignored.
        """
        back = {p: at for p, at in kept.until_offsets.items() if self.reads(p)}
        if not back:
            return
        logger.info("the stream reads %s again, from these kept offsets", describe_offsets(back))
        topics = {topic for topic, _ in back}
        self._returned_topics |= topics - {topic for topic, _ in self._next}
        self._next.update(back)
        self._epochs = {**self._epochs, **{p: epoch for p, epoch in kept.until_epochs.items() if p in back}}
        self._ids.update({topic: topic_id for topic, topic_id in kept.topic_ids.items() if topic in self._returned_topics})
        self._ahead |= kept.ahead & back.keys()

    def snapshot(self, client: DriverClient) -> LogEndSnapshot:
        """Ask for the end of every log, and for new partitions and topic ids if it is time. Moves no offset of `offsets`. Blocks.

        Changes that it finds become pending changes. If losses are tolerated, a log that ends before the next offset is a recorded loss,
        and the stream continues at the log's end. Otherwise the snapshot shows such a log, and `checked_ends` raises the error.

        Returns:
            The next offsets with the pending changes, and the ends of the logs.

        Raises:
            TopicRecreatedError: a topic was recreated, and losses are not tolerated.
            PartitionRevokedError: a partition that the stream reads does not exist any more, and no pattern chose its topic.
            UnknownTopicError: a named topic without partitions in the stream does not exist.
            KafkaError: another error of the client.
        """
        try:
            return self._snapshot(client)
        except UnknownTopicError as e:
            if gone := [p for p in self.positions if p[0] in e.facts["topics"]]:
                raise PartitionRevokedError(gone) from e
            raise

    def whole_snapshot(self, client: DriverClient, clock: Clock) -> LogEndSnapshot:
        """Take a snapshot at a start. If partitions are missing, wait for SECOND_LOOK_MS, take another one, and return that. Blocks.

        The second one asks for missing topics by name, and lacks the deleted ones. A start asks once: without the second look a deleted
        topic would fail each start. Partitions may be missing in the second one, too. Raises as `snapshot`.
        """
        snapshot = self.snapshot(client)
        if not snapshot.missing:
            return snapshot
        due = clock.monotonic_ms() + SECOND_LOOK_MS
        while (left := due - clock.monotonic_ms()) > 0:
            clock.wait(left, threading.Event())
        return self.snapshot(client)

    def _snapshot(self, client: DriverClient) -> LogEndSnapshot:
        """Do what `snapshot` says. Raises UnknownTopicError for every topic that does not exist, also where `snapshot` raises another."""
        self._look_for_partitions(client)
        self._ask_for_missing(client)
        latest = self._latest(client)
        if self._shrunk(latest):
            self._must_check_ids = True
        if self._must_check_ids:
            self._check_ids(client)
            latest = self._latest(client)
            for p in self._shrunk(latest) if self._tolerate_loss else ():
                self._resume_at_log_end(p, latest[p].offset)
        current, missing = self.positions, self._missing.partitions
        ahead = frozenset(p for p in self._ahead if p in latest and (latest[p].offset < current[p] or p in missing))
        return LogEndSnapshot(current, latest, ahead, missing)

    def advance(self, plan: KafkaPlan) -> None:
        """Move to the ends of a durable plan, and drop the pending changes that the plan contains. Sends no request."""
        self._next = plan.until_offsets
        self._epochs = plan.until_epochs
        self._ids = dict(plan.topic_ids)
        self._ahead = plan.ahead
        self._returned_topics = set()
        pending = self._pending
        begins = {p: at for p, at in pending.begins.items() if p not in self._next}
        topics = {topic for topic, _ in begins}
        ids = {topic: topic_id for topic, topic_id in pending.ids.items() if topic in topics}
        self._pending = _PendingChanges(begins, ids=ids, lost=[lost for lost in pending.lost if lost not in plan.lost])

    # -- partitions

    def reads(self, partition: Partition) -> bool:
        """Return whether the stream reads this partition. Sends no request."""
        return self._subscription.reads(partition)

    @property
    def by_pattern(self) -> bool:
        """Whether a pattern chooses the topics."""
        return not self._subscription.names and not self._subscription.fixed

    def _known(self, client: DriverClient) -> set[Partition]:
        """Return the partitions of this stream that the cluster has now. Blocks.

        Before the first start, KafkaConfigError if a partition that the user named does not exist.
        """
        known = client.partitions(self._subscription)
        missing = sorted(set(self._subscription.fixed) - known)
        if missing and not self._next:
            raise KafkaConfigError("fromOffsets", f"names partitions the cluster does not have: {missing}")
        return {p for p in known if self.reads(p)}

    def _past_the_end(self, client: DriverClient, begins: Mapping[Partition, int]) -> frozenset[Partition]:
        """Return, and log, the partitions whose start is an offset given by the user and after the end of their log. May block."""
        given = [p for p in begins if (position := self._starting_offsets.of(p)) is not None and position.kind == "offset"]
        latest = client.latest(given) if given else {}
        ahead = frozenset(p for p in given if begins[p] > latest[p].offset)
        for topic, number in sorted(ahead):
            begin, end = begins[topic, number], latest[topic, number].offset
            logger.warning("%s-%d starts at offset %d, past its end %d: it waits until the log is so long", topic, number, begin, end)
        return ahead

    def _look_for_partitions(self, client: DriverClient) -> None:
        """Ask for the partitions of the cluster, at most every `max_age_ms`, and have the topic ids checked after it. Blocks if it asks.

        It never asks when the set of partitions is `closed`, or when the user named each partition. Partitions that the answer lacks are
        missing, or raise PartitionRevokedError if the user named their topic. New partitions begin at the user's offset for them, else at
        their earliest record. After an error the next snapshot asks again.
        """
        now = self._monotonic_ms()
        fixed = self._subscription.fixed
        if self.closed or (fixed and not set(fixed) - self.positions.keys()):
            return
        if self._looked_ms is not None and now - self._looked_ms < self._max_age_ms:
            return
        known = self._known(client)
        if self.positions.keys() - known:
            self._check_ids(client)  # a recreated topic may have fewer partitions
        self._missing.shown(known)
        if lacking := self.positions.keys() - known:
            if not self.by_pattern:
                raise PartitionRevokedError(lacking)
            self._missing.lacking({p: at for p, at in self.positions.items() if p in lacking})
        self._take_back(known)
        new = known - self.positions.keys()
        if new:
            self._begin_new(client, new)
        self._looked_ms = now
        self._must_check_ids = True

    def _ask_for_missing(self, client: DriverClient) -> None:
        """Ask for the topics of missing partitions by name, if it is time. Blocks if it asks.

        Deleted partitions leave. If one is there again, the topic ids are checked next.
        """
        deleted, is_any_back = self._missing.ask(client, self.topic_ids)
        if is_any_back:
            self._must_check_ids = True
        self._remove(deleted)

    def _take_back(self, known: Collection[Partition]) -> None:
        """Continue partitions that had left as deleted, and that the brokers show again, at the offsets that they had.

        The next check of the topic ids finds out whether they are of a new topic, which then begins at its earliest records.
        """
        kept = self._missing.take_back(known)
        if kept is None:
            return
        back = kept.until_offsets.keys()
        self._pending.gone -= back
        self._pending.lost = [e for e in self._pending.lost if e.cause != "deletion" or (e.topic, e.partition) not in back]
        self.restore_kept(kept)

    def _begin_new(self, client: DriverClient, new: Collection[Partition]) -> None:
        """Add new partitions to the pending changes, at the user's offset for them, else at their earliest record. Blocks."""
        found = self._resolver.resolve(client, {p: self._starting_offsets.each.get(p, EARLIEST) for p in new})
        self._pending.begins.update(found)
        self._pending.gone -= set(new)
        self._ahead |= self._past_the_end(client, {p: at for p, at in found.items() if p in self._starting_offsets.each})
        logger.info("new partitions: %s", {f"{t}-{n}": at for (t, n), at in sorted(found.items())})

    def _remove(self, deleted: Collection[Partition]) -> None:
        """Remove the partitions of deleted topics of a pattern, with a recorded loss. Their offsets are kept for as long as the driver."""
        positions, ids = self.positions, self.topic_ids
        for topic, number in sorted(deleted):
            at = positions[topic, number]
            logger.warning("%s-%d was deleted: it leaves the stream at offset %d, and its unread records are lost", topic, number, at)
            self._missing.leave((topic, number), at, self.epoch_of((topic, number)), ids.get(topic))
            detail = f"the topic was deleted; offset {at} was next to be read"
            self._drop((topic, number), LostRange(topic, number, at, None, "deletion", detail))

    def _drop(self, partition: Partition, lost: LostRange) -> None:
        """Remove a partition by a pending change, and record its loss for the next plan."""
        self._pending.begins.pop(partition, None)
        if partition in self._next:
            self._pending.gone.add(partition)
        self._pending.lost.append(lost)
        self._ahead -= {partition}

    # -- changes of the logs

    def _latest(self, client: DriverClient) -> dict[Partition, LogEnd]:
        """Return the ends of all logs. Blocks. A missing partition ends at its next offset. Unknown topics of a pattern become missing."""
        while True:
            positions, missing = self.positions, self._missing.partitions
            try:
                found = client.latest(positions.keys() - missing)
            except UnknownTopicError as e:
                unknown = {p: at for p, at in positions.items() if p not in missing and p[0] in e.facts["topics"]}
                if not self.by_pattern or self.closed or not unknown:
                    raise
                self._missing.lacking(unknown)
            else:
                return {**found, **{p: LogEnd(positions[p]) for p in missing}}

    def _shrunk(self, latest: Mapping[Partition, LogEnd]) -> list[Partition]:
        """Return the partitions whose log ends before their next offset, except those of `ahead`."""
        return [p for p, at in self.positions.items() if p in latest and latest[p].offset < at and p not in self._ahead]

    def _check_ids(self, client: DriverClient) -> None:
        """Compare the topic ids with the known ones, and add them to the pending changes. Blocks.

        A recreated topic raises TopicRecreatedError. If losses are tolerated, or if the topic was recreated while the stream did not read
        it, the new topic is read from its earliest records. After an error the next snapshot checks again.
        """
        self._must_check_ids = False  # before the check: another thread may ask for one more meanwhile
        try:
            self._compare_ids(client)
        except BaseException:
            self._must_check_ids = True
            raise

    def _compare_ids(self, client: DriverClient) -> None:
        """Ask for the topic ids and act on each that changed. Blocks."""
        known = self.topic_ids
        found = client.topic_ids({topic for topic, _ in self.positions})
        for topic, topic_id in found.items():
            planned_id = known.get(topic, topic_id)
            if planned_id != topic_id and topic in self._returned_topics:
                self._restart_recreated(client, topic)
            elif planned_id != topic_id:
                self._on_recreated(client, topic, planned_id, topic_id)
            self._pending.ids[topic] = topic_id

    def _restart_recreated(self, client: DriverClient, topic: str) -> None:
        """Drop the kept offsets of a topic that was recreated while the stream did not read it, and begin with the new topic. Blocks."""
        old = {p: at for p, at in self._next.items() if p[0] == topic}
        logger.warning(
            "topic %r was deleted and created again while the stream did not read it: the kept offsets of the old topic (%s) are "
            "dropped, and all of the new topic is read",
            topic,
            describe_offsets(old),
        )
        self._next = {p: at for p, at in self._next.items() if p not in old}
        self._epochs = {p: epoch for p, epoch in self._epochs.items() if p not in old}
        self._ahead -= old.keys()
        self._missing.forget(topic)
        self._returned_topics.discard(topic)
        self._begin_new(client, {p for p in self._known(client) if p[0] == topic})

    def _on_recreated(self, client: DriverClient, topic: str, planned_id: str, topic_id: str) -> None:
        """Raise TopicRecreatedError, or record the loss of the old topic's unread records and begin with the new topic. Blocks then.

        Args:
            client: the driver's client.
            topic: the topic.
            planned_id: its known topic id.
            topic_id: its topic id now.
        """
        old = {p: at for p, at in self.positions.items() if p[0] == topic}
        error = TopicRecreatedError(topic, planned_id, topic_id, [(n, at, at) for (_, n), at in sorted(old.items())])
        if not self._tolerate_loss:
            raise error
        logger.warning(
            "topic %r was deleted and created again: its id was %s and is %s now. The stream continues with the new topic, from its "
            "beginning; the unread records of the old one are lost, and the loss is in the ledger",
            topic,
            planned_id,
            topic_id,
        )
        self._missing.forget(topic)
        new = {p for p in self._known(client) if p[0] == topic}
        begins = {p: end.offset for p, end in client.earliest(new).items()}
        for (_, number), at in old.items():
            detail = f"the topic was created again; offset {at} of the old one was next"
            self._drop((topic, number), LostRange(topic, number, at, None, error.cause, detail))
        self._pending.gone -= new
        self._pending.begins.update(begins)

    def _resume_at_log_end(self, partition: Partition, end: int) -> None:
        """Continue at the end of a log that was cut below the next offset, and record the loss, by pending changes."""
        topic, number = partition
        at = self.positions[partition]
        detail = f"the log ends at {end}, and offset {at} was next to be read: an unclean leader election cut it"
        logger.warning("%s-%d: %s", topic, number, detail)
        self._pending.lost.append(LostRange(topic, number, end, at, "truncation", detail))
        self._pending.begins[partition] = end
