"""DStreams: a stream makes one RDD for each batch time; the graph holds all inputs and outputs of a context.

One idea: operators are applied to RDDs, not to data. A DStream is a user's handle on a DStreamNode. `DStreamNode.getOrCompute(time)` makes
the RDD of a batch from its parents' RDDs, and remembers it. An output operation turns the RDD into a Job. Inputs are planned first
(`InputDStream.plan`), in one place, by the JobGenerator. Computing never asks the source, so any remembered or pending batch can be
computed again from its plan. Files, in their order:

    reference, recipe       the record of the calls that built a graph, and its restoring
    ports                   interfaces of higher rooms that streams use
    node                    DStreamNode, the base of all kinds
    transformed, windowed_dstreams, stateful_dstream, state_dstreams     the kinds
    base, dstream           DStream, what users see
    input_dstream and the inputs
    graph                   DStreamGraph
"""

from kstream.dstream.dstream import DStream, MapWithStateDStream
from kstream.dstream.file_input_dstream import FileInputDStream
from kstream.dstream.graph import DStreamGraph
from kstream.dstream.input_dstream import InputDStream
from kstream.dstream.queue_input_dstream import QueueInputDStream
from kstream.dstream.receiver_input_dstream import ReceiverInputDStream
from kstream.dstream.recipe import Recipe
from kstream.dstream.state_spec import StateSpec
from kstream.dstream.transformed import ForEachDStream, TransformedDStream, UnionDStream
from kstream.dstream.windowed_dstreams import WindowedDStream

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
