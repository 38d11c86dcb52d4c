"""Cursors: the next offset of every partition a direct stream reads, and how partitions come to it.

One idea: looking is apart from moving. `survey` asks the brokers and changes no cursor; only `advance`, called when a plan is
durable, does. So a plan that could not be stored is as if it had never been: the next one starts at the same offsets. What a look finds
to be different from the last durable plan – new partitions, topics made anew, logs that were cut – lies over it as news, until a plan
that says so is durable.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kstream_kafka.client.ports import DriverClient, LogEnd, Partition, Subscription
from kstream_kafka.errors import KafkaConfigError, PartitionRevokedError, TopicRecreatedError, UnknownTopicError
from kstream_kafka.planning.data_loss import LostRange
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.positions import Positions
from kstream_kafka.source.starting_offsets import EARLIEST, OffsetResolver

logger = logging.getLogger("kstream.kafka")


@dataclass(frozen=True, slots=True)
class Survey:
    """What a plan is made of: next offsets, ends of the logs, and partitions that wait for their log to reach the start given."""

    current: Mapping[Partition, int]
    latest: Mapping[Partition, LogEnd]
    ahead: frozenset[Partition]


@dataclass
class _News:
    """What is known to be otherwise than the last durable plan says."""

    begins: dict[Partition, int] = field(default_factory=dict[Partition, int])
    """New partitions, and known ones that go on somewhere else."""
    gone: set[Partition] = field(default_factory=set[Partition])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    lost: list[LostRange] = field(default_factory=list[LostRange])


class Cursors:
    """Driver only, one thread at a time. `starts` says where partitions begin that are there at the first start.

    Partitions are looked for every `max_age_ms`, unless the subscription names them one by one. One found after the start begins at
    its earliest record, whatever the reset policy says, or what was written to it before it was noticed would be lost; only an
    offset given for just that partition wins over that. A deleted topic is let go, and said to be, where a pattern chose it; where the
    user named it, it is an error.

    A topic's id is looked at where something may have happened: at a restart, with each look for partitions, when a log is shorter than
    what was read of it, and when `suspect` was called. `tolerant`: a loss is noted for the next plan and the stream goes on with
    what there is; else it is raised, each time.
    """

    def __init__(
        self, subscription: Subscription, starts: Positions, resolver: OffsetResolver, max_age_ms: int, monotonic_ms: Callable[[], int],
        tolerant: Callable[[], bool] = lambda: False,
    ) -> None:  # fmt: skip
        self._subscription = subscription
        self._starts = starts
        self._resolver = resolver
        self._max_age_ms = max_age_ms
        self._monotonic_ms = monotonic_ms
        self._tolerant = tolerant
        self._looked_ms: int | None = None
        self._next: dict[Partition, int] = {}
        self._epochs: dict[Partition, int | None] = {}
        self._ids: dict[str, str] = {}
        self._back: set[str] = set()
        """Topics that came back to the list of the stream and are in no plan yet."""
        self._news = _News()
        self._suspicious = False
        self._ahead: frozenset[Partition] = frozenset()
        self.closed = False
        """Whether the partitions read are settled: no more are looked for (a bounded run)."""

    @property
    def offsets(self) -> dict[Partition, int]:
        """The next offset of each partition, as the last durable plan has it."""
        return dict(self._next)

    @property
    def positions(self) -> dict[Partition, int]:
        """The same, with the news: where the next plan's ranges begin."""
        return {p: at for p, at in {**self._next, **self._news.begins}.items() if p not in self._news.gone}

    @property
    def ahead(self) -> frozenset[Partition]:
        """Partitions whose given start lies past the log's end as last seen."""
        return self._ahead

    @property
    def topic_ids(self) -> dict[str, str]:
        """The ids of the topics read, as far as brokers tell them."""
        topics = {topic for topic, _ in self.positions}
        return {topic: number for topic, number in {**self._ids, **self._news.ids}.items() if topic in topics}

    @property
    def lost(self) -> list[LostRange]:
        """Losses found by looks, for the next plan to store."""
        return list(self._news.lost)

    def epoch_of(self, partition: Partition) -> int | None:
        """The leader epoch under which the partition's position was reached; None where it is not known."""
        return None if partition in self._news.begins else self._epochs.get(partition)

    def suspect(self) -> None:
        """Something says that a topic may be another one now: the next survey asks."""
        self._suspicious = True

    def begin(self, client: DriverClient) -> None:
        """First start: every partition gets its cursor. Asks the brokers; raises what the client raises, or KafkaConfigError."""
        known = self._known(client)
        stray = sorted(self._starts.each.keys() - known)
        if stray:
            raise KafkaConfigError("fromOffsets", f"names partitions that this stream does not read or the cluster does not have: {stray}")
        self._ids = client.topic_ids({topic for topic, _ in known})  # before the offsets: those of a newer topic are then refused
        self._next = self._resolver.resolve(client, {p: self._starts.of(p) for p in known})
        self._ahead = self._past_the_end(client, self._next)
        self._looked_ms = self._monotonic_ms()

    def restore(self, plan: KafkaPlan) -> None:
        """Restart: the cursors stand behind the newest stored ranges. Partitions that the stream no longer reads get none."""
        stored = plan.ends
        self._next = {p: at for p, at in stored.items() if self.reads(p)}
        if left := {p: at for p, at in stored.items() if p not in self._next}:
            logger.warning(
                "the stream no longer reads %s; the checkpoint keeps these offsets until the stream reads the partitions again", named(left)
            )
        self._epochs = plan.end_epochs
        self._ids = dict(plan.topic_ids)
        self._ahead = plan.ahead & self._next.keys()
        self._suspicious = True

    def take_back(self, kept: KafkaPlan) -> None:
        """Restart, after `restore`: partitions that had left the list and are read again go on where the stream left them."""
        back = {p: at for p, at in kept.ends.items() if self.reads(p)}
        if not back:
            return
        logger.info("the stream reads %s again, from these kept offsets", named(back))
        topics = {topic for topic, _ in back}
        self._back = topics - {topic for topic, _ in self._next}
        self._next.update(back)
        self._epochs = {**self._epochs, **{p: epoch for p, epoch in kept.end_epochs.items() if p in back}}
        self._ids.update({topic: number for topic, number in kept.topic_ids.items() if topic in self._back})
        self._ahead |= kept.ahead & back.keys()

    def survey(self, client: DriverClient) -> Survey:
        """Looks for new partitions if it is time, and at the end of every log: one question. Moves nothing; may block.

        TopicRecreatedError where that is found and not tolerated. A log that ends before its cursor is left to `plan_ranges`, unless
        it is tolerated. PartitionRevokedError when a topic that is read and was named is gone, whichever question finds out.
        """
        try:
            return self._survey(client)
        except UnknownTopicError as e:
            if gone := [p for p in self.positions if p[0] in e.facts["topics"]]:
                raise PartitionRevokedError(gone) from e
            raise

    def _survey(self, client: DriverClient) -> Survey:
        self._look_for_partitions(client)
        latest = self._latest(client)
        if self._shrunk(latest):
            self._suspicious = True
        if self._suspicious:
            self._check_ids(client)
            latest = self._latest(client)
            for p in self._shrunk(latest) if self._tolerant() else ():
                self._go_back(p, latest[p].offset)
        current = self.positions
        ahead = frozenset(p for p in self._ahead if p in latest and latest[p].offset < current[p])
        return Survey(current, latest, ahead)

    def advance(self, plan: KafkaPlan) -> None:
        """This plan is durable: the next one begins where its ranges end, and needs not say again what it says."""
        self._next = plan.ends
        self._epochs = plan.end_epochs
        self._ids = dict(plan.topic_ids)
        self._ahead = plan.ahead
        self._back = set()
        news = self._news
        begins = {p: at for p, at in news.begins.items() if p not in self._next}
        ids = {topic: number for topic, number in news.ids.items() if any(topic == p[0] for p in begins)}
        self._news = _News(begins, ids=ids, lost=[lost for lost in news.lost if lost not in plan.lost])

    # -- partitions

    def reads(self, partition: Partition) -> bool:
        """Whether the stream was told to read this partition. Asks nobody."""
        return self._subscription.reads(partition)

    @property
    def by_pattern(self) -> bool:
        """Whether a pattern says which topics are read."""
        return not self._subscription.names and not self._subscription.fixed

    def _known(self, client: DriverClient) -> set[Partition]:
        """The partitions this stream reads, as the cluster has them now."""
        known = client.partitions(self._subscription)
        missing = sorted(set(self._subscription.fixed) - known)
        if missing and not self._next:
            raise KafkaConfigError("fromOffsets", f"names partitions the cluster does not have: {missing}")
        return {p for p in known if self.reads(p)}

    def _past_the_end(self, client: DriverClient, begins: Mapping[Partition, int]) -> frozenset[Partition]:
        """Those that begin at an offset given by the user which the log has not reached."""
        given = [p for p in begins if (position := self._starts.of(p)) is not None and position.kind == "offset"]
        latest = client.latest(given) if given else {}
        ahead = frozenset(p for p in given if begins[p] > latest[p].offset)
        for p in sorted(ahead):
            logger.warning("%s-%d starts at offset %d, past its end %d: it waits until the log is so long",
                           *p, begins[p], latest[p].offset)  # fmt: skip
        return ahead

    def _look_for_partitions(self, client: DriverClient) -> None:
        now = self._monotonic_ms()
        fixed = self._subscription.fixed
        if self.closed or (fixed and not set(fixed) - self.positions.keys()):
            return
        if self._looked_ms is not None and now - self._looked_ms < self._max_age_ms:
            return
        known = self._known(client)
        if self.positions.keys() - known:
            self._check_ids(client)  # a topic made anew may have fewer partitions
        if gone := self.positions.keys() - known:
            self._let_go(gone)
        new = known - self.positions.keys()
        if new:
            self._begin_new(client, new)
        self._looked_ms = now
        self._suspicious = True

    def _begin_new(self, client: DriverClient, new: Collection[Partition]) -> None:
        found = self._resolver.resolve(client, {p: self._starts.each.get(p, EARLIEST) for p in new})
        self._news.begins.update(found)
        self._news.gone -= set(new)
        self._ahead |= self._past_the_end(client, {p: at for p, at in found.items() if p in self._starts.each})
        logger.info("new partitions: %s", {f"{t}-{n}": at for (t, n), at in sorted(found.items())})

    def _let_go(self, gone: Collection[Partition]) -> None:
        """Topics were deleted. Chosen by a pattern, they are no longer meant; what was not read of them is lost."""
        if not self.by_pattern:
            raise PartitionRevokedError(gone)
        positions = self.positions
        for topic, number in sorted(gone):
            at = positions[topic, number]
            logger.warning("%s-%d was deleted: the stream lets go of it, at offset %d", topic, number, at)
            self._drop(
                (topic, number), LostRange(topic, number, at, None, "deletion", f"the topic was deleted; offset {at} was next to be read")
            )

    def _drop(self, partition: Partition, lost: LostRange) -> None:
        self._news.begins.pop(partition, None)
        if partition in self._next:
            self._news.gone.add(partition)
        self._news.lost.append(lost)
        self._ahead -= {partition}

    # -- what happened to the logs

    def _latest(self, client: DriverClient) -> dict[Partition, LogEnd]:
        """The ends of all logs. A topic of a pattern that has just been deleted is let go first."""
        try:
            return client.latest(self.positions.keys())
        except UnknownTopicError:
            if not self.by_pattern or self.closed:
                raise
            self._looked_ms = None
            self._look_for_partitions(client)
            return client.latest(self.positions.keys())

    def _shrunk(self, latest: Mapping[Partition, LogEnd]) -> list[Partition]:
        return [p for p, at in self.positions.items() if p in latest and latest[p].offset < at and p not in self._ahead]

    def _check_ids(self, client: DriverClient) -> None:
        """Compares the topics' ids with those of the last plan, or learns them; a topic made anew begins at its earliest records."""
        known = self.topic_ids
        found = client.topic_ids({topic for topic, _ in self.positions})
        for topic, number in found.items():
            planned = known.get(topic, number)
            if planned != number and topic in self._back:
                self._begin_anew(client, topic)
            elif planned != number:
                self._recreated(client, topic, planned, number)
            self._news.ids[topic] = number
        self._suspicious = False

    def _begin_anew(self, client: DriverClient, topic: str) -> None:
        """The topic was made anew while the stream did not read it: its kept offsets mean nothing now."""
        old = {p: at for p, at in self._next.items() if p[0] == topic}
        logger.warning(
            "topic %r was deleted and made anew while the stream did not read it: the kept offsets of the old topic (%s) are "
            "dropped, and all of the new topic is read",
            topic,
            named(old),
        )
        self._next = {p: at for p, at in self._next.items() if p not in old}
        self._epochs = {p: epoch for p, epoch in self._epochs.items() if p not in old}
        self._ahead -= old.keys()
        self._back.discard(topic)
        self._begin_new(client, {p for p in self._known(client) if p[0] == topic})

    def _recreated(self, client: DriverClient, topic: str, planned: str, number: str) -> None:
        old = {p: at for p, at in self.positions.items() if p[0] == topic}
        error = TopicRecreatedError(topic, planned, number, [(n, at, at) for (_, n), at in sorted(old.items())])
        if not self._tolerant():
            raise error
        logger.warning(
            "topic %r was deleted and made anew: its id was %s and is %s now. The stream goes on with the new topic, from its "
            "beginning; what was not read of the old one is lost and goes to the ledger",
            topic,
            planned,
            number,
        )
        new = {p for p in self._known(client) if p[0] == topic}
        begins = {p: end.offset for p, end in client.earliest(new).items()}
        for (_, n), at in old.items():
            self._drop(
                (topic, n), LostRange(topic, n, at, None, error.cause, f"the topic was made anew; offset {at} of the old one was next")
            )
        self._news.gone -= new
        self._news.begins.update(begins)

    def _go_back(self, partition: Partition, end: int) -> None:
        """The log was cut below the next offset: it goes on at the log's end, and what stood there is gone."""
        at = self.positions[partition]
        detail = f"the log ends at {end}, and offset {at} was next to be read: an unclean leader election cut it"
        logger.warning("%s-%d: %s", *partition, detail)
        self._news.lost.append(LostRange(*partition, end, at, "truncation", detail))
        self._news.begins[partition] = end


def named(offsets: Mapping[Partition, int], most: int = 5) -> str:
    """For people: `orders-0 at 10, orders-1 at 12`; past `most`, how many there are in all."""
    shown = [f"{topic}-{number} at {at}" for (topic, number), at in sorted(offsets.items())]
    return ", ".join(shown[:most]) + (f" … ({len(shown)} in all)" if len(shown) > most else "")
