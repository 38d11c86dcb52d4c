"""InputDStream: the base of all inputs. An input plans the data of each batch before the batch runs."""

from __future__ import annotations

import logging
import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from kstream.batch import BatchInfo, BatchPlan, InputOutcome, Json, JsonPlan, PlannedInput, SkippedRecord
from kstream.batch.plan import kind_of, without_kind
from kstream.batch_time import Time
from kstream.checkpoint import names
from kstream.checkpoint.format import reading
from kstream.checkpoint.input_records import KeptOffsets
from kstream.conf import ConfigEntry
from kstream.dstream.dstream import DStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.ports import InputServices, StreamHost, services_of
from kstream.dstream.recipe import Recipe
from kstream.errors import NotRecoverableError
from kstream.offsets.settings import ON_RECORD_ERROR

if TYPE_CHECKING:
    from pyspark import RDD


logger = logging.getLogger(__name__)
P = TypeVar("P", bound=PlannedInput)
"""The class of an input's plans."""


class InputDStream(DStream[Any], DStreamNode, Generic[P]):
    """Base of all inputs. All methods are called on the driver.

    Threads: one thread at a time calls the methods that plan and move cursors: the thread that starts or stops the context, and the
    JobGenerator's thread in between. At the same time the JobScheduler's thread may call `outcome`, and a user's thread `rdd` (by `slice`).

    The order in a batch: `plan` (may ask the source, moves no cursor) → the plan is made durable → `planned` (moves the cursors) →
    `rdd`. A plan that could not be stored is dropped: the next `plan` starts at the same place. At a restart `restored` gets the newest
    stored plan before `start`, and `rdd` is also called for batches that an earlier driver planned.

    A plan is a value without behaviour; the stream acts on it. So a plan can be stored, compared, and made in a test. An input with its
    own class of plans is an `InputDStream[ItsPlan]` that defines `starting_point` and `decode`. An input whose plans are `JsonPlan`s
    defines neither.
    """

    no_recipe_reason: str = ""
    """Why `recipe` returns None, for the error of `recovery=graph`; empty: the class has no recipe."""
    reports_input_info: ClassVar[bool] = True
    """Whether listeners learn what this input gave to a batch. As in Spark, the records of a queue are not reported."""
    has_errors_policy: ClassVar[bool] = False
    """Whether the input obeys `spark.streaming.kstream.onRecordError`. Otherwise `start` warns about the setting."""
    adapts_rate: ClassVar[bool] = False
    """Whether the input gets a RateController, which calls `batch_completed`, and `update_rate` under back-pressure."""
    tasks_setting: ClassVar[ConfigEntry[int] | None] = None
    """The setting that limits the tasks of a batch, so small ranges share them; None without one. A warning of late batches names it."""

    def __init__(self, ssc: StreamHost) -> None:
        DStreamNode.__init__(self, ssc, (), services_of(ssc).graph.batch_duration)
        DStream.__init__(self, self)
        self._plans: dict[Time, P] = {}
        self.services = InputServices()
        """The driver's services, from `start` on."""
        self.id = self.ssc.graph.add_input_stream(self)
        self.base_scope = self.ssc.graph.recorder.new_scope(f"{_in_words(type(self).__name__)} [{self.id}]")

    @property
    def outlives_driver(self) -> bool:
        """Whether, with a checkpoint, the next driver can read the data that this driver has planned or received."""
        return True

    def register_recipe(self) -> None:
        """Write this input into the graph's recorder, after the inputs that were made before it. Idempotent.

        A factory calls this method when the input is whole. For an input that nobody has registered the first operator calls it. The order
        matters: a stored graph makes its inputs in the order of the record, and each must get its id again.
        """
        for stream in self.ssc.graph.input_streams:
            if stream.id <= self.id and not self.recorder.knows(stream):
                stream._write_recipe()

    def _write_recipe(self) -> None:
        """Record this input with its recipe, and the functions that its tasks run, at the line where the user made the input."""
        with self.recorder.at(self.creation_site):  # not that of the operator that may be the first to need the record
            self.recorder.add_input(self, self.recipe(), self.no_recipe_reason or f"{self!r} has no recipe()")
            for function in self.worker_functions():
                self.recorder.for_workers(function)

    def start(self, services: InputServices) -> None:
        """Get ready to plan. Blocks while it asks the source. An error fails `ssc.start()`. An override calls this method first.

        Args:
            services: the driver's services, which the input may use until `stop`.
        """
        self.services = services
        if not self.has_errors_policy and self.ssc.settings[ON_RECORD_ERROR] != "fail":
            logger.warning("%r has no errors policy: a record that fails makes its batch fail, whatever %s is", self, ON_RECORD_ERROR)

    def start_replay(self, services: InputServices) -> None:
        """Get ready to return the RDDs of past batches. A replay calls this in place of `start`. Must not ask the source."""
        self.services = services

    def stop(self) -> None:
        """Release what `start` has acquired. May be called more than once, also if `start` has failed or was not called."""

    def starting_point(self) -> P:
        """Return the plan without records that stores the starting offsets of a first start. Called after `start`."""
        return cast("P", JsonPlan({}))

    def position_text(self) -> str:
        """Return where the next plan begins, in words, for the log of a start; "" for an input without offsets. Called after `start`."""
        return ""

    @abstractmethod
    def plan(self, time: Time) -> P:
        """Return the plan of this stream for a batch. Must move no cursor. May block on the source.

        If it raises, the batch is not planned, and the error is reported.
        """

    def decode(self, data: Mapping[str, Json]) -> P:
        """Return the plan whose `encode` gave this data.

        Called for plans from the log: at a restart, and in a replay. A driver never decodes a plan that it has made. Must not ask the
        source.

        Raises:
            NotRecoverableError: the data is of another kind of input; see `another_kind`.
        """
        return cast("P", JsonPlan(data))

    def decoded(self, record: BatchPlan | KeptOffsets) -> P:
        """Return the plan of this input in a stored record, which must have one.

        Raises:
            CorruptRecordError: `decode` cannot read the data. The message names the record.
            NotRecoverableError: the data is of another kind of input.
        """
        is_plan = isinstance(record, BatchPlan)
        with reading(names.plan(record.time, record.epoch) if is_plan else names.of_epoch(names.KEPT_OFFSETS, record.epoch)):
            return self.decode(without_kind(record.inputs[self.id]))

    def another_kind(self, data: Mapping[str, Json]) -> NotRecoverableError:
        """Return the error that `decode` raises for the stored plan of another kind of input."""
        fields = ", ".join(sorted(data)) or "empty"
        return NotRecoverableError(
            f"{self!r}  cannot continue from the stored data of another kind of input ({kind_of(data)}: {fields}): the order in which the "
            "inputs are made has changed. Restore that order, or use a new checkpoint directory."
        )

    def planned(self, time: Time, plan: P) -> None:
        """Move the cursors to the end of this plan, which is durable."""

    def restored(self, time: Time, plan: P) -> None:
        """Move the cursors to the end of the newest stored plan. Called at a restart, before `start`. By default this is `planned`.

        Raises:
            NotRecoverableError: the stream cannot continue from there.
        """
        self.planned(time, plan)

    def reads_nothing_of(self, plan: P, kept: P | None) -> str:
        """Return why the stored plan seems to be of another job, at a restart.

        Called before `restored`. Must not ask the source.

        Args:
            plan: the newest stored plan of this stream.
            kept: the plan that `left_behind` has kept; None for none.

        Returns:
            A text that names the stored data and the data that this stream reads, if they have nothing in common; else an empty text.
        """
        return ""

    def left_behind(self, plan: P, kept: P | None) -> P | None:
        """Return the part of the stored plans that must be kept because the plans of this stream will not have it.

        Called at a restart, before `restored`. Must not ask the source.

        Args:
            plan: the newest stored plan of this stream.
            kept: the plan that an earlier driver has kept; None for none. If both plans have the same part, the newest plan counts.

        Returns:
            The plan to keep from now on, in place of `kept`; None for nothing.
        """
        return None

    def restored_kept(self, kept: P) -> None:
        """Take back the plan that `left_behind` returned: the stream may read parts of it again. Called at a restart, after `restored`."""

    def skipped_between(self, before: P, after: P) -> Sequence[str]:
        """Return the data between two consecutive plans of this stream that neither of them has. Called at a restart, before `restored`.

        For inputs whose next plan begins where the last one ended: skipped data means that a plan is missing. Return nothing if `after`
        itself explains the gap, because a false alarm stops the start. Pure.

        Args:
            before: a stored plan.
            after: the next stored plan.

        Returns:
            Texts for people that name the skipped data; nothing, for an input that cannot tell.
        """
        return ()

    @abstractmethod
    def rdd(self, time: Time, plan: P) -> RDD[Any] | None:
        """Return the RDD of a batch, from its plan alone; None for no RDD. Must not move a cursor, and must not ask the source.

        Called by the JobGenerator's thread, and by user threads in `slice`.
        """

    def metadata(self, time: Time, plan: P) -> Mapping[str, Any]:
        """Return the facts of a batch for listeners besides its size: `Description` for people, `progress` (JSON) for reports."""
        return {}

    def outcome(self, time: Time, plan: P) -> InputOutcome:
        """Return what the jobs of a batch found: counts and losses. It is stored in the completion record.

        Called when all jobs of the batch have succeeded, and again only after an error of its own. Any thread.
        """
        return InputOutcome()

    def task_properties(self, time: Time, plan: P) -> Mapping[str, str]:
        """Return what an output that begins now tells its tasks: local properties of Spark, by name. May block on the source.

        Called before the function of each output of the batch, in the thread of its job. An error is that of the job.
        """
        return {}

    def check_records(self, time: Time, plan: P) -> None:
        """Raise an error if a batch must fail because of what its tasks have reported. Must not block.

        Called after the function of each output of the batch, in the thread of its job. The error is that of the job.
        """

    @property
    def errors_policy(self) -> str:
        """What becomes of a record that fails: fail, skip or dead-letter."""
        return "fail"

    @property
    def tasks_report(self) -> bool:
        """Whether the tasks of a batch may report more than counts: losses, or records that were left out.

        Then a batch that runs again computes all its partitions, also those whose output is written already.
        """
        return True

    @property
    def tolerates_record_errors(self) -> bool:
        """Whether this input has an errors policy, so that operators on its records leave out a record for which they fail."""
        return False

    @property
    def knows_records(self) -> bool:
        """Whether the tasks of this input know the record of each element, as an errors policy needs it."""
        return self.has_errors_policy

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Pass the missed batch times to the input, before any of them is planned. May block on the source.

        Called at a restart by the thread that starts, and by the JobGenerator's thread when many ticks are overdue.

        Args:
            times: all missed batch times, oldest first.

        Returns:
            The batch times that have data, if the input can tell; it then plans each of them with its own data. None means catch-up: the
            first batch that is planned takes all data.
        """
        return None

    @property
    def is_measuring(self) -> bool:
        """Whether a batch that is planned now would get no records only because the first batch runs, which shows how many fit."""
        return False

    def update_rate(self, recordsPerSecond: int) -> None:
        """Take at most so many records a second from now on. Called under back-pressure by the thread that ends a batch.

        Must not block. Inputs with `adapts_rate` override it.
        """

    def batch_completed(self, info: BatchInfo) -> None:
        """Note the figures of a batch that has ended, before the next one is planned. Called by the thread that ends it; must not block.

        They show how fast the job is only if `info.measures_speed`: all outputs have succeeded in the first try.
        """

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        """Note which batches have not succeeded, when batches have ended. Called by the JobGenerator's thread; must not block.

        An input may then commit the offsets of the others.
        """

    @property
    def exhausted(self) -> bool:
        """Whether a bounded input has planned all of its data. When all inputs have, and all batches have ended, the context stops."""
        return False

    def recipe(self) -> Recipe | None:
        """Return the recipe that restores this input under `recovery=graph`; None if a recipe would need a secret, or there is none."""
        return None

    def worker_functions(self) -> Sequence[Any]:
        """Return the user's functions that this input's tasks run, its decoders for example. start() tries to pickle each of them."""
        return ()

    def without(self, plan: P, skipped: Collection[SkippedRecord]) -> P:
        """Return the plan of a batch that leaves these records out, in place of any that `plan` leaves out. Pure.

        The stored form does not change. `rdd` must leave out exactly these records, and `outcome` must name them. By default an input
        cannot leave records out, and returns the plan as it is.
        """
        return plan

    # -- for the JobGenerator

    def skipped(self, time: Time) -> Collection[SkippedRecord]:
        """Return the records that a batch leaves out; none if its plan is not kept."""
        plan = self._plans.get(time)
        return () if plan is None else plan.skipped

    def leave_out(self, time: Time, skipped: Collection[SkippedRecord]) -> None:
        """Leave these records out of a batch from now on, if its plan is kept. RDDs that were made before do not change."""
        plan = self._plans.get(time)
        if plan is not None:
            self._plans[time] = self.without(plan, skipped)

    def remember_plan(self, time: Time, plan: P) -> None:
        """Keep the plan of a batch for `compute`, until it falls out of the remember duration."""
        self._plans[time] = plan

    def outcome_of(self, time: Time) -> InputOutcome | None:
        """Return the `outcome` of a batch; None if its plan is not kept. Any thread."""
        plan = self._plans.get(time)
        return None if plan is None else self.outcome(time, plan)

    def task_properties_of(self, time: Time) -> Mapping[str, str]:
        """Return the `task_properties` for a batch; none if its plan is not kept."""
        plan = self._plans.get(time)
        return {} if plan is None else self.task_properties(time, plan)

    def check_records_of(self, time: Time) -> None:
        """Call `check_records` for a batch whose plan is kept."""
        plan = self._plans.get(time)
        if plan is not None:
            self.check_records(time, plan)

    def has_batch(self, time: Time) -> bool:
        return time in self._plans

    def newest_planned(self) -> Time | None:
        """Return the newest batch whose plan is kept; None if there is none. Any thread."""
        return max(list(self._plans), default=None)

    def planned_batches(self) -> list[Time]:
        """Return the batches whose plans are kept. Any thread."""
        return list(self._plans)

    def compute(self, time: Time) -> RDD[Any] | None:
        """Return the RDD of a batch from its kept plan; None without a plan."""
        plan = self._plans.get(time)
        return None if plan is None else self.placed(time, lambda: self.rdd(time, plan))

    def clear_metadata(self, time: Time) -> None:
        """Forget the RDDs and the plans that are outdated at `time`; see `outdated`."""
        super().clear_metadata(time)
        for old in self.outdated(self._plans, time):
            del self._plans[old]


def _in_words(class_name: str) -> str:
    """Return the name of an input class in words, as on Spark's pages: `queue stream` for `QueueInputDStream`."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name.replace("InputDStream", "Stream")).lower()
