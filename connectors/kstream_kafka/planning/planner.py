"""KafkaPlanner: which offsets of Kafka each batch reads. And the rate limits of a user for each partition.

The planner knows neither Spark nor settings. It asks the brokers by a DriverClient, and its plans are KafkaPlans.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence

from kstream.batch_time import Time
from kstream.clock import Clock
from kstream.offsets.admission_control import AdmissionControl
from kstream.offsets.offset_range import OffsetRange, Partition, TopicAndPartition, describe_offsets
from kstream.offsets.positions import Positions
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient, LogEnd
from kstream_kafka.errors import LogShrankError, PartitionRevokedError
from kstream_kafka.planning.downtime import Downtime
from kstream_kafka.planning.packing import Packing
from kstream_kafka.planning.partition_offsets import LogEndSnapshot, PartitionOffsets
from kstream_kafka.planning.plan import KafkaPlan, left_behind, offsets_of_another_stream
from kstream_kafka.planning.starting_offsets import OffsetResolver
from kstream_kafka.planning.stopping_offsets import StoppingOffsets
from kstream_kafka.planning.subscription import Subscribed

logger = logging.getLogger("kstream.kafka")


class KafkaPlanner:
    """Plans the batches of one stream: each is one offset range of every partition. A `Planner` of `kstream.direct`.

    The order of calls: at a restart `restore` and `restored_kept`; then `begin`; then for each batch `plan`, and `planned` once the plan is
    durable. A plan that could not be stored is dropped, and the next one begins at the same offsets. No request is sent before `begin`.

    One thread at a time calls the methods. Only `recheck_topic_ids`, and the `admission` that others measure for, may be called by
    another thread meanwhile.

    Example:
        planner = KafkaPlanner(Topics(("orders",)), params, starts, NO_POSITIONS, admission, SystemClock())
        planner.begin(client)
        plan = planner.plan(time, open_batches=[])
        store(plan.encode())
        planner.planned(time, plan)
    """

    def __init__(
        self,
        subscription: Subscribed,
        params: KafkaParams,
        starting_offsets: Positions,
        stopping_offsets: Positions,
        admission: AdmissionControl,
        clock: Clock,
        *,
        by_timestamp: bool = False,
        tolerate_loss: bool = False,
    ) -> None:
        """Create a planner. Sends no request.

        Args:
            subscription: the topics and partitions that are read.
            params: the Kafka parameters; of these `auto.offset.reset`, `group.id` and `metadata.max.age.ms` count.
            starting_offsets: where the partitions that exist at the first start begin.
            stopping_offsets: where a bounded run ends; no position for a run without bounds.
            admission: the limits of a batch.
            clock: the clock.
            by_timestamp: whether each missed batch gets the records of its time; otherwise the first batch takes all of them.
            tolerate_loss: whether a loss is recorded in the next plan; otherwise planning raises it.
        """
        resolver = OffsetResolver(params.reset, params.group, clock.time_ms)
        self.admission = admission
        """The limits of a batch. What batches have cost, and the rate of back-pressure, are told to it."""
        self._subscription = subscription
        self._by_timestamp = by_timestamp
        self._clock = clock
        self._offsets = PartitionOffsets(
            subscription, starting_offsets, resolver, params.metadata_max_age_ms, clock.monotonic_ms, tolerate_loss
        )
        self._stopping_offsets = StoppingOffsets(stopping_offsets, resolver)
        self._client: DriverClient | None = None
        self._packing: Packing | None = None
        self._is_restored = False
        self._downtime: Downtime | None = None
        self._latest: tuple[Time, Mapping[Partition, int]] | None = None
        """The batch that was planned last, with the ends of the logs then."""

    # -- a restart; no request is sent

    def reads_nothing_of(self, plan: KafkaPlan, kept: KafkaPlan | None) -> str:
        """Return why a stored plan seems to be another stream's: a text if none of its partitions is read, else an empty text.

        For a pattern the text is always empty, because its topics may all be others by now.

        Args:
            plan: the newest stored plan.
            kept: the offsets kept before it, if there are any.
        """
        if self._offsets.by_pattern:
            return ""
        stored = offsets_of_another_stream(plan, kept, self._offsets.reads)
        if not stored:
            return ""
        return f"reads none of the partitions that it has offsets of; stored are {describe_offsets(stored)}, it reads {self._subscription}"

    def left_behind(self, plan: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan | None:
        """Return the offsets that must be kept, because later plans will lack them; see `plan.left_behind`."""
        return left_behind(plan, kept, self._offsets.reads)

    def restore(self, plan: KafkaPlan) -> None:
        """Continue after the newest stored plan."""
        self._offsets.restore(plan)
        self._stopping_offsets.restore(plan.stopping_offsets, self._offsets.offsets)
        self._is_restored = True

    def restored_kept(self, kept: KafkaPlan) -> None:
        """Read partitions that are subscribed to again, from their kept offsets. Called after `restore`.

        A bounded run that is not over reads neither returned nor new partitions. The next run reads them.
        """
        if not self._stopping_offsets.known or self.exhausted:
            self._offsets.restore_kept(kept)
        else:
            logger.info("the stream is in a bounded run: the next run reads the partitions that were added to the list")

    # -- life

    def begin(self, client: DriverClient, packing: Packing | None = None) -> None:
        """Resolve the offsets: at a first start the starting offsets, and stopping offsets if possible. Blocks on the brokers.

        If the stored run has reached its stopping offsets, this run looks for new partitions and resolves its own stopping offsets.

        Args:
            client: the driver's client, for all requests of the planner. It stays the caller's, who closes it.
            packing: how each try of a batch must divide its records, for the plans; None if tries may differ.

        Raises:
            KafkaConfigError: a starting or stopping offset cannot be resolved.
            UnknownTopicError: a named topic does not exist.
            BrokerUnreachableError: no broker answered.
            KafkaError: another error of the client.
        """
        self._client, self._packing = client, packing
        if not self._is_restored:
            self._offsets.begin(client)
        elif self.exhausted:
            self._stopping_offsets.reset()
            self._offsets.whole_snapshot(client, self._clock)  # this run also reads partitions that were created since the last one
        self._resolve_stopping_offsets(client, self._offsets.positions)

    def _resolve_stopping_offsets(self, client: DriverClient, partitions: Mapping[Partition, int]) -> None:
        """Resolve the stopping offsets if possible. As soon as they are known, the planner looks for no more partitions."""
        self._stopping_offsets.resolve(client, partitions, self._clock.time_ms(), self._offsets.missing)
        self._offsets.closed = self._stopping_offsets.known

    @property
    def exhausted(self) -> bool:
        """Whether a bounded run has planned every partition up to its stopping offset."""
        return self._stopping_offsets.reached(self._offsets.offsets)

    @property
    def positions(self) -> Mapping[Partition, int]:
        """The offset of each partition at which the next plan begins."""
        return self._offsets.positions

    def starting_point(self) -> KafkaPlan:
        """Return a plan of empty ranges at the starting offsets, as if a batch had ended there. Sends no request."""
        ranges = [OffsetRange(*p, at, at) for p, at in sorted(self._offsets.offsets.items())]
        return self._plan_of(ranges, [None] * len(ranges), self._offsets.ahead)

    # -- planning

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Prepare to plan missed batches. Under by-timestamp, ask the brokers where the logs ended at each of the times, and block.

        Args:
            times: the missed batch times, rising.

        Returns:
            None under catch-up. Under by-timestamp the times that must be planned: those with records, or all if rates limit the batches.

        Raises:
            KafkaError: the errors of `plan`.
        """
        if not self._by_timestamp:
            return None
        client = self._connected()
        snapshot = self._offsets.whole_snapshot(client, self._clock)
        self._downtime = Downtime.query(client, snapshot, times, self._clock.time_ms(), self.admission.interval)
        return times if self.admission.caps_rates else self._downtime.busy

    def plan(self, time: Time, open_batches: Collection[Time]) -> KafkaPlan:
        """Plan a batch: each range ends at the end of its log, or earlier by rate limits and stopping offsets.

        Under by-timestamp, a missed batch ends where the logs ended at its time. Blocks on the brokers. Moves no offset: that is the task
        of `planned`. After an error the batch is not planned.

        Args:
            time: the batch time.
            open_batches: the batches that run, or wait for an earlier one.

        Returns:
            The plan.

        Raises:
            PartitionRevokedError: a partition does not exist any more, and no pattern chose its topic.
            TopicNotAvailableError: the brokers do not show a topic, and are to be asked about all of its records.
            LogShrankError: a log ends before the next offset, and losses are not tolerated.
            TopicRecreatedError: a topic was recreated, and losses are not tolerated.
            KafkaError: another error of the client.
            RuntimeError: before `begin`.
        """
        client = self._connected()
        snapshot = self._snapshot(client, time)
        self._resolve_stopping_offsets(client, snapshot.current)
        snapshot = self._stopping_offsets.limit(snapshot)
        current, ends = snapshot.current, checked_ends(snapshot.current, _offsets_of(snapshot.latest), snapshot.ahead)
        if self._downtime is None:
            until = self.admission.admit(time, current, ends, open_batches)
        else:
            until = self.admission.admit_missed(time, current, ends)
        ranges = [OffsetRange(*p, current[p], until[p]) for p in sorted(current)]
        epochs = [snapshot.latest[r.topic, r.partition].leader_epoch for r in ranges]
        return self._plan_of(ranges, epochs, snapshot.ahead)

    def _snapshot(self, client: DriverClient, time: Time) -> LogEndSnapshot:
        """Return the log ends for a batch: of its own time if it was missed or is late because of that, else of now. Blocks on the brokers.

        A missed batch costs no request. With the first batch on time the downtime is over.
        """
        downtime = self._downtime
        if downtime is not None and downtime.covers(time):
            self._latest = (time, _offsets_of(downtime.latest))
            return downtime.snapshot(time, self._offsets.positions, self._offsets.ahead, self._clock.time_ms())
        snapshot = self._offsets.snapshot(client)
        self._latest = (time, _offsets_of(snapshot.latest))
        late = None if downtime is None else downtime.still_late(client, snapshot, time, self._clock.time_ms())
        if late is not None:
            return late
        self._downtime = None
        return snapshot

    def planned(self, time: Time, plan: KafkaPlan) -> None:
        """Move the offsets to the ends of a plan that is durable now, and tell `admission`, except of missed batches. Sends no request."""
        self._offsets.advance(plan)
        ends = self.log_ends(time)
        if ends is not None and self._downtime is None:
            self.admission.planned(time, plan.ranges, ends)

    def log_ends(self, time: Time) -> Mapping[Partition, int] | None:
        """Return the ends of the logs when a batch was planned; None unless that batch was planned last."""
        latest = self._latest
        return latest[1] if latest is not None and latest[0] == time else None

    @property
    def pinned(self) -> Mapping[Partition, int]:
        """partition → offset of its first record from the future, while missed batches are planned by timestamp; see `downtime.py`."""
        return {} if self._downtime is None else self._downtime.pinned

    def recheck_topic_ids(self) -> None:
        """Let the next plan check the topic ids, because a topic may have been recreated. Any thread; sends no request."""
        self._offsets.recheck_topic_ids()

    def _plan_of(self, ranges: list[OffsetRange], epochs: list[int | None], ahead: frozenset[Partition]) -> KafkaPlan:
        """Return a plan of these ranges, with all that a plan stores besides: epochs, topic ids, stopping offsets, losses found so far.

        Args:
            ranges: the ranges.
            epochs: for each range, the leader epoch in the answer about the log's end; None if it is unknown.
            ahead: partitions whose given start is past the log's end.
        """
        offsets = self._offsets
        begun = [offsets.epoch_of((r.topic, r.partition)) for r in ranges]
        stops = self._stopping_offsets.offsets
        return KafkaPlan(ranges, epochs, begun, offsets.topic_ids, ahead, stops, offsets.lost, packing=self._packing)

    def _connected(self) -> DriverClient:
        """Return the client. RuntimeError before `begin`."""
        if self._client is None:
            raise RuntimeError("plan before start")
        return self._client


