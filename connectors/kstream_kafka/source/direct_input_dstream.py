"""DirectKafkaInputDStream: each batch is one offset range of every partition, planned on the driver and read in the workers.

A KafkaPlanner (`planning/planner.py`) plans. CommittingInputDStream has the commits, DirectInputDStream what all direct streams share.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

from kstream.batch import Json
from kstream.batch.plan import FAIL, kind_of
from kstream.batch_time import Time
from kstream.clock import Clock, SystemClock
from kstream.dstream.arguments import check_function
from kstream.dstream.ports import InputServices, services_of
from kstream.dstream.recipe import Recipe, recorded
from kstream.offsets.errors_policy import RecordErrorLog, RecordErrorPolicy
from kstream.offsets.offset_range import LostRange, Partition
from kstream.public_call import refused
from kstream.sinks.named_output import FunctionOutput, checked_names
from kstream.worker.record_errors import KindCounts, letters_text
from kstream_kafka.client.params import KafkaParams
from kstream_kafka.client.ports import DriverClient
from kstream_kafka.client.renewing_client import renewing_driver_client
from kstream_kafka.client.schema_registry import SchemaRegistry
from kstream_kafka.client.secrets import SecretSource
from kstream_kafka.planning.plan import KAFKA, KafkaPlan, skipped_between
from kstream_kafka.planning.planner import KafkaPlanner
from kstream_kafka.settings import ALLOW_NON_CONSECUTIVE_OFFSETS, MAX_RETRIES, MAX_TASKS, POLL_TIMEOUT
from kstream_kafka.source.committing_stream import CommittingInputDStream
from kstream_kafka.source.earlier_letters import EarlierLetters, range_consumer
from kstream_kafka.source.stream_spec import StreamSpec, check_apart, check_exists

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql.types import StructType

    from kstream.batch_time import BatchTime
    from kstream.dstream.dstream import DStream
    from kstream.dstream.ports import StreamHost
    from kstream.output import Output
    from kstream_kafka.reader.kafka_rdd import KafkaRDD
    from kstream_kafka.reader.value_formats import Mode

U = TypeVar("U")
MakeClient = Callable[[KafkaParams, int], DriverClient]
"""(parameters, most retries of a request for offsets) → client."""


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
    logger = logging.getLogger("kstream.kafka")
    has_errors_policy = True
    tasks_setting = MAX_TASKS

    def __init__(self, ssc: StreamHost, spec: StreamSpec, make_client: MakeClient | None = None, clock: Clock | None = None) -> None:
        """Create the stream and add it to the graph of its context. Sends no request.

        Args:
            ssc: the StreamingContext.
            spec: the definition of the stream.
            make_client: creates the driver's client, for tests; None for `renewing_driver_client`.
            clock: the clock, for tests; None for the system's.
        """
        params, clock = spec.params, clock or SystemClock()
        settings = services_of(ssc).settings
        super().__init__(ssc, spec.data_loss_policy(settings), params.group, clock)
        self.spec = spec
        self._planner = spec.planner(settings, self.slide_duration, clock)
        self._packing = spec.packing(settings)
        self._make_client = make_client or renewing_driver_client
        self._restored: Time | None = None
        """The newest batch of earlier drivers; None at a first start."""
        self._earlier_letters = EarlierLetters(partial(self._make_client, spec.params, 0), partial(range_consumer, spec.params))
        self._record_error_log = RecordErrorLog(self.logger, clock.monotonic_ms)
        self._hosts: Mapping[Partition, str] = {}

    @property
    def planner(self) -> KafkaPlanner:
        return self._planner

    # -- life

    def start(self, services: InputServices) -> None:
        """Create the client and begin to plan, which resolves the offsets; see `KafkaPlanner.begin`. Blocks. An error fails `ssc.start()`.

        Raises:
            KafkaConfigError: a policy or the dead-letter topic does not exist, or an offset cannot be resolved.
            UnknownTopicError: a named topic does not exist.
            BrokerUnreachableError: no broker answered.
            KafkaError: another error of the client.
        """
        super().start(services)
        self.spec.check_policies(self.ssc.settings)
        dead_letter_topic = self.record_errors.dead_letter_topic
        check_apart(dead_letter_topic, self.spec.topics)
        self._client = self._make_client(self.spec.params, self.ssc.settings[MAX_RETRIES])
        check_exists(dead_letter_topic, self._client, self.spec.params.bootstrap)
        self.planner.begin(self._client, self._packing if self.ssc.graph.keeps_layout else None)

    def stop(self) -> None:
        """Log the record errors that have no line yet, send the commits that are due, and close the client, as CommittingInputDStream."""
        self._record_error_log.close()
        super().stop()

    def decode(self, data: Mapping[str, Json]) -> KafkaPlan:
        """Return the plan of a stored form. NotRecoverableError if the data is of another kind of input. Sends no request."""
        if kind_of(data) != KAFKA:
            raise self.another_kind(data)
        return KafkaPlan.decode(data)

    def restored(self, time: Time, plan: KafkaPlan) -> None:
        """Continue after the newest stored plan, at a restart. Sends no request."""
        super().restored(time, plan)
        self._restored = time

    def reads_nothing_of(self, plan: KafkaPlan, kept: KafkaPlan | None) -> str:
        """Return why the stored plan seems to be another stream's, at a restart; see the planner. Sends no request."""
        return self.planner.reads_nothing_of(plan, kept)

    def left_behind(self, plan: KafkaPlan, kept: KafkaPlan | None) -> KafkaPlan | None:
        """Return the offsets that the checkpoint must keep; see the planner. Sends no request."""
        return self.planner.left_behind(plan, kept)

    def restored_kept(self, kept: KafkaPlan) -> None:
        """Read partitions that are on the list again, from their kept offsets; see the planner. Sends no request."""
        self.planner.restored_kept(kept)

    def skipped_between(self, before: KafkaPlan, after: KafkaPlan) -> Sequence[str]:
        """Return the offsets between two consecutive plans that neither plan has, as texts; see `plan.skipped_between`. Pure."""
        return skipped_between(before, after)

    @property
    def exhausted(self) -> bool:
        """Whether a bounded run has planned every partition up to its stopping offset."""
        return self.planner.exhausted

    def plan(self, time: Time) -> KafkaPlan:
        """Plan a batch; see `KafkaPlanner.plan`, whose errors it raises. Blocks on the brokers. Moves no offset."""
        plan = super().plan(time)
        if self.spec.locations.kind == "brokers":
            self._hosts = self._connected().leader_hosts()
        return plan

    # -- losses and record errors

    def _note_findings(self, time: Time, lost: Sequence[LostRange], errors: KindCounts) -> None:
        """Act on what tasks have reported: let the next plan check the topic ids after a recreated topic, and log the record errors."""
        if any(entry.cause == "recreation" for entry in lost):
            self.planner.recheck_topic_ids()
        self._record_error_log.note(time, errors, self.record_errors)

    def task_properties(self, time: Time, plan: KafkaPlan) -> Mapping[str, str]:
        """Return Spark's local property by which the tasks of the next output learn which dead letters are stored already. Any thread.

        It has those of earlier outputs, also of older batches, which the tasks of a window read. Without letters there is none.
        """
        if self._read_reports is None or self.record_errors.dead_letter_topic is None:
            return {}
        stored = self._read_reports.letters_until(time.milliseconds)
        return {self._stored_property: letters_text(stored)} if stored else {}

    @property
    def _stored_property(self) -> str:
        """The name of the local property with the stored dead letters of this stream."""
        return f"kstream.stored.letters.{self.id}"

    def check_records(self, time: Time, plan: KafkaPlan) -> None:
        """Check the record errors that the tasks of a batch have reported, under an errors policy. Called after each job, in its thread.

        Raises:
            TooManyRecordErrorsError: more records failed than the errors policy allows.
            DeadLetterNotStoredError: a dead letter was not stored.
        """
        if self._read_reports is not None and self.tolerates_record_errors:
            self.record_errors.check(plan.ranges, self._read_reports.errors(time.milliseconds))

    @property
    def tolerates_record_errors(self) -> bool:
        """Whether the stream has an errors policy other than `fail`."""
        return self.record_errors.tolerates

    @property
    def errors_policy(self) -> str:
        """The errors policy: fail, skip or dead-letter."""
        return self.record_errors.policy

    @cached_property
    def record_errors(self) -> RecordErrorPolicy:
        """The errors policy: that of the stream, and of the settings where the stream has none. `start` raises if it cannot work."""
        return self.spec.on_record_error.resolved(self.ssc.settings)

    def _source_text(self, plan: KafkaPlan) -> str:
        """Return what the stream reads, for the progress."""
        return f"Kafka[{self.spec.topics}]"

    # -- the batch

    def rdd(self, time: Time, plan: KafkaPlan) -> KafkaRDD:
        """Return the KafkaRDD of the plan's ranges. Sends no request: the tasks read, and raise the errors of the read.

        Runs on the driver. With a LocationStrategy it asks the JVM for the executors. For PreferBrokers, the leaders are those of the
        newest planning, not of this plan. For the first batch of an earlier driver it reads the dead-letter topic, and blocks: not in a
        job, which has made sure before that no other driver has taken over.
        """
        from kstream_kafka.reader.dead_letter_writer import dead_letters
        from kstream_kafka.reader.kafka_rdd import KafkaRDD  # imported late, because it needs a JVM and planning does not
        from kstream_kafka.reader.location_strategy import executor_locations
        from kstream_kafka.reader.range_reads import BatchReadContext, RangeReads
        from kstream_kafka.reader.range_task import ReportToDriver

        settings, sc, reports = self.ssc.settings, self.ssc.sparkContext, self._reports_of_tasks()
        packing = plan.packing or self._packing
        policy = self.record_errors
        if policy.dead_letter_topic is not None and self._restored is not None and time <= self._restored:
            since = min([time, *self.planned_batches()])
            reports.add_letters(self._earlier_letters.find(policy.dead_letter_topic, str(sc.appName), since, self._restored))
        letters = dead_letters(self.spec.params, policy.dead_letter_topic, str(sc.appName), time)
        errors = policy.in_tasks(plan.ranges, letters, self._stored_property, time.milliseconds)
        report_to = ReportToDriver(reports.accumulator, time.milliseconds)
        context = BatchReadContext(plan.topic_ids, self.on_data_loss != FAIL, report_to, errors)
        return KafkaRDD(
            sc,
            plan.ranges,
            RangeReads.of(plan.splits, self.spec.params.executor(), settings[POLL_TIMEOUT], packing, context, plan.skipped),
            self.spec.decoding,
            exact_counts=errors is None and not settings[ALLOW_NON_CONSECUTIVE_OFFSETS],
            locations=executor_locations(sc, self.spec.locations, plan.ranges, packing, self._hosts),
        )

    # -- methods for users, besides the operators

    if TYPE_CHECKING:  # type checkers know the RDDs of this stream, which have offset ranges

        def transform(self, func: Callable[[KafkaRDD], RDD[U]] | Callable[[BatchTime, KafkaRDD], RDD[U]]) -> DStream[U]: ...

        def foreachRDD(self, func: Callable[[KafkaRDD], Any] | Callable[[BatchTime, KafkaRDD], Any] | Output) -> None: ...

    @recorded
    def foreachBatch(
        self,
        func: Callable[[Any, int], object],
        columns: Sequence[str] | None = None,
        schema: StructType | str | None = None,
        value_format: str | None = None,
        mode: Mode = "permissive",
        schema_registry: SchemaRegistry | str | None = None,
        value_schema_id: int | None = None,
        *,
        outputs: Sequence[str] = (),
    ) -> None:
        """Call a function with a DataFrame of each batch. An output operation, as in Structured Streaming.

        The DataFrame has the columns of Spark's Kafka source: key, value (binary), topic, partition, offset, timestamp, timestampType,
        headers. Each action reads Kafka again, in the workers, as Arrow batches. Decoders and messageHandler do not apply.

        Args:
            func: `func(df, batch_id)`, called on the driver in the batch's job. `batch_id` is the batch time in ms.
            columns: the names of the columns, in their order, as ["value"]. The workers build only these, which is faster. None for all.
            schema: the columns with the fields of the values, as "id BIGINT, amount DOUBLE, offset BIGINT": docs/structured.md.
            value_format: what the values are: "json", "avro", "protobuf", or "text", which needs no schema. None for bytes.
            mode: what becomes of a value that does not fit: "permissive" makes its fields null, "fail" fails the batch, and "dead-letter"
                leaves the record out and writes a dead letter, if that is the errors policy of the stream.
            schema_registry: the registry with the schemas of Avro and Protobuf values, or its URL.
            value_schema_id: the id of the reader's schema. Without `schema` the column `value` is a struct of its fields, beside all other
                columns, and the registry is asked here.
            outputs: the names of the outputs that the function writes exactly once, by `KafkaUtils.writeDataFrame`. Their batches are
                written in order, as those of `saveToKafka`, and the job needs a checkpoint directory.

        Raises:
            TypeError: `func` is not a function, or is a generator or coroutine function; `columns` or `outputs` is no list of names;
                `schema` is none.
            ValueError: a column does not exist or is named twice, or `columns` is empty; or the values cannot be decoded so; or the name
                of an output cannot be used.
            MissingDependencyError: in the batch's job, if pyarrow or pandas is missing or too old.

        Example:
            stream.foreachBatch(lambda df, batch_id: df.write.mode("overwrite").parquet(f"/orders/{batch_id}"))
        """
        from kstream.spark.active_session import active_session
        from kstream_kafka.reader.data_frame import checked_columns, checked_typed_columns, kafka_data_frame

        check_function("foreachBatch", "func", func)
        typed: StructType | None = None
        registry = SchemaRegistry(schema_registry) if isinstance(schema_registry, str) else schema_registry
        if value_format is None and schema is None and registry is None:
            chosen = checked_columns("foreachBatch", columns)
        elif value_format is None or columns is not None:
            given = "a schema" if registry is None else "schema_registry"
            reason = "columns and schema exclude each other" if columns is not None else f"{given} needs value_format, as 'json'"
            raise refused(ValueError(f"foreachBatch: {reason}"))
        else:
            typed, chosen = checked_typed_columns("foreachBatch", schema, value_format, mode, self.errors_policy, registry, value_schema_id)
            if registry is not None:
                if secrets := ", ".join(registry.not_storable()):
                    words = f"settings of a schema registry that may hold a secret are never stored, and foreachBatch has {secrets}"
                    self._recorder.why_not = self._recorder.why_not or words
                self._recorder.for_workers(registry)

        def output(time: Time, rdd: Any) -> object:
            return func(kafka_data_frame(active_session(rdd.context), rdd.reads, chosen, typed), time.milliseconds)

        names = checked_names("foreachBatch", outputs)
        self._output("foreachBatch", FunctionOutput("foreachBatch", output, names) if names else output)

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
