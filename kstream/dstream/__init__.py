"""DStreams: a stream makes one RDD for each batch time; the graph holds all inputs and outputs of a context.

One idea: operators are applied to RDDs, not to data. A DStream is a user's handle on a DStreamNode. `DStreamNode.getOrCompute(time)` makes
the RDD of a batch from its parents' RDDs, and remembers it. An output operation turns the RDD into a Job. Inputs are planned first
(`InputDStream.plan`), in one place, by the JobGenerator. Computing never asks the source, so any remembered or pending batch can be
computed again from its plan. A file imports only files above it:

    settings               the settings of streams
    reference              a stream inside a user's function, in a stored graph
    recipe                 the record of the calls that built a graph (Recorder), and its restoring (Replay)
    arguments              checks of the arguments of operators
    received_blocks        the received blocks of a running context
    ports                  interfaces of higher rooms that streams use
    node                   DStreamNode, the base of all kinds of streams
    rdd_functions          operations on RDDs that pyspark does not have
    state_spec             StateSpec: the options of mapWithState
    transformed_dstreams   transform, union, foreachRDD
    windowed_dstreams      windows
    stateful_dstream       the base of streams with state
    state_dstreams         updateStateByKey and mapWithState
    state_files            StateFiles: states are written to files and read back
    base                   the part of a DStream that is no operator
    output_operations      the operations of a DStream that end in a job
    dstream                DStream, what users see: the operators
    input_dstream          the base of all inputs
    stored_stream          StoredStream: the stored plans of an input, decoded, for a restart
    queue_input_dstream, file_input_dstream, receiver_input_dstream
    graph                  DStreamGraph
"""

from typing import TYPE_CHECKING

from kstream.lazy_names import lazy_names

if TYPE_CHECKING:
    from kstream.dstream.dstream import DStream, MapWithStateDStream
    from kstream.dstream.file_input_dstream import FileInputDStream
    from kstream.dstream.graph import DStreamGraph
    from kstream.dstream.input_dstream import InputDStream
    from kstream.dstream.queue_input_dstream import QueueInputDStream
    from kstream.dstream.receiver_input_dstream import ReceiverInputDStream
    from kstream.dstream.recipe import Recipe
    from kstream.dstream.state_spec import StateSpec
    from kstream.dstream.transformed_dstreams import ForEachDStream, TransformedDStream, UnionDStream
    from kstream.dstream.windowed_dstreams import WindowedDStream
else:  # at the first use, because they need pyspark, and the settings of the room do not
    __getattr__ = lazy_names(
        __name__,
        {
            "DStream": "kstream.dstream.dstream",
            "DStreamGraph": "kstream.dstream.graph",
            "FileInputDStream": "kstream.dstream.file_input_dstream",
            "ForEachDStream": "kstream.dstream.transformed_dstreams",
            "InputDStream": "kstream.dstream.input_dstream",
            "MapWithStateDStream": "kstream.dstream.dstream",
            "QueueInputDStream": "kstream.dstream.queue_input_dstream",
            "ReceiverInputDStream": "kstream.dstream.receiver_input_dstream",
            "Recipe": "kstream.dstream.recipe",
            "StateSpec": "kstream.dstream.state_spec",
            "TransformedDStream": "kstream.dstream.transformed_dstreams",
            "UnionDStream": "kstream.dstream.transformed_dstreams",
            "WindowedDStream": "kstream.dstream.windowed_dstreams",
        },
    )

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