def checked_ends(
    current: Mapping[Partition, int], latest: Mapping[Partition, int], ahead: Collection[Partition] = ()
) -> dict[Partition, int]:
    """Return the log end of each partition that a batch reads; none is before the next offset.

    Args:
        current: the next offset of each partition, new partitions included.
        latest: the end of each partition's log.
        ahead: partitions whose start, given by the user, is after the end of their log. Their start counts as the end.

    Raises:
        LogShrankError: the log of a partition that is not in `ahead` ends before the next offset.
        PartitionRevokedError: `latest` has no end for a partition.
    """
    gone = current.keys() - latest.keys()
    if gone:
        raise PartitionRevokedError(gone)
    log_ends = {p: max(latest[p], at) if p in ahead else latest[p] for p, at in current.items()}
    shrunk = sorted((*p, at, log_ends[p]) for p, at in current.items() if log_ends[p] < at)
    if shrunk:
        raise LogShrankError(shrunk)
    return log_ends


def _offsets_of(ends: Mapping[Partition, LogEnd]) -> dict[Partition, int]:
    return {p: end.offset for p, end in ends.items()}


class PerPartitionConfig:
    """Rate limits for each partition. Subclass it and give an instance to `createDirectStream`.

    The driver calls its methods for every partition of every batch, so they must be fast. The object is stored with the graph, so it must
    be picklable.

    Example:
        class SlowOrders(PerPartitionConfig):
            def maxRatePerPartition(self, topicPartition):
                return 100 if topicPartition.topic == "orders" else 0

        KafkaUtils.createDirectStream(ssc, ["orders", "users"], kafkaParams, perPartitionConfig=SlowOrders())
    """

    def maxRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the most records a second of a partition; 0 is no limit.

        Args:
            topicPartition: the partition.

        Returns:
            Records a second.

        Raises:
            NotImplementedError: unless a subclass overrides it.
        """
        raise NotImplementedError

    def minRatePerPartition(self, topicPartition: TopicAndPartition) -> int:
        """Return the fewest records of a partition in a *batch* that a rate limits. As in Spark, it is not a rate a second.

        Args:
            topicPartition: the partition.

        Returns:
            Records a batch; 1 unless a subclass overrides it.
        """
        return 1
