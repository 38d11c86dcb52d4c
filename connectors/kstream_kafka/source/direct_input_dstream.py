"""DirectKafkaInputDStream: each batch is one offset range of every partition, planned on the driver, read in the workers.

Its plans are KafkaPlans (`planning/plan.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kstream.batch import InputOutcome, Json
from kstream.batch.plan import FAIL, REPORT, SKIP
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.ports import InputServices
from kstream.dstream.recipe import Recipe, recorded
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient, LogEnd, Partition
from kstream_kafka.errors import KafkaConfigError
from kstream_kafka.planning.data_loss import check_policy
from kstream_kafka.planning.kept_offsets import has_nothing_of, left_behind
from kstream_kafka.planning.offset_range import OffsetRange, TopicAndPartition
from kstream_kafka.planning.packing import Packing
from kstream_kafka.planning.plan import KafkaPlan, skipped_between
from kstream_kafka.planning.planner import RateLimits, estimated_rate, plan_ranges
from kstream_kafka.planning.progress import metadata_of
from kstream_kafka.reader.read_report import counts_of, lost_ranges
from kstream_kafka.source.downtime import Downtime
from kstream_kafka.source.offset_committer import CommitCallback, OffsetCommitter, as_callback
from kstream_kafka.source.partition_offsets import PartitionOffsets, describe_offsets
from kstream_kafka.source.starting_offsets import OffsetResolver
from kstream_kafka.source.stopping_offsets import StoppingOffsets
from kstream_kafka.source.stream_spec import BY_TIMESTAMP, StreamSpec, check_downtime

if TYPE_CHECKING:
    from kstream.dstream.ports import StreamHost
    from kstream_kafka.reader.kafka_rdd import KafkaRDD
    from kstream_kafka.reader.read_report import ReadReportAccumulator

logger = logging.getLogger("kstream.kafka")
MakeClient = Callable[[KafkaParams, int], DriverClient]
COMMIT_WAIT_S = 5.0
"""How long a stop waits for the answers to commits."""


class DirectKafkaInputDStream(InputDStream[KafkaPlan]):
    """The direct stream, what `KafkaUtils.createDirectStream` returns. `make_client` and `clock` are for tests."""

    operator = "Kafka direct stream"

    def __init__(self, ssc: StreamHost, spec: StreamSpec, make_client: MakeClient | None = None, clock: Clock | None = None) -> None:
        super().__init__(ssc)
        self.spec = spec
        params, clock = spec.params, clock or SystemClock()
        resolver = OffsetResolver(params.reset, params.group, clock.time_ms)
        self._clock = clock
        self._offsets = PartitionOffsets(
            spec.topics,
            spec.starting_offsets,
            resolver,
            params.metadata_max_age_ms,
            clock.monotonic_ms,
            lambda: self._on_data_loss() != FAIL,
        )
        self._stopping_offsets = StoppingOffsets(spec.stopping_offsets, resolver)
        self._downtime: Downtime | None = None
        self._committer = OffsetCommitter(params.group) if params.group is not None else None
        self._make_client = make_client or _real_client
        self._restored = False
        self._read_reports: ReadReportAccumulator | None = None
        self._client: DriverClient | None = None
        self._hosts: Mapping[Partition, str] = {}
        self._latest: tuple[Time, Mapping[Partition, LogEnd]] | None = None

    # -- life

    def start(self, services: InputServices) -> None:
        """Connects; at a first start resolves the starting offsets, and fails if that cannot be done."""
        super().start(services)
        check_downtime(self._policy(), "spark.streaming.kstream.downtime")
        check_policy(self._on_data_loss(), "spark.streaming.kstream.kafka.onDataLoss")
        self._client = self._make_client(self.spec.params, self.ssc.settings.get("spark.streaming.kafka.maxRetries"))
        if not self._restored:
            self._offsets.begin(self._client)
        elif self.exhausted:
            self._stopping_offsets.reset()
            self._offsets.snapshot(self._client)  # a new run reads partitions made since the last one, too
        self._resolve_stopping_offsets(self._client, self._offsets.positions, self._clock.time_ms())

    def _resolve_stopping_offsets(self, client: DriverClient, partitions: Mapping[Partition, int], time_ms: int) -> None:
        self._stopping_offsets.resolve(client, partitions, time_ms)
        self._offsets.closed = self._stopping_offsets.known

    def stop(self) -> None:
        """Sends commits that are due and waits up to COMMIT_WAIT_S for the answers."""
        if self._client is not None:
            if self._committer is not None and not self.services.is_fenced():
                self._committer.finish(self._client, COMMIT_WAIT_S)
            self._client.close()
            self._client = None

    def decode(self, data: Mapping[str, Json]) -> KafkaPlan:
        if not KafkaPlan.is_of(data):
            raise self.another_kind(data)
        return KafkaPlan.decode(data)

    def restored(self, time: Time, plan: KafkaPlan) -> None:
        self._offsets.restore(plan)
        self._stopping_offsets.restore(plan.stopping_offsets, self._offsets.offsets)
        self._restored = True

    def reads_nothing_of(self, plan: KafkaPlan, kept: KafkaPlan | None) -> str:
        if self._offsets.by_pattern:
            return ""
        stored = has_nothing_of(plan, kept, self._offsets.reads)
        if not stored:
            return ""
        return f"reads none of the partitions that it has offsets of; stored are {describe_offsets(stored)}, it reads {self.spec.topics}"

    def left_behind(self, plan: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan | None:
        return left_behind(plan, kept, self._offsets.reads)

    def restored_kept(self, kept: KafkaPlan) -> None:
        """Read partitions of the list again from their kept offsets. A bounded run that is not over takes no partition back, as it takes no
        new one; the next run does."""
        if not self._stopping_offsets.known or self.exhausted:
            self._offsets.restore_kept(kept)
        else:
            logger.info("a bounded run goes on: partitions that were added to the list are read from the next run on")

    def skipped_between(self, before: KafkaPlan, after: KafkaPlan) -> Sequence[str]:
        return skipped_between(before, after)

    @property
    def exhausted(self) -> bool:
        """A bounded run has planned all there is to read."""
        return self._stopping_offsets.reached(self._offsets.offsets)

    # -- planning

    def starting_point(self) -> KafkaPlan:
        """An empty range at every cursor."""
        ranges = [OffsetRange(*p, at, at) for p, at in sorted(self._offsets.offsets.items())]
        return self._plan_of(ranges, [None] * len(ranges), self._offsets.ahead)

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Under by-timestamp asks where the logs ended at each of the times, and names those with something to read."""
        if self._policy() != BY_TIMESTAMP:
            return None
        client = self._connected()
        snapshot = self._offsets.snapshot(client)
        self._downtime = Downtime.query(client, snapshot, times, self._clock.time_ms(), self.slide_duration)
        return times if self._limits().limited else self._downtime.busy

    def plan(self, time: Time) -> KafkaPlan:
        """Up to the end of every log, or as far as the rates and the bounds allow. Blocks on the brokers; moves nothing.

        Raises the errors of the client, PartitionRevokedError, LogShrankError and TopicRecreatedError: then the batch is not planned.
        """
        client = self._connected()
        if self._downtime is not None and self._downtime.covers(time):
            snapshot = self._downtime.snapshot(time, self._offsets.positions, self._offsets.ahead, self._clock.time_ms())
            self._latest = (time, self._downtime.latest)
        else:
            snapshot = self._offsets.snapshot(client)
            self._latest = (time, snapshot.latest)
            if self._downtime is not None:
                late = self._downtime.still_late(client, snapshot, time, self._clock.time_ms())
                snapshot, self._downtime = (snapshot, None) if late is None else (late, self._downtime)
        if self.spec.locations.kind == "brokers":
            self._hosts = client.leader_hosts()
        self._resolve_stopping_offsets(client, snapshot.current, self._clock.time_ms())
        snapshot = self._stopping_offsets.limit(snapshot)
        latest = {p: end.offset for p, end in snapshot.latest.items()}
        ranges = plan_ranges(snapshot.current, latest, self._limits(), snapshot.ahead)
        epochs = [snapshot.latest[r.topic, r.partition].leader_epoch for r in ranges]
        return self._plan_of(ranges, epochs, snapshot.ahead)

    def planned(self, time: Time, plan: KafkaPlan) -> None:
        self._offsets.advance(plan)

    def remember_plan(self, time: Time, plan: KafkaPlan) -> None:
        super().remember_plan(time, plan)
        if self._committer is not None:
            self._committer.planned(time, plan.ranges)

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        """Sends the commits that the end of a batch made true."""
        if self._committer is not None and self._client is not None:
            self._committer.ended(unfinished)
            self._committer.send(self._client)

    def outcome(self, time: Time, plan: KafkaPlan) -> InputOutcome:
        """How many records each range held, and what of them was lost, as the tasks found."""
        found = self._read_reports.take(time.milliseconds) if self._read_reports is not None else {}
        lost = [*plan.lost, *lost_ranges(found.get("lost", {}))]
        if any(entry.cause == "recreation" for entry in lost):
            self._offsets.recheck_topic_ids()
        for entry in lost:
            logger.warning("batch %s, lost records of %s-%d from %d: %s", time, entry.topic, entry.partition, entry.lost_from, entry.detail)
        counts = counts_of(plan.ranges, found.get("counts", {}))
        return InputOutcome(counts, [entry.to_json() for entry in lost], self._on_data_loss() == REPORT)

    def _connected(self) -> DriverClient:
        if self._client is None:
            raise RuntimeError("plan before start")
        return self._client

    def _policy(self) -> str:
        return self.spec.downtime or self.ssc.settings.get("spark.streaming.kstream.downtime")

    def _on_data_loss(self) -> str:
        if self.services.tolerant:
            return SKIP
        return self.spec.on_data_loss or self.ssc.settings.get("spark.streaming.kstream.kafka.onDataLoss")

    def _limits(self) -> RateLimits:
        conf, rates = self.ssc.settings.get, self.spec.rates
        most, least = conf("spark.streaming.kafka.maxRatePerPartition"), conf("spark.streaming.kafka.minRatePerPartition")
        initial = conf("spark.streaming.backpressure.initialRate")
        estimate = estimated_rate(conf("spark.streaming.backpressure.enabled"), None, initial)
        return RateLimits(
            batch_ms=self.slide_duration.milliseconds,
            max_rate=(lambda _: most) if rates is None else (lambda p: rates.maxRatePerPartition(TopicAndPartition(*p))),
            min_rate=(lambda _: least) if rates is None else (lambda p: rates.minRatePerPartition(TopicAndPartition(*p))),
            estimate=estimate,
            limited=most > 0 or rates is not None or estimate is not None,
        )

    def _plan_of(self, ranges: list[OffsetRange], epochs: list[int | None], ahead: frozenset[Partition]) -> KafkaPlan:
        cursors = self._offsets
        begun = [cursors.epoch_of((r.topic, r.partition)) for r in ranges]
        return KafkaPlan(ranges, epochs, begun, cursors.topic_ids, ahead, self._stopping_offsets.offsets, cursors.lost)

    # -- the batch

    def rdd(self, time: Time, plan: KafkaPlan) -> KafkaRDD:
        """The KafkaRDD of the plan's ranges."""
        from kstream_kafka.reader.kafka_rdd import KafkaRDD  # needs a JVM, which planning does not
        from kstream_kafka.reader.location_strategy import executor_locations
        from kstream_kafka.reader.range_task import BatchReadContext
        from kstream_kafka.reader.read_report import ReadReportAccumulator

        conf, sc = self.ssc.settings.get, self.ssc.sparkContext
        if self._read_reports is None:
            self._read_reports = ReadReportAccumulator(sc)
        packing = Packing(conf("spark.streaming.kstream.kafka.maxTasks"), conf("spark.streaming.kstream.kafka.maxRecordsPerTask"))
        return KafkaRDD(
            sc,
            plan.ranges,
            self.spec.params.executor(),
            self.spec.decoding,
            splits=plan.splits,
            poll_timeout_ms=conf("spark.streaming.kafka.consumer.poll.ms"),
            exact_counts=not conf("spark.streaming.kafka.allowNonConsecutiveOffsets"),
            packing=packing,
            locations=executor_locations(sc, self.spec.locations, plan.ranges, packing, self._hosts),
            read_context=BatchReadContext(time.milliseconds, plan.topic_ids, self._on_data_loss() != FAIL, self._read_reports.accumulator),
        )

    def metadata(self, time: Time, plan: KafkaPlan) -> Mapping[str, Any]:
        """The ranges, Spark's description of those that are not empty, and the stream's part of the progress report.

        The log ends are known only in the driver that planned the batch, and only just then.
        """
        latest = self._latest[1] if self._latest is not None and self._latest[0] == time else None
        pinned = self._downtime.pinned if self._downtime is not None else {}
        return metadata_of(plan.ranges, latest, pinned, str(self.spec.topics))

    def clear_metadata(self, time: Time) -> None:
        super().clear_metadata(time)
        if self._read_reports is not None:
            self._read_reports.forget((time - self.remember_duration).milliseconds)

    # -- what users call besides the operators

    def commitAsync(self, offsetRanges: Sequence[OffsetRange], callback: CommitCallback | None = None) -> None:
        """Commits the ends of these ranges for the group of `group.id`, once every batch up to them has ended. Any thread; returns at once.

        For tools that show lag, and for a later start at `committed`; kstream's own restart goes by the checkpoint. `callback(offsets,
        error)` hears of each commit, the newest callback of all; it is called by a thread of the client. The group must have no
        members. KafkaConfigError without a group.id.
        """
        if self._committer is None:
            raise KafkaConfigError("group.id", "is missing", "commitAsync needs a group to commit for.")
        self._committer.ask(offsetRanges, as_callback(callback))

    @recorded
    def foreachBatch(self, func: Callable[[Any, int], object]) -> None:
        """An output operation: func(df, batch_id) for each batch, on the driver; `batch_id` is the batch time in ms.

        `df` has the columns of Spark's Kafka source, headers included: key, value (binary), topic, partition, offset, timestamp,
        timestampType, headers. It is read by the workers as Arrow batches when an action needs it, each time anew. Decoders and
        messageHandler do not apply.
        """
        from pyspark.sql import SparkSession

        from kstream_kafka.reader.data_frame import kafka_data_frame

        def output(time: Time, rdd: Any) -> None:
            spark = SparkSession.getActiveSession() or SparkSession(rdd.context)
            func(kafka_data_frame(spark, rdd.reads), time.milliseconds)

        self._output("foreachBatch", output)

    # -- recovery without setup

    def recipe(self) -> Recipe | None:
        return self.spec.recipe()

    @property
    def no_recipe_reason(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.spec.why_no_recipe()

    def worker_functions(self) -> Sequence[Any]:
        """The decoders, messageHandler, and callbacks such as `oauth_cb`."""
        decoding = self.spec.decoding
        given = (decoding.key_decoder, decoding.value_decoder, decoding.message_handler, *self.spec.params.settings.values())
        return [function for function in given if callable(function)]

    @staticmethod
    def from_recipe(ssc: StreamHost, recipe: Recipe) -> DirectKafkaInputDStream:
        """The inverse of `recipe`."""
        return DirectKafkaInputDStream(ssc, StreamSpec.from_recipe(recipe))


def _real_client(params: KafkaParams, max_retries: int) -> DriverClient:
    from kstream_kafka.client.driver_client import KafkaDriverClient  # so that building a graph does not load librdkafka

    return KafkaDriverClient(params, max_retries)
