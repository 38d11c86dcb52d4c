"""DStreamGraph: all inputs and outputs of a context. It makes the jobs of a batch."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Set
from typing import TYPE_CHECKING, Any

from kstream.batch import BatchPlan, InputOutcome, Job
from kstream.batch.retention import RequiredBatches, required_batches
from kstream.batch_time import Duration, Time
from kstream.checkpoint.settings import CHECKPOINT_DIRECTORY
from kstream.dstream.node import DStreamNode, in_order
from kstream.dstream.ports import Placement
from kstream.dstream.recipe import Recorder
from kstream.dstream.stateful_dstream import Recovery, StatefulDStream, oldest_required_batches
from kstream.errors import ConfigurationError
from kstream.output import Output, OutputBatch

if TYPE_CHECKING:
    from kstream.dstream.input_dstream import InputDStream
    from kstream.dstream.transformed_dstreams import ForEachDStream


logger = logging.getLogger(__name__)


class DStreamGraph:
    """All streams of a context: inputs, outputs, and the streams between them.

    Threads: the user's thread builds the graph before the start. `initialize` stores the order of the streams, which does not change
    afterwards. Then the JobGenerator's thread calls `generate_jobs` and `clear_metadata`; any thread may call `outcomes` and the methods
    that only read.
    """

    def __init__(self, batch_duration: Duration) -> None:
        self.batch_duration = batch_duration
        self.zero_time: Time | None = None
        self.remember_duration: Duration | None = None
        self._kept: Set[Time] = frozenset()
        """The batches that have not succeeded and that this driver may still run or try again."""
        self.newest_generated: Time | None = None
        """The newest batch that was generated; None before the first. Any thread may read it."""
        self._parallelism: Mapping[Time, int] = {}
        """The default parallelism of the earlier drivers that planned these batches, if it is kept."""
        self._own_parallelism: int | None = None
        self._required: dict[tuple[Time, Duration], RequiredBatches] = {}
        """What `required` has returned since the last clean-up."""
        self.recorder = Recorder()
        self.placement = Placement()
        self._inputs: list[InputDStream[Any]] = []
        self._outputs: list[ForEachDStream] = []
        self._state_streams: list[StatefulDStream] = []
        self._order: list[DStreamNode] | None = None

    def add_input_stream(self, stream: InputDStream[Any]) -> int:
        """Add an input. Return its id: 0, 1, 2 … in order of creation, over all kinds of inputs."""
        self._order = None
        self._inputs.append(stream)
        return len(self._inputs) - 1

    def add_state_stream(self, stream: StatefulDStream) -> int:
        """Add a stream with state. Return its number: 0, 1, 2 … in order of creation."""
        self._state_streams.append(stream)
        return len(self._state_streams) - 1

    def add_output_stream(self, stream: ForEachDStream) -> None:
        self._order = None
        self._outputs.append(stream)

    @property
    def input_streams(self) -> list[InputDStream[Any]]:
        """All inputs, by id."""
        return list(self._inputs)

    @property
    def output_streams(self) -> list[ForEachDStream]:
        """All output operations, in order of creation."""
        return list(self._outputs)

    def outputs(self) -> list[Output]:
        """Return the outputs that take part in the life of a batch, in order of creation."""
        return [part for stream in self._outputs if stream.output is not None for part in stream.output.parts()]

    @property
    def keeps_layout(self) -> bool:
        """Whether each try of a batch must divide its records in the same way, for an output that writes by partition."""
        return any(output.keeps_layout for output in self.outputs())

    def keep_parallelism(self, plans: Iterable[BatchPlan]) -> int | None:
        """Keep the default parallelism that each plan stores: a batch that runs again gets the same partitions. Called once, at a start.

        Returns:
            Spark's default parallelism now, which new plans store; None if no output needs it.
        """
        if self.keeps_layout:
            self._parallelism = {plan.time: plan.parallelism for plan in plans if plan.parallelism is not None}
            self._own_parallelism = self._outputs[0].ssc.sparkContext.defaultParallelism
        return self._own_parallelism

    def parallelism_of(self, time: Time) -> int | None:
        """Return the default parallelism of the driver that planned a batch; None if it is not kept (see `keep_parallelism`)."""
        return self._parallelism.get(time, self._own_parallelism)

    def output_names(self) -> tuple[str, ...]:
        """Return the names of `outputs()`.

        Raises:
            ConfigurationError: two of them have the same name.
        """
        names = tuple(output.name for output in self.outputs())
        twice = [name for name, count in Counter(names).items() if count > 1]
        if twice:
            raise ConfigurationError(f"two outputs are named {twice[0]!r}: give them different names", key="name", value=twice[0])
        return names

    def in_order(self) -> list[DStreamNode]:
        """Return all streams that an output depends on, and the outputs, each before its parents."""
        return in_order(self._outputs) if self._order is None else list(self._order)

    def active_inputs(self) -> list[InputDStream[Any]]:
        """Return the inputs that an output depends on. The other inputs are never planned."""
        return self._inputs_among(self.in_order())

    def inputs_of(self, stream: DStreamNode) -> list[InputDStream[Any]]:
        """Return the inputs that a stream depends on, by id."""
        return self._inputs_among(in_order([stream]))

    def _inputs_among(self, streams: list[DStreamNode]) -> list[InputDStream[Any]]:
        reached = {id(stream) for stream in streams}
        return [stream for stream in self._inputs if id(stream) in reached]

    def active_states(self) -> list[StatefulDStream]:
        """Return the streams with state that an output depends on, each before its parents."""
        return [stream for stream in self.in_order() if isinstance(stream, StatefulDStream)]

    def validate_at_start(self, checkpointing: bool) -> None:
        """Check that states can be kept, and choose how: in the checkpoint, or by Spark's RDD checkpoints.

        Args:
            checkpointing: the StreamingContext has a checkpoint directory. Without one, RDD checkpoints in the directory of the
                SparkContext cut the lineage of states; then a warning is logged, because no restart recovers the states.

        Raises:
            ConfigurationError: a stream carries state, and neither context has a checkpoint directory.
        """
        for stream in [] if checkpointing else self.active_states():
            directory = stream.ssc.sparkContext.getCheckpointDir()
            if directory is None:
                raise ConfigurationError(
                    f"The checkpoint directory has not been set: {stream!r} carries state from batch to batch. Please set it by "
                    "StreamingContext.checkpoint(directory); or by SparkContext.setCheckpointDir(directory), if no restart is to recover "
                    "the state",
                    key=CHECKPOINT_DIRECTORY.key,
                    value=None,
                )
            stream.uses_rdd_checkpoints = True
            logger.warning("the state of %r is checkpointed in %s, and no restart recovers it (see ssc.checkpoint)", stream, directory)

    def input_names(self) -> dict[int, str]:
        """Return the names of the active inputs that have a name, by input id.

        Raises:
            ConfigurationError: two inputs have the same name.
        """
        names = {stream.id: name for stream in self.active_inputs() if (name := stream.name()) is not None}
        twice = [name for name, count in Counter(names.values()).items() if count > 1]
        if twice:
            raise ConfigurationError(f"two input streams are named {twice[0]!r}: give them different names", key="setName", value=twice[0])
        return names

    def remember(self, duration: Duration) -> None:
        """Set the time for which every stream remembers its RDDs at least.

        Raises:
            ConfigurationError: the time is set already, as in Spark.
        """
        if self.remember_duration is not None:
            raise ConfigurationError(
                f"the remember duration is already set: {self.remember_duration}; it cannot be set again (to {duration})",
                key="remember",
                value=duration,
            )
        self.remember_duration = duration

    def initialize(self, zero_time: Time) -> None:
        """Set the zero time of all streams, and find how long each must remember. Called once, at a start or restart.

        Also stores the order of the streams and how far back the windows over each stream with state look.
        """
        self.zero_time = zero_time
        for output in self._outputs:
            output.initialize(zero_time)
        for output in self._outputs:
            if self.remember_duration is not None:
                output.remember(self.remember_duration)
            output.propagate_remember()
        self._order = in_order(self._outputs)
        oldest = oldest_required_batches(self._order, zero_time, lambda _stream, _time: None)
        for stream in self.active_states():
            stream.window_lookback = zero_time.since(oldest[stream])

    def reaches(self, time: Time) -> None:
        """Note that the batches up to this one are generated, or run without jobs; see `newest_generated`. The JobGenerator's thread."""
        self.newest_generated = time if self.newest_generated is None else max(time, self.newest_generated)

    def generate_jobs(self, batch: OutputBatch) -> list[Job]:
        """Return the jobs of a batch, one for each output that slides at its time, and note that it is reached. The JobGenerator's thread.

        The inputs must have their plans of the batch (`remember_plan`). An error of a stream or of a user's function is raised.
        """
        self.reaches(batch.time)
        jobs = (output.generate_job(batch, index) for index, output in enumerate(self._outputs))
        return [job for job in jobs if job is not None]

    def outcomes(self, time: Time) -> dict[int, InputOutcome]:
        """Return the outcome of each input of a batch whose jobs have succeeded, by input id. For a replay: nothing is stored."""
        found = ((stream.id, stream.outcome_of(time)) for stream in self.active_inputs())
        return {number: outcome for number, outcome in found if outcome is not None}

    def clear_metadata(self, time: Time, kept: Set[Time] = frozenset()) -> None:
        """Forget RDDs and plans that are no longer needed when the batches up to `time` have ended, and unpersist the RDDs.

        Data that is needed for a state up to `time` that is not made yet is kept.

        Args:
            time: the newest batch of those that have ended.
            kept: the batches that have not succeeded and that this driver may still run or try again. Their RDDs and plans are kept, and
                those of the batches before them on which their windows look back.
        """
        self._kept, self._required = kept, {}
        for stream in self.active_states():
            stream.forget_older(time)
        time = min([time, *(stream.caught_up_to() for stream in self.active_states())])
        for output in self._outputs:
            output.clear_metadata(time)

    def required(self, time: Time, remember: Duration) -> RequiredBatches:
        """Return the batches whose RDDs and plans a stream keeps when those up to `time` have ended; see `clear_metadata`."""
        found = self._required.get((time, remember))
        if found is None:
            found = self._required[time, remember] = required_batches(self._kept, time, remember)
        return found

    def forget(self, stream: InputDStream[Any], time: Time, keep_states: bool) -> None:
        """Forget every RDD that was made from the data of an input in a batch, because that data is another one now.

        Also RDDs of later batches: of windows, and of states. Any thread. A job that runs keeps the RDDs that it has.

        Args:
            stream: the input.
            time: the batch.
            keep_states: whether states that have been computed with the former data stay, and what was made from them.
        """
        affected: dict[int, set[Time]] = {id(stream): {time}}
        for node in reversed(self.in_order()):
            if isinstance(node, StatefulDStream) and keep_states:
                continue
            known = [times for parent in node.dependencies if (times := affected.get(id(parent)))]
            if known:
                first = {time for times in known for time in times}
                later = min(first) if isinstance(node, StatefulDStream) else None
                affected[id(node)] = {
                    t
                    for t in {*node.generated_times, *first}
                    if (later is not None and t >= later) or any(node.reaches_back_to(t) <= a <= t for a in first)
                }
        for node in self.in_order():
            node.forget(affected.get(id(node), ()))

    def go_back(self) -> bool:
        """Go back to the written states, because blocks or files of states are gone. The JobGenerator's thread.

        Every RDD that was made from a newer state is forgotten, so that the batches since then can be generated again.

        Returns:
            False if a state cannot be made again; see `StatefulDStream.recovery`. Then nothing has changed.
        """
        recoveries: dict[int, Recovery] = {}
        for state in self.active_states():
            recovery = state.recovery()
            if recovery is None:
                return False
            recoveries[id(state)] = recovery
        since: dict[int, Time] = {}
        for node in reversed(self.in_order()):
            times = [since[id(parent)] for parent in node.dependencies if id(parent) in since]
            if isinstance(node, StatefulDStream):
                recovery = recoveries[id(node)]
                node.go_back(recovery)
                times.append(recovery.time)
            elif times:
                node.forget([t for t in node.generated_times if t > min(times)])
            if times:
                since[id(node)] = min(times)
        return True

    def has_taken_in(self, time: Time) -> bool:
        """Return whether this driver began with totals of a window (with an inverse) that have the data of a batch in them.

        A later batch takes this data out again. So it must be the same, and no record of the batch can be left out now.
        """
        return any(stream.takes_out and stream.begins_after(time) for stream in self.active_states())

    def has_states_after(self, time: Time) -> bool:
        """Return whether the RDD of a state of a later batch is made already. It is made from the state of this batch."""
        return any(t > time for stream in self.active_states() for t in stream.generated_times)

    def longest_remember(self) -> Duration:
        """Return the longest remember duration of the active inputs: how far back a batch may look."""
        return max((stream.remember_duration for stream in self.active_inputs()), default=self.batch_duration)
