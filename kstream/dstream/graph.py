"""DStreamGraph: all inputs and outputs of a context; makes the jobs of a batch."""

from __future__ import annotations

import logging
from collections import Counter
from typing import TYPE_CHECKING

from kstream.batch import InputOutcome, Job
from kstream.batch_time import Duration, Time
from kstream.dstream.node import DStreamNode, in_order
from kstream.dstream.ports import NoPlacement, Placement
from kstream.dstream.recipe import Recorder
from kstream.dstream.stateful_dstream import StatefulDStream, oldest_required_batches
from kstream.errors import ConfigurationError

if TYPE_CHECKING:
    from kstream.dstream.input_dstream import InputDStream
    from kstream.dstream.transformed import ForEachDStream


logger = logging.getLogger(__name__)


class DStreamGraph:
    """Built on the user's thread before start; afterwards used by the JobGenerator's thread, but for `outcomes`.

    `initialize` walks the graph once, and batches use what it found: nothing is added after the start.
    """

    def __init__(self, batch_duration: Duration) -> None:
        self.batch_duration = batch_duration
        self.zero_time: Time | None = None
        self.remember_duration: Duration | None = None
        self.recorder = Recorder()
        self.placement: Placement = NoPlacement()
        self._inputs: list[InputDStream] = []
        self._outputs: list[ForEachDStream] = []
        self._state_streams: list[StatefulDStream] = []
        self._order: list[DStreamNode] | None = None

    def add_input_stream(self, stream: InputDStream) -> int:
        """Adds an input and returns its id: 0, 1, 2 … in order of creation over all kinds."""
        self._order = None
        self._inputs.append(stream)
        return len(self._inputs) - 1

    def add_state_stream(self, stream: StatefulDStream) -> int:
        """Adds a stream that carries state; returns its number: 0, 1, 2 … in order of creation."""
        self._state_streams.append(stream)
        return len(self._state_streams) - 1

    def add_output_stream(self, stream: ForEachDStream) -> None:
        self._order = None
        self._outputs.append(stream)

    @property
    def input_streams(self) -> list[InputDStream]:
        return list(self._inputs)

    @property
    def output_streams(self) -> list[ForEachDStream]:
        return list(self._outputs)

    def in_order(self) -> list[DStreamNode]:
        """All streams that some output depends on, the outputs included, each before those it is made of."""
        return in_order(self._outputs) if self._order is None else list(self._order)

    def active_inputs(self) -> list[InputDStream]:
        """The inputs that some output depends on; the others are never planned."""
        return self._inputs_among(self.in_order())

    def inputs_of(self, stream: DStreamNode) -> list[InputDStream]:
        """The inputs that a stream is made of."""
        return self._inputs_among(in_order([stream]))

    def _inputs_among(self, streams: list[DStreamNode]) -> list[InputDStream]:
        reached = {id(stream) for stream in streams}
        return [stream for stream in self._inputs if id(stream) in reached]

    def active_states(self) -> list[StatefulDStream]:
        """The streams with state that some output depends on, each before those it is made of."""
        return [stream for stream in self.in_order() if isinstance(stream, StatefulDStream)]

    def validate_at_start(self, checkpointing: bool) -> None:
        """Decides how states are kept, and refuses what cannot start.

        Args:
            checkpointing: the StreamingContext has a checkpoint directory. Without one Spark's RDD checkpoints cut the lineage of states.

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
                    key="spark.streaming.checkpoint.directory",
                    value=None,
                )
            stream.uses_rdd_checkpoints = True
            logger.warning("the state of %r is checkpointed in %s, and no restart recovers it (see ssc.checkpoint)", stream, directory)

    def input_names(self) -> dict[int, str]:
        """The names of the active inputs that have one, by their numbers. ConfigurationError if two have the same."""
        names = {stream.id: name for stream in self.active_inputs() if (name := stream.name()) is not None}
        twice = [name for name, count in Counter(names.values()).items() if count > 1]
        if twice:
            raise ConfigurationError(f"two input streams are named {twice[0]!r}: names tell them apart", key="setName", value=twice[0])
        return names

    def remember(self, duration: Duration) -> None:
        """How long every stream remembers at least. Once: ConfigurationError when it has been said before, as in Spark."""
        if self.remember_duration is not None:
            raise ConfigurationError(
                f"the remember duration is already set: {self.remember_duration}; it cannot be set again (to {duration})",
                key="remember", value=duration,
            )  # fmt: skip
        self.remember_duration = duration

    def initialize(self, zero_time: Time) -> None:
        """Sets the zero time of all streams and works out how long each remembers. Once, at start or restart."""
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

    def generate_jobs(self, time: Time) -> list[Job]:
        """The jobs of a batch, numbered by output. The inputs' plans for `time` must be known to them."""
        jobs = (output.generate_job(time, index) for index, output in enumerate(self._outputs))
        return [job for job in jobs if job is not None]

    def outcomes(self, time: Time) -> dict[int, InputOutcome]:
        """What the jobs of a batch found, by input, once they have succeeded. Called once a batch, by any thread."""
        found = ((stream.id, stream.outcome_of(time)) for stream in self.active_inputs())
        return {number: outcome for number, outcome in found if outcome is not None}

    def clear_metadata(self, time: Time) -> None:
        """Forgets what no batch after `time` (or `time` itself) needs, nor a stream whose state is not made up to there."""
        time = min([time, *(stream.caught_up_to() for stream in self.active_states())])
        for output in self._outputs:
            output.clear_metadata(time)

    def longest_remember(self) -> Duration:
        """How long the inputs remember: how far back a batch may look."""
        return max((stream.remember_duration for stream in self.active_inputs()), default=self.batch_duration)
