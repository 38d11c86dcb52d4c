"""DirectKafkaInputDStream: each batch is one offset range of every partition, planned on the driver and read in the workers.

The plans of the stream are KafkaPlans (`planning/plan.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from kstream.batch import BatchInfo, InputOutcome, Json, SkippedRecord
from kstream.batch.log_progress import metadata_of, outcome_of
from kstream.batch.plan import FAIL, REPORT, SKIP
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.dstream.arguments import check_function
from kstream.dstream.ports import InputServices
from kstream.dstream.recipe import Recipe, recorded
from kstream.offsets.errors_policy import OnRecordError, RecordErrorLog
from kstream.offsets.offset_range import Partition, describe_offsets
from kstream.offsets.read_report import bytes_of, counts_of, errors_of, lost_ranges
from kstream.worker.stored_letters import letters_text
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.client.renewing_client import RenewingDriverClient
from kstream_kafka.client.secrets import SecretSource
from kstream_kafka.planning.plan import KafkaPlan, skipped_between
from kstream_kafka.settings import ALLOW_NON_CONSECUTIVE_OFFSETS, MAX_RETRIES, MAX_TASKS, POLL_TIMEOUT
from kstream_kafka.source.committing_stream import CommittingInputDStream
from kstream_kafka.source.dead_letter_topic import check_apart, check_exists
from kstream_kafka.source.earlier_letters import EarlierLetters, range_consumer
from kstream_kafka.source.stream_spec import StreamSpec

if TYPE_CHECKING:
    from pyspark import RDD

    from kstream.batch_time import BatchTime
    from kstream.direct.read_report_accumulator import ReadReportAccumulator
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream.output import Output
    from kstream_kafka.reader.kafka_rdd import KafkaRDD

logger = logging.getLogger("kstream.kafka")
U = TypeVar("U")
MakeClient = Callable[[KafkaParams, int], DriverClient]
"""(parameters, most retries of a request for offsets) → client."""
MOST_TOLD = 20_000
"""The most dead letters of a batch that the tasks of its next output are told of: two bytes each in every task."""


class DirectKafkaInputDStream(CommittingInputDStream):
    """The direct stream, created by `KafkaUtils.createDirectStream`.

    The methods for users are the operators, `foreachBatch`, `commitAsync` and `publishOffsets`. The driver calls the others, from one
    thread at a time. Only `outcome` may run in another thread meanwhile. No request is sent before `start`.

    Example:
        def commit_and_print(rdd: KafkaRDD):
            print(rdd.count())
            stream.commitAsync(rdd.offsetRanges())

        stream.foreachRDD(commit_and_print)
    """

    operator = "Kafka direct stream"
    adapts_rate = True
    has_errors_policy = True
    tasks_setting = MAX_TASKS

    def __init__(self, ssc: StreamHost, spec: StreamSpec, make_client: MakeClient | None = None, clock: Clock | None = None) -> None:
        """Create the stream and add it to the graph of its context. Sends no request.

        Args:
            ssc: the StreamingContext.
            spec: the definition of the stream.
            make_client: creates the driver's client, for tests; None for `KafkaDriverClient`.
            clock: the clock, for tests; None for the system's.
        """
        params, clock = spec.params, clock or SystemClock()
        super().__init__(ssc, params.group, clock)
        self.spec = spec
        self.planner = spec.planner(self.ssc.settings, self.slide_duration, clock)
        """Plans the batches."""
        self._admission = self.planner.admission
        self._packing = spec.packing(self.ssc.settings)
        self._make_client = make_client or _real_client
        self._restored: Time | None = None
        """The newest batch of earlier drivers; None at a first start."""
        self._earlier_letters = EarlierLetters(partial(self._make_client, spec.params, 0), partial(range_consumer, spec.params))
        self._read_reports: ReadReportAccumulator | None = None
        self._record_error_log = RecordErrorLog(logger, clock.monotonic_ms)
        self._hosts: Mapping[Partition, str] = {}

    # -- life

    def start(self, services: InputServices) -> None:
        """Create the client and resolve the offsets: at a first start the starting offsets, and stopping offsets if possible. Blocks.

        An error fails `ssc.start()`. If the stored run has reached its stopping offsets, this run looks for new partitions and resolves its
        own stopping offsets.

        Args:
            services: the driver's services for inputs.

        Raises:
            KafkaConfigError: a policy or the dead-letter topic does not exist, or a starting or stopping offset cannot be resolved.
            UnknownTopicError: a named topic does not exist.
            BrokerUnreachableError: no broker answered.
            KafkaError: another error of the client.
        """
        super().start(services)
        self._admission.restore(services.last_batches, self.id)
        self.spec.check_policies(self.ssc.settings)
        policy = self._on_record_error()
        check_apart(policy.dead_letter_topic, self.spec.topics)
        self._client = self._make_client(self.spec.params, self.ssc.settings[MAX_RETRIES])
        check_exists(policy.dead_letter_topic, self._client, self.spec.params.bootstrap)
        self.planner.begin(self._client, self._packing if self.ssc.graph.keeps_layout else None)

    def stop(self) -> None:
        """Log the record errors that have no line yet, send the commits that are due, and close the client, as CommittingInputDStream."""
        self._record_error_log.close()
        super().stop()

    def decode(self, data: Mapping[str, Json]) -> KafkaPlan:
        """Return the plan of a stored form. NotRecoverableError if the data is of another kind of input. Sends no request."""
        if not KafkaPlan.is_of(data):
            raise self.another_kind(data)
        return KafkaPlan.decode(data)

    def restored(self, time: Time, plan: KafkaPlan) -> None:
        """Continue after the newest stored plan, at a restart. Sends no request.

        Args:
            time: the batch time of the plan.
            plan: the newest stored plan.
        """
        self.planner.restore(plan)
        self._restored = time

    def reads_nothing_of(self, plan: KafkaPlan, kept: KafkaPlan | None) -> str:
        """Return why the stored plan seems to be another stream's, at a restart. Sends no request.

        Args:
            plan: the newest stored plan.
            kept: the offsets kept before it, if there are any.

        Returns:
            A text if the stream reads none of the stored partitions; otherwise an empty text. Always empty for a pattern.
        """
        return self.planner.reads_nothing_of(plan, kept)

    def left_behind(self, plan: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan | None:
        """Return the offsets that the checkpoint must keep; see `plan.left_behind`. Sends no request."""
        return self.planner.left_behind(plan, kept)

    def restored_kept(self, kept: KafkaPlan) -> None:
        """Read partitions that are on the list again, from their kept offsets. Sends no request.

        A bounded run that is not over reads neither returned nor new partitions. The next run reads them.

        Args:
            kept: the kept offsets.
        """
        self.planner.restored_kept(kept)

    def skipped_between(self, before: KafkaPlan, after: KafkaPlan) -> Sequence[str]:
        """Return the offsets between two consecutive plans that neither plan has, as texts; see `plan.skipped_between`. Pure."""
        return skipped_between(before, after)

    @property
    def exhausted(self) -> bool:
        """Whether a bounded run has planned every partition up to its stopping offset."""
        return self.planner.exhausted

    # -- planning

    def starting_point(self) -> KafkaPlan:
        """Return a plan of empty ranges at the starting offsets. Called after `start`. Sends no request."""
        return self.planner.starting_point()

    def position_text(self) -> str:
        """Return the offset of each partition at which the next plan begins, in words."""
        return describe_offsets(self.planner.positions)

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Prepare to plan missed batches. Under by-timestamp, ask the brokers where the logs ended at each of the times, and block.

        Args:
            times: the missed batch times, rising.

        Returns:
            None under catch-up. Under by-timestamp the times that must be planned: those with records, or all if rates limit the batches.

        Raises:
            KafkaError: the errors of `plan`.
        """
        return self.planner.missed(times)

    def plan(self, time: Time) -> KafkaPlan:
        """Plan a batch: each range ends at the end of its log, or earlier by rate limits and stopping offsets.

        Under by-timestamp, a missed batch ends where the logs ended at its time. Blocks on the brokers. Moves no offset: that is the task
        of `planned`. After an error the batch is not planned.

        Args:
            time: the batch time.

        Returns:
            The plan.

        Raises:
            PartitionRevokedError: a partition does not exist any more, and no pattern chose its topic.
            TopicNotAvailableError: the brokers do not show a topic, and are to be asked about all of its records.
            LogShrankError: a log ends before the next offset, and losses are not tolerated.
            TopicRecreatedError: a topic was recreated, and losses are not tolerated.
            KafkaError: another error of the client.
            RuntimeError: the stream has not been started.
        """
        plan = self.planner.plan(time, self.services.open_batches())
        if self.spec.locations.kind == "brokers":
            self._hosts = self._connected().leader_hosts()
        return plan

    def planned(self, time: Time, plan: KafkaPlan) -> None:
        """Move the offsets to the ends of a plan that is durable now."""
        self.planner.planned(time, plan)

    def without(self, plan: KafkaPlan, skipped: Collection[SkippedRecord]) -> KafkaPlan:
        """Return the plan without these records. Its ranges and its stored form do not change. Pure."""
        return replace(plan, skipped=frozenset(skipped))

    def leave_out(self, time: Time, skipped: Collection[SkippedRecord]) -> None:
        """Leave records out of a batch from now on, and drop what earlier tries have reported about its ranges."""
        super().leave_out(time, skipped)
        if self._read_reports is not None:
            self._read_reports.drop_counts(time.milliseconds)

    def outcome(self, time: Time, plan: KafkaPlan) -> InputOutcome:
        """Return how many records each range held, and which records were lost, by the reports of the tasks. Logs the losses.

        Called after all jobs of the batch have succeeded, and again only after an error of its own. Any thread. Sends no request.

        Args:
            time: the batch time.
            plan: the plan of the batch.
        """
        with nullcontext({}) if self._read_reports is None else self._read_reports.taken(time.milliseconds) as found:
            lost = [*plan.lost, *lost_ranges(found.get("lost", {}))]
            if any(entry.cause == "recreation" for entry in lost):
                self.planner.recheck_topic_ids()
            counts = counts_of(plan.ranges, found.get("counts", {}), plan.skipped)
            errors = errors_of(found)
            self._record_error_log.note(time, errors, self._on_record_error())
            records = sum(r.count() if count is None else count for r, count in zip(plan.ranges, counts, strict=True))
            num_bytes = bytes_of(found, records)
            return outcome_of(time, counts, lost, self._on_data_loss() == REPORT, logger, plan.skipped, errors, num_bytes)

    def task_properties(self, time: Time, plan: KafkaPlan) -> Mapping[str, str]:
        """Return the dead letters that earlier outputs of the batch have stored, for the tasks of the next one. Any thread.

        Of more than MOST_TOLD letters nothing is told: the text goes to every task.
        """
        if self._read_reports is None or self._on_record_error().dead_letter_topic is None:
            return {}
        stored = self._read_reports.letters(time.milliseconds)
        is_little = 0 < sum(map(len, stored.values())) <= MOST_TOLD
        return {self._stored_property(time): letters_text(stored)} if is_little else {}

    def _stored_property(self, time: Time) -> str:
        """Return the name of the local property with the stored dead letters of a batch of this stream."""
        return f"kstream.stored.letters.{self.id}.{time.milliseconds}"

    def check_records(self, time: Time, plan: KafkaPlan) -> None:
        """Check the record errors that the tasks of a batch have reported. Called after each job, in its thread. Sends no request.

        Raises:
            TooManyRecordErrorsError: more records failed than the errors policy allows.
            DeadLetterNotStoredError: a dead letter was not stored.
        """
        if self._read_reports is not None and self.tolerates_record_errors:
            self._on_record_error().check(plan.ranges, self._read_reports.errors(time.milliseconds))

    @property
    def tolerates_record_errors(self) -> bool:
        """Whether the stream has an errors policy other than `fail`."""
        return self._on_record_error().tolerates

    @property
    def errors_policy(self) -> str:
        """The errors policy: fail, skip or dead-letter."""
        return self._on_record_error().policy or super().errors_policy

    @property
    def tasks_report(self) -> bool:
        """Whether a policy lets a batch succeed without some of its records."""
        return self.errors_policy != "fail" or self._on_data_loss() != FAIL

    def _on_record_error(self) -> OnRecordError:
        """Return the errors policy: that of the stream, and of the settings where the stream has none."""
        return self.spec.on_record_error.resolved(self.ssc.settings)

    def _on_data_loss(self) -> str:
        """Return the policy for data loss: that of the stream, else that of the settings. A replay that tolerates losses skips them."""
        return SKIP if self.services.tolerate_loss else self.spec.data_loss_policy(self.ssc.settings)

    def update_rate(self, recordsPerSecond: int) -> None:
        """Let the partitions share this rate from the next plan on. Called by the thread that ends a batch."""
        self._admission.update_rate(recordsPerSecond)

    @property
    def is_measuring(self) -> bool:
        """Whether the first batch with records runs, so that the next one would get none."""
        return self._admission.is_measuring(self.services.open_batches())

    def batch_completed(self, info: BatchInfo) -> None:
        """Note the speed of a batch and the length of its records. Called by the thread that ends a batch."""
        self._admission.batch_completed(info, self.id, repr(self))

    # -- the batch

    def rdd(self, time: Time, plan: KafkaPlan) -> KafkaRDD:
        """Return the KafkaRDD of the plan's ranges. Sends no request: the tasks read, and raise the errors of the read.

        Runs on the driver. With a LocationStrategy it asks the JVM for the executors. For PreferBrokers, the leaders are those of the
        newest planning, not of this plan. For the first batch of an earlier driver it reads the dead-letter topic, and blocks: not in a
        job, which has made sure before that no other driver has taken over.
        """
        from kstream.direct.read_report_accumulator import ReadReportAccumulator
        from kstream_kafka.reader.dead_letter_writer import dead_letters
        from kstream_kafka.reader.kafka_rdd import KafkaRDD  # imported late, because it needs a JVM and planning does not
        from kstream_kafka.reader.location_strategy import executor_locations
        from kstream_kafka.reader.range_task import BatchReadContext

        settings, sc = self.ssc.settings, self.ssc.sparkContext
        if self._read_reports is None:
            self._read_reports = ReadReportAccumulator(sc)
        packing = plan.packing or self._packing
        policy = self._on_record_error()
        if policy.dead_letter_topic is not None and self._restored is not None and time <= self._restored:
            self._read_reports.add_letters(self._earlier_letters.find(policy.dead_letter_topic, str(sc.appName), time, self._restored))
        letters = dead_letters(self.spec.params, policy.dead_letter_topic, str(sc.appName), time)
        errors = policy.in_tasks(plan.ranges, letters, self._stored_property(time))
        tolerate_loss = self._on_data_loss() != FAIL
        return KafkaRDD(
            sc,
            plan.ranges,
            self.spec.params.executor(),
            self.spec.decoding,
            splits=plan.splits,
            poll_timeout_ms=settings[POLL_TIMEOUT],
            exact_counts=errors is None and not settings[ALLOW_NON_CONSECUTIVE_OFFSETS],
            packing=packing,
            locations=executor_locations(sc, self.spec.locations, plan.ranges, packing, self._hosts),
            read_context=BatchReadContext(time.milliseconds, plan.topic_ids, tolerate_loss, self._read_reports.accumulator, errors),
            skipped=plan.skipped,
        )

    def metadata(self, time: Time, plan: KafkaPlan) -> Mapping[str, Any]:
        """Return the metadata of a batch for listeners and the progress report; see `progress.metadata_of`. Sends no request.

        The log ends, and with them the lag, are known only for the batch that this driver has planned last.

        Args:
            time: the batch time.
            plan: the plan of the batch.
        """
        planner = self.planner
        limits = self._admission.limits_of(time)
        return metadata_of(plan.ranges, planner.log_ends(time), planner.pinned, f"Kafka[{self.spec.topics}]", limits)

    def clear_metadata(self, time: Time) -> None:
        """Drop the plans and the read reports of batches that are older than the remember duration."""
        super().clear_metadata(time)
        if self._read_reports is not None:
            self._read_reports.forget((time - self.remember_duration).milliseconds, self.planned_batches())

    # -- methods for users, besides the operators

    if TYPE_CHECKING:  # type checkers know the RDDs of this stream, which have offset ranges

        def transform(self, func: Callable[[KafkaRDD], RDD[U]] | Callable[[BatchTime, KafkaRDD], RDD[U]]) -> DStream[U]: ...

        def foreachRDD(self, func: Callable[[KafkaRDD], Any] | Callable[[BatchTime, KafkaRDD], Any] | Output) -> None: ...

    @recorded
    def foreachBatch(self, func: Callable[[Any, int], object]) -> None:
        """Call a function with a DataFrame of each batch. An output operation, as in Structured Streaming.

        The DataFrame has the columns of Spark's Kafka source: key, value (binary), topic, partition, offset, timestamp, timestampType,
        headers. Each action reads Kafka again, in the workers, as Arrow batches. Decoders and messageHandler do not apply.

        Args:
            func: `func(df, batch_id)`, called on the driver in the batch's job. `batch_id` is the batch time in ms.

        Raises:
            TypeError: `func` is not a function, or is a generator or coroutine function.
            MissingDependencyError: in the batch's job, if pyarrow or pandas is missing or too old.

        Example:
            stream.foreachBatch(lambda df, batch_id: df.write.mode("overwrite").parquet(f"/orders/{batch_id}"))
        """
        from pyspark.sql import SparkSession

        from kstream_kafka.reader.data_frame import kafka_data_frame

        check_function("foreachBatch", "func", func)

        def output(time: Time, rdd: Any) -> object:
            spark = SparkSession.getActiveSession() or SparkSession(rdd.context)
            return func(kafka_data_frame(spark, rdd.reads), time.milliseconds)

        self._output("foreachBatch", output)

    # -- recovery without setup

    def recipe(self) -> Recipe | None:
        """Return the stored form of the stream's definition; None if it cannot be stored."""
        return self.spec.recipe()

    @property
    def no_recipe_reason(self) -> str:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Why the definition cannot be stored, for an error message."""
        return self.spec.why_no_recipe()

    def worker_functions(self) -> Sequence[Any]:
        """Return the user's functions that the tasks run: decoders, messageHandler, callbacks such as `oauth_cb`, sources of secrets."""
        decoding = self.spec.decoding
        given = (decoding.key_decoder, decoding.value_decoder, decoding.message_handler, *self.spec.params.settings.values())
        return [function for function in given if callable(function) or isinstance(function, SecretSource)]

    @staticmethod
    def from_recipe(ssc: StreamHost, recipe: Recipe) -> DirectKafkaInputDStream:
        """Create the stream from the result of `recipe`, at a restart.

        Args:
            ssc: the StreamingContext.
            recipe: the stored definition.

        Raises:
            KafkaConfigError: a stored parameter cannot work.
        """
        return DirectKafkaInputDStream(ssc, StreamSpec.from_recipe(recipe))


def _real_client(params: KafkaParams, max_retries: int) -> DriverClient:
    """Create a KafkaDriverClient, replaced when its secrets change. Sends no request; blocks for secrets and the first token."""
    from kstream_kafka.client.driver_client import KafkaDriverClient  # imported late: to build a graph needs no librdkafka

    return RenewingDriverClient(params, lambda plain: KafkaDriverClient(plain, max_retries))
