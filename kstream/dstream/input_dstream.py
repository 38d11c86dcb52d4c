"""InputDStream: where data enters, by a plan."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from kstream.batch import InputOutcome, Json, JsonPlan, PlannedInput
from kstream.batch_time import Time
from kstream.dstream.dstream import DStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.ports import InputServices, StreamHost, services_of
from kstream.dstream.recipe import Recipe
from kstream.errors import NotRecoverableError

if TYPE_CHECKING:
    from pyspark import RDD


P = TypeVar("P", bound=PlannedInput)
"""The class of an input's plans."""


class InputDStream(DStream[Any], DStreamNode, Generic[P]):
    """Base of all inputs. Every call below comes from the driver, `start` to `stop`, from one thread at a time.

    The order in a batch: `plan` (may look outside, moves nothing) → the plan is made durable → `planned` (move the cursors) →
    `rdd`. A plan that could not be stored is forgotten: the next `plan` starts at the same place. After a restart `restored` gets
    the newest stored plan before `start`, and `rdd` is asked for batches planned by an earlier driver.

    The plan is a value, and the stream acts on it: so a plan can be stored, compared and made in a test, and an input is one class. An
    input with plans of a class of its own is an `InputDStream[ItsPlan]` that defines `starting_point` and `decode`. An input whose plans
    are `JsonPlan`s defines neither.
    """

    no_recipe_reason: str = ""
    """Why `recipe` returns None, for the error of `recovery=graph`; empty: the class has no recipe."""
    reports_input_info: ClassVar[bool] = True
    """Whether listeners learn what it gave to a batch; as in Spark a queue's records are not counted."""

    def __init__(self, ssc: StreamHost) -> None:
        DStreamNode.__init__(self, ssc, (), services_of(ssc).graph.batch_duration)
        DStream.__init__(self, self)
        self._plans: dict[Time, P] = {}
        self.services = InputServices()
        """Those of the driver from `start` on."""
        self.id = self.ssc.graph.add_input_stream(self)
        self.base_scope = self.ssc.graph.recorder.new_scope(f"{_in_words(type(self).__name__)} [{self.id}]")

    @property
    def outlives_driver(self) -> bool:
        """Whether, with a checkpoint, the next driver can read what this one has planned or taken in."""
        return True

    def register_recipe(self) -> None:
        """Write this input into the graph's recorder, behind the inputs that were made before it. Idempotent.

        A factory calls this method when the input is whole. For an input that nobody has registered the first operator calls it. The order
        matters: a stored graph makes its inputs in the order of the record, and each must get its id again.
        """
        for stream in self.ssc.graph.input_streams:
            if stream.id <= self.id and not self.recorder.knows(stream):
                stream._write_recipe()

    def _write_recipe(self) -> None:
        with self.recorder.at(self.creation_site):  # not that of the operator that may be the first to need the record
            self.recorder.add_input(self, self.recipe(), self.no_recipe_reason or f"{self!r} has no recipe()")
            for function in self.worker_functions():
                self.recorder.for_workers(function)

    def start(self, services: InputServices) -> None:
        """Get ready to plan; may block on the outside. What it raises fails `ssc.start()`. An override calls this method first."""
        self.services = services

    def start_replay(self, services: InputServices) -> None:
        """Get ready to give the RDDs of batches of the past. A replay calls this in place of `start`. Must not look outside."""
        self.services = services

    def stop(self) -> None:
        """Lets go of what `start` took. Also called where `start` was not, or has failed."""

    def starting_point(self) -> P:
        """Return where a stream that starts for the first time stands, as the plan of a batch of nothing. Called after `start`."""
        return cast("P", JsonPlan({}))

    @abstractmethod
    def plan(self, time: Time) -> P:
        """Return what this stream gives to the batch. Must move no cursor. What it raises leaves the batch unplanned."""

    def decode(self, data: Mapping[str, Json]) -> P:
        """Return the plan whose `encode` gave this data.

        Called for plans that the log holds: at a restart, and in a replay. A driver never decodes a plan that it has made. Must not look
        outside.

        Raises:
            NotRecoverableError: the data is of another kind of input; see `another_kind`.
        """
        return cast("P", JsonPlan(data))

    def another_kind(self, data: Mapping[str, Json]) -> NotRecoverableError:
        """Return the error of `decode` about data that no input of this class has stored."""
        return NotRecoverableError(
            f"{self!r} cannot go on from the stored data of another kind of input ({', '.join(sorted(data)) or 'empty'}): the order in "
            "which the inputs are made has changed. Restore that order, or use a new checkpoint directory."
        )

    def planned(self, time: Time, plan: P) -> None:
        """Move the cursors behind this plan, which is durable."""

    def restored(self, time: Time, plan: P) -> None:
        """Move the cursors behind the newest stored plan, at a restart. By default this is `planned`.

        Raises:
            NotRecoverableError: the stream cannot continue from there.
        """
        self.planned(time, plan)

    def reads_nothing_of(self, plan: P, kept: P | None) -> str:
        """Say at a restart why the stored plan seems to be another job's.

        Called several times before `restored`. Must not look outside.

        Args:
            plan: the newest stored plan of this stream.
            kept: what `left_behind` has kept of earlier plans.

        Returns:
            What is stored and what this stream reads, in words, where the two have nothing in common; else an empty text.
        """
        return ""

    def left_behind(self, plan: P, kept: P | None) -> P | None:
        """Restart, before the first plan: what must be kept of the stored plans because the plans to come will not have it.

        Called before `restored`. Must not look outside.

        Args:
            plan: the newest stored plan of this stream.
            kept: what an earlier driver has kept. The newest plan wins where both speak of the same thing.

        Returns:
            What is stored from now on, in place of `kept`; None for nothing.
        """
        return None

    def restored_kept(self, kept: P) -> None:
        """Restart, after `restored`: what `left_behind` has returned. The stream may read some of it again."""

    def skipped_between(self, before: P, after: P) -> Sequence[str]:
        """Restart, before `restored`: what lies between two plans of this stream and is in neither.

        For inputs whose next plan begins where the last one ended: skipped data means that a plan is missing. Return nothing where `after`
        itself explains the jump, because a false alarm stops the start. Pure.

        Args:
            before: a plan.
            after: the next plan that stands.

        Returns:
            What is skipped, in words for people; nothing, for an input that cannot say.
        """
        return ()

    @abstractmethod
    def rdd(self, time: Time, plan: P) -> RDD[Any] | None:
        """Return the RDD of a batch from its plan alone. Must move no cursor and not look outside."""

    def metadata(self, time: Time, plan: P) -> Mapping[str, Any]:
        """What listeners learn of a batch besides its size: `Description` for people, `progress` (JSON) for the progress report."""
        return {}

    def outcome(self, time: Time, plan: P) -> InputOutcome:
        """What the batch's jobs found, once all of them have succeeded; stored with the end of the batch. Called once, by any thread."""
        return InputOutcome()

    def missed(self, times: Sequence[Time]) -> Collection[Time] | None:
        """Tell the input of missed batch times, before any of them is planned: no driver ran, or this driver could not plan. May block.

        Called at a restart, and by the generator's thread when many ticks are overdue.

        An input that can say what there was at each of them gets ready to plan so, and returns those that hold something; None
        (catch-up): the first one planned takes all there is.
        """
        return None

    def batches_ended(self, unfinished: Collection[Time]) -> None:
        """Some batch has ended; these are still unfinished. Called by the generator's thread; must not wait."""

    @property
    def exhausted(self) -> bool:
        """Whether a bounded input has planned all it will ever give. When every input has, the context stops by itself."""
        return False

    def recipe(self) -> Recipe | None:
        """How to make this input again under `recovery=graph`; None if that would need a secret or cannot be said."""
        return None

    def worker_functions(self) -> Sequence[Any]:
        """The user's functions that this input's tasks run, its decoders for example. start() tries to pickle each of them."""
        return ()

    # -- for the JobGenerator

    def remember_plan(self, time: Time, plan: P) -> None:
        """Keep the plan of a batch for `compute`, until it falls out of the remember duration."""
        self._plans[time] = plan

    def outcome_of(self, time: Time) -> InputOutcome | None:
        """`outcome` of a batch whose plan is still kept; for the JobScheduler."""
        plan = self._plans.get(time)
        return None if plan is None else self.outcome(time, plan)

    def has_batch(self, time: Time) -> bool:
        return time in self._plans

    def newest_planned(self) -> Time | None:
        return max(list(self._plans), default=None)

    def compute(self, time: Time) -> RDD[Any] | None:
        plan = self._plans.get(time)
        return None if plan is None else self.placed(time, lambda: self.rdd(time, plan))

    def clear_metadata(self, time: Time) -> None:
        super().clear_metadata(time)
        for old in [t for t in self._plans if t <= time - self.remember_duration]:
            del self._plans[old]


def _in_words(class_name: str) -> str:
    """`queue stream` of `QueueInputDStream`, as Spark's pages call inputs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name.replace("InputDStream", "Stream")).lower()
