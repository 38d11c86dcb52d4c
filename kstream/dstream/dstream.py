"""DStream: a sequence of RDDs, one a batch; the base of all streams and the home of the operators users call.

The names and signatures are pyspark's. Operators may be called only before the context starts, on the driver. Functions given to
them run where pyspark's would: those on records in the Python workers, those on RDDs (transform, foreachRDD) on the driver.
"""

from __future__ import annotations

from kstream.dstream.output_operations import OutputOperations
from kstream.dstream.pair_dstream_functions import PairDStreamFunctions
from kstream.dstream.record_operators import RecordOperators
from kstream.dstream.state_operators import StateOperators
from kstream.dstream.window_operators import WindowOperators


class DStream(RecordOperators, PairDStreamFunctions, StateOperators, WindowOperators, OutputOperations):
    """One stream of a graph. Subclasses say how a batch's RDD is made (`compute`); see DStreamBase for the life of a stream."""
