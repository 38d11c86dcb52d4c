"""MicroBatches: the plans of a stream's micro-batches, as the planner process of a query makes them. Needs no Spark.

Spark keeps the offsets of a query in its checkpoint, as `{"topic":{"0":12}}`, and calls, from one thread: `begin` at the first start;
`seen` at a restart; then for each trigger `latest`, and `plan` if the answer differs from the offsets before.

Spark does not store where a query began. If its first batch fails, the restart asks for the beginning again, and `latest` is a later offset
by then: the records between would be lost in silence. So the first batch of a query is empty, unless its start is given in offsets. Its end
is the start, and Spark stores that.

Spark 4.0 and 4.1 ask for the first batch before they ask for the beginning, and under AvailableNow for nothing later. An empty batch would
be all of the query there. So there only partitions that begin at `latest`, which have nothing to read, are held until the second batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeAlias, TypeVar

from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.offsets.offset_range import LostRange, OffsetRange, Partition
from kstream.offsets.positions import Positions
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.errors import LogShrankError, UnknownTopicError
from kstream_kafka.planning.plan import KafkaPlan
from kstream_kafka.planning.planner import KafkaPlanner
from kstream_kafka.structured.bounds import MakeClient, driver_client, partitions_of, patiently, resolved
from kstream_kafka.structured.losses import QueryLosses, log_lost, removed
from kstream_kafka.structured.options import Bound, SourceOptions
from kstream_kafka.structured.record_lengths import RecordLengths
from kstream_kafka.structured.trigger_limits import TriggerLimits

Answer = TypeVar("Answer")
Offsets: TypeAlias = dict[Partition, int]
"""partition → next offset to read"""


class MicroBatches:
    """The plans of a query. Lives as long as its planner process. Not thread-safe: one thread at a time.

    Every method but `close` may block on the brokers. An outage is waited out, see `patiently`. Any error ends the query.

    Attributes:
        log_ends: the end of each log at the last answer; None before one.
    """

    def __init__(
        self,
        options: SourceOptions,
        make_client: MakeClient = driver_client,
        clock: Clock | None = None,
        lengths: RecordLengths | None = None,
    ) -> None:
        """Note the options. Sends no request.

        Args:
            options: the options of a stream, after `of_stream`.
            make_client: creates the client, for tests.
            clock: the clock, for tests; None for the system's.
            lengths: tells how long records are, for tests.
        """
        assert options.starts is not None
        self._options = options
        self._bound = options.starts
        self._make_client = make_client
        self._clock = clock or SystemClock()
        self._client: DriverClient | None = None
        self._lengths = lengths or RecordLengths(options.params)
        self._limits = TriggerLimits(options, self._clock, self._lengths.mean)
        self._losses = QueryLosses(options.checkpoint, self._clock)
        self._begun: Offsets | None = None
        """Where the query began, once Spark has asked for it."""
        self._seen: Offsets | None = None
        """The newest offsets of the checkpoint, at a restart."""
        self._must_store_start = not self._is_given_in_offsets
        self._planner: KafkaPlanner | None = None
        self._at: Offsets = {}
        """Where the next plan of `_planner` begins. New partitions that were found later are not in it."""
        self._batches = 0
        self._plan: KafkaPlan | None = None
        """The newest plan, until the next batch begins where it ends."""
        self._is_used = False
        """Whether Spark has asked for `_plan`, so that it is in the checkpoint."""
        self.log_ends: Mapping[Partition, int] | None = None

    # -- where the query is

    def begin(self) -> Offsets:
        """Return where the query begins. Spark asks for it at a first start, and again after a first batch that has failed.

        The answer is the same each time. After a restart, partitions that began at `latest` begin where the stored first batch says.

        Raises:
            SourceOptionError: the starting offsets do not fit the partitions.
            KafkaError: an error of the client.
        """
        if self._begun is None:
            begun = self._asked(self._starting_offsets)
            stored = {p: at for p, at in (self._seen or {}).items() if p in begun and self._kind_of(p) == "latest"}
            self._begun = {**begun, **stored}
            self._move_to(self._begun)
        return dict(self._begun)

    def seen(self, offsets: Offsets) -> None:
        """Note the newest offsets of the checkpoint, at a restart. Before Spark 4.2 nothing else tells where the query is."""
        if self._seen is None and self._begun is None:
            self._seen, self._must_store_start = offsets, False
        self._move_to(offsets)

    def prepare_available_now(self) -> None:
        """Note the ends of the logs of now: the query ends there."""
        self._limits.target = self._asked(self._ends_now)

    # -- planning

    def latest(self, start: Offsets | None, is_once: bool = False) -> Offsets:
        """Plan the next batch, and return where it ends: `start` if there is nothing to read, or it is not yet time.

        The first batch of a query may end at `start`, too, without a question to the brokers: it only stores where the query begins.

        Args:
            start: where the batch begins. None before Spark 4.2: where the last one ended, or where the query begins.
            is_once: whether the query has one batch only. Then no limit counts.

        Raises:
            PartitionRevokedError: a partition does not exist any more, and no pattern chose its topic.
            LogShrankError: a log ends before the next offset, and data loss fails the query.
            TopicRecreatedError: a topic was recreated, and data loss fails the query.
            KafkaError: another error of the client.
        """
        is_told = start is not None
        if start is None:
            start = self._plan.until_offsets if self._plan is not None else self._at if self._planner is not None else self.begin()
        planner = self._move_to(start)
        self._limits.is_once = is_once
        self._limits.held = self._held(start, only_latest=is_once or not is_told)
        if self._limits.held and self._limits.held == start.keys():
            return start
        self._plan, self._is_used = self._asked(lambda _: self._planned(planner)), False
        return self._plan.until_offsets

    def plan(self, start: Offsets, end: Offsets) -> KafkaPlan:
        """Return the plan of a batch: that of `latest`, or one of the same offsets for a batch of an earlier process.

        A batch of an earlier process has no leader epochs, and the topic ids of now: Spark stores none. If data loss does not fail the
        query, the losses of the batch are written into the ledger of the query: the batch is in the checkpoint now.

        Args:
            start: where the batch begins.
            end: where it ends.

        Raises:
            LogShrankError: the batch ends before it begins, and data loss fails the query.
            KafkaError: an error of the client.
            StorageError: the ledger cannot be written.
        """
        if self._plan is None or self._plan.until_offsets != end:
            self._plan = self._asked(lambda client: self._planned_before(client, start, end))
        self._is_used = True
        if not self._options.fail_on_data_loss:
            self._losses.note(start, end, [*self._plan.lost, *self._removed(self._plan)])
        return self._plan

    def close(self) -> None:
        """Close the clients."""
        self._lengths.close()
        if self._client is not None:
            self._client.close()
            self._client = None

    # -- inside

    def _asked(self, request: Callable[[DriverClient], Answer]) -> Answer:
        """Return the answer to a request that is made with the client, which the first one creates. Waits for brokers, see `patiently`."""

        def ask() -> Answer:
            if self._client is None:
                self._client = self._make_client(self._options)
            return request(self._client)

        return patiently(ask, self._clock)

    def _starting_offsets(self, client: DriverClient) -> Offsets:
        """Return the starting offsets as of now. If the first batch is stored, only of its partitions: others have come since."""
        known, bound = partitions_of(client, self._options.topics), self._bound
        if self._seen is not None:
            known &= self._seen.keys()
            each = {p: at for p, at in bound.positions.each.items() if p in known}
            bound = Bound(bound.option, Positions(bound.positions.default, each))
        return resolved(client, bound, known, self._clock.time_ms, self._options.late_start)

    def _ends_now(self, client: DriverClient) -> Offsets:
        """Return the ends of the logs of now."""
        return {p: end.offset for p, end in client.latest(partitions_of(client, self._options.topics)).items()}

    @property
    def _is_given_in_offsets(self) -> bool:
        """Whether the start of each partition is an offset, so that it is the same at each restart."""
        positions = self._bound.positions
        return positions.default is None and all(at.kind == "offset" for at in positions.each.values())

    def _kind_of(self, partition: Partition) -> str | None:
        """Return the kind of a partition's start; None if it has none."""
        position = self._bound.positions.of(partition)
        return None if position is None else position.kind

    def _move_to(self, start: Offsets) -> KafkaPlanner:
        """Move the planner to the begin of a batch, and return it.

        If the newest plan ends there and Spark has asked for it, the planner goes on behind it. If the planner stands elsewhere, a new one
        takes its place, as after a restart. A plan that was not used stays open, though it ends where the batch begins: a topic was made
        anew and has as many records as before.
        """
        plan, planner = self._plan, self._planner
        if planner is not None and plan is not None and plan.until_offsets == start:
            if self._is_used or not plan.num_records:
                planner.planned(Time(self._batches), plan)
                self._at, self._plan = start, None
        elif planner is None or self._at != start:
            self._planner = planner = self._new_planner()
            planner.restore(KafkaPlan.without_epochs([OffsetRange(*p, at, at) for p, at in sorted(start.items())]))
            self._asked(planner.begin)
            self._at, self._plan = start, None
        return planner

    def _new_planner(self) -> KafkaPlanner:
        """Return a planner of this query, which stands nowhere yet."""
        options = self._options
        tolerate_loss = not options.fail_on_data_loss
        return KafkaPlanner(
            options.topics, options.params, self._bound.positions, Positions(), self._limits, self._clock, tolerate_loss=tolerate_loss
        )

    def _planned(self, planner: KafkaPlanner) -> KafkaPlan:
        """Plan the next batch, and note the ends of the logs. Return the plan."""
        self._batches += 1
        plan = planner.plan(Time(self._batches), ())
        self.log_ends = planner.log_ends(Time(self._batches))
        return plan

    def _removed(self, plan: KafkaPlan) -> list[LostRange]:
        """Return the records of a plan that retention has removed, and log a warning for each range. One request, if there are records."""
        full = [r for r in plan.ranges if r.count()]
        if not full:
            return []
        try:
            begins = self._asked(lambda client: client.earliest({(r.topic, r.partition) for r in full}))
        except UnknownTopicError:  # it was deleted meanwhile, and the tasks say so
            return []
        lost = removed(full, {p: begin.offset for p, begin in begins.items()})
        log_lost(lost)
        return lost

    def _held(self, start: Offsets, only_latest: bool) -> set[Partition]:
        """Return the partitions of which this batch reads nothing, because it is the first, and stores where the query begins.

        It returns them once: of every later batch, and of the first one of a query whose start is given in offsets, no partition is held.

        Args:
            start: where the batch begins.
            only_latest: hold only those that begin at `latest`, because this batch may be the only one.
        """
        if not self._must_store_start or start != self._begun:
            return set()
        self._must_store_start = False
        return {p for p in start if not only_latest or self._kind_of(p) == "latest"}

    def _planned_before(self, client: DriverClient, start: Offsets, end: Offsets) -> KafkaPlan:
        """Return the plan of a batch of an earlier process. A partition without a begin was new, and is read from its first record."""
        unlike = [p for p, at in end.items() if p not in start or at < start[p]]
        earliest = {p: log.offset for p, log in client.earliest(unlike).items()} if unlike else {}
        begins = {p: start.get(p, earliest.get(p, at)) for p, at in end.items()}
        shrunk = sorted((*p, at, end[p]) for p, at in begins.items() if end[p] < at and p in start)
        lost: list[LostRange] = []
        if shrunk and start != self._begun:
            if self._options.fail_on_data_loss:
                raise LogShrankError(shrunk)
            begins.update({(topic, number): earliest[topic, number] for topic, number, _, _ in shrunk})
            lost = [LostRange(topic, number, until, at, "truncation", _shrunk_text(at, until)) for topic, number, at, until in shrunk]
            log_lost(lost)
        # In a first batch, shrunk partitions began where it ends, and would begin later today: there is nothing to read.
        ranges = [OffsetRange(*p, min(begins[p], end[p]), end[p]) for p in sorted(end)]
        return replace(KafkaPlan.without_epochs(ranges, client.topic_ids({topic for topic, _ in end})), lost=lost)


def _shrunk_text(at: int, until: int) -> str:
    """Return what has become of a partition whose batch ends before it begins, in words."""
    return f"the batch ends at {until}, and offset {at} was next to be read: the log was cut, or the topic was made anew"
