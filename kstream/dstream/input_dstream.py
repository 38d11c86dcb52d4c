"""InputDStream: where data enters, by a plan."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from kstream.batch import InputOutcome, InputPlan, Json
from kstream.batch.events import StreamingListenerEvent
from kstream.batch_time import Time
from kstream.dstream.dstream import DStream
from kstream.dstream.node import DStreamNode
from kstream.dstream.ports import StreamHost, services_of
from kstream.dstream.recipe import Recipe

if TYPE_CHECKING:
    from pyspark import RDD


class InputDStream(DStream[Any], DStreamNode):
    """Base of all inputs. Every call below comes from the driver, `start` to `stop`, from one thread at a time.

    The order in a batch: `plan` (may look outside, moves nothing) → the plan is made durable → `planned` (move the cursors) →
    `rdd`. A plan that could not be stored is forgotten: the next `plan` starts at the same place. After a restart `restored` gets
    the newest stored data before `start`, and `rdd` is asked for batches planned by an earlier driver.
    """

    no_recipe_reason: str = "an input has no recipe"
    reports_input_info: ClassVar[bool] = True
    """Whether listeners learn what it gave to a batch; as in Spark a queue's records are not counted."""

    def __init__(self, ssc: StreamHost) -> None:
        DStreamNode.__init__(self, ssc, (), services_of(ssc).graph.batch_duration)
        DStream.__init__(self, self)
        self._plans: dict[Time, Mapping[str, Json]] = {}
        self.fenced = False
        """Another driver has taken over: `stop` must tell the outside nothing of what this one did."""
        self.lenient = False
        """A replay looks at what is left of the past: losses are told with the outcome, and not raised."""
        self.tell: Callable[[StreamingListenerEvent], None] = lambda _event: None
        """Posts an event to the listeners; any thread. Set before `start`."""
        self.id = self.ssc.graph.add_input_stream(self)
        self.base_scope = self.ssc.graph.recorder.new_scope(f"{_in_words(type(self).__name__)} [{self.id}]")

    @property
    def outlives_driver(self) -> bool:
        """Whether, with a checkpoint, the next driver can read what this one has planned or taken in."""
        return True

    def register_recipe(self) -> None:
        """Write this input into the graph's recorder. Called once by whoever made it, when it is whole."""
        self.recorder.add_input(self, self.recipe(), self.no_recipe_reason)
        for function in self.worker_functions():
            self.recorder.for_workers(function)

    def start(self) -> None:
        """Gets ready to plan; may block on the outside. What it raises fails `ssc.start()`."""

    def stop(self) -> None:
        """Lets go of what `start` took. Also called where `start` was not, or has failed."""

    def starting_point(self) -> InputPlan:
        """Where a stream that starts for the first time stands, as the plan of a batch of nothing. After `start`."""
        return InputPlan({})

    @abstractmethod
    def plan(self, time: Time) -> InputPlan:
        """What this stream gives to the batch. Must move no cursor. What it raises leaves the batch unplanned."""

    def planned(self, time: Time, data: Mapping[str, Json]) -> None:
        """The plan is durable: move the cursors behind it."""

    def restored(self, time: Time, data: Mapping[str, Json]) -> None:
        """Restart: the newest stored plan of this stream. NotRecoverableError if it cannot go on from there."""

    def reads_nothing_of(self, data: Mapping[str, Json], kept: Mapping[str, Json] | None) -> str:
        """Say at a restart why the stored data seems to be another job's.

        Called several times before `restored`. Must not look outside.

        Args:
            data: the newest stored plan of this stream.
            kept: what `left_behind` has kept of earlier plans.

        Returns:
            What is stored and what this stream reads, in words, where the two have nothing in common; else an empty text.

        Raises:
            NotRecoverableError: the data is of another kind of input.
        """
        return ""

    def left_behind(self, data: Mapping[str, Json], kept: Mapping[str, Json] | None) -> Mapping[str, Json] | None:
        """Restart, before the first plan: what must be kept of the stored data because the plans to come will not have it.

        Called before `restored`. Must not look outside.

        Args:
            data: the newest stored plan of this stream.
            kept: what an earlier driver has kept. The newest plan wins where both speak of the same thing.

        Returns:
            What is stored from now on, in place of `kept`; None for nothing.
        """
        return None

    def restored_kept(self, data: Mapping[str, Json]) -> None:
        """Restart, after `restored`: what `left_behind` has returned. The stream may read some of it again."""

    def skipped_between(self, before: Mapping[str, Json], after: Mapping[str, Json]) -> Sequence[str]:
        """Restart, before `restored`: what lies between two plans of this stream and is in neither.

        For inputs whose next plan begins where the last one ended: skipped data means that a plan is missing. Return nothing where `after`
        itself explains the jump, because a false alarm stops the start. Pure.

        Args:
            before: the data of a plan.
            after: the data of the next plan that stands.

        Returns:
            What is skipped, in words for people; nothing, for an input that cannot say.
        """
        return ()

    @abstractmethod
    def rdd(self, time: Time, data: Mapping[str, Json]) -> RDD[Any] | None:
        """The RDD of a batch from its plan data. Must move no cursor and not look outside."""

    def metadata(self, time: Time, data: Mapping[str, Json]) -> Mapping[str, Any]:
        """What listeners learn of a batch besides its size: `Description` for people, `progress` (JSON) for the progress report."""
        return {}

    def outcome(self, time: Time, data: Mapping[str, Json]) -> InputOutcome:
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

    def remember_plan(self, time: Time, data: Mapping[str, Json]) -> None:
        """Keeps the data of a planned batch for `compute`, until it falls out of the remember duration."""
        self._plans[time] = data

    def outcome_of(self, time: Time) -> InputOutcome | None:
        """`outcome` of a batch whose plan is still kept; for the JobScheduler."""
        data = self._plans.get(time)
        return None if data is None else self.outcome(time, data)

    def has_batch(self, time: Time) -> bool:
        return time in self._plans

    def newest_planned(self) -> Time | None:
        return max(list(self._plans), default=None)

    def compute(self, time: Time) -> RDD[Any] | None:
        data = self._plans.get(time)
        return None if data is None else self.placed(time, lambda: self.rdd(time, data))

    def clear_metadata(self, time: Time) -> None:
        super().clear_metadata(time)
        for old in [t for t in self._plans if t <= time - self.remember_duration]:
            del self._plans[old]


def _in_words(class_name: str) -> str:
    """`queue stream` of `QueueInputDStream`, as Spark's pages call inputs."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", class_name.replace("InputDStream", "Stream")).lower()
