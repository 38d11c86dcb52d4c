"""DStreams: a stream is a recipe for one RDD a batch time; the graph knows all streams that have an output.

One idea: operators are applied to RDDs, not to data. `DStream.getOrCompute(time)` makes (or remembers) the RDD of a batch from its
parents' RDDs; an output operation turns it into a Job. Inputs are planned first (`InputDStream.plan`), in one place, by the
JobGenerator; computing never looks outside, so that any remembered or pending batch can be computed again from its plan.
"""

from kstream.dstream.dstream import DStream
from kstream.dstream.file_input_dstream import FileInputDStream
from kstream.dstream.graph import DStreamGraph
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.map_with_state_dstream import MapWithStateDStream
from kstream.dstream.queue_input_dstream import QueueInputDStream
from kstream.dstream.receiver_input_dstream import ReceiverInputDStream
from kstream.dstream.recipe import Recipe
from kstream.dstream.state_spec import StateSpec
from kstream.dstream.transformed import ForEachDStream, TransformedDStream, UnionDStream
from kstream.dstream.windowed import WindowedDStream

__all__ = [
    "DStream",
    "DStreamGraph",
    "FileInputDStream",
    "ForEachDStream",
    "InputDStream",
    "MapWithStateDStream",
    "QueueInputDStream",
    "ReceiverInputDStream",
    "Recipe",
    "StateSpec",
    "TransformedDStream",
    "UnionDStream",
    "WindowedDStream",
]
