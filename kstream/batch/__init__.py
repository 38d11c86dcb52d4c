"""The records of a batch's life: its plan, its state, its jobs, and the events that listeners get.

One idea: these are values. Nothing here acts on a stream; the rooms above pass the values on. Names are Spark's (`BatchInfo`,
`StreamInputInfo`, `JobSet`). Accessor methods are pyspark's: `info.batchTime().milliseconds()` is a method call there and here.
"""

from kstream.batch.batch import Batch, BatchState
from kstream.batch.batch_info import BatchInfo, OutputOperationInfo, ReceiverInfo, StreamInputInfo
from kstream.batch.job import Job, JobSet
from kstream.batch.plan import BatchPlan, InputOutcome, Json, JsonPlan, PlannedInput
from kstream.batch.state import KeyHash, StateCheckpoint

__all__ = [
    "Batch",
    "BatchInfo",
    "BatchPlan",
    "BatchState",
    "InputOutcome",
    "Job",
    "JobSet",
    "Json",
    "JsonPlan",
    "KeyHash",
    "OutputOperationInfo",
    "PlannedInput",
    "ReceiverInfo",
    "StateCheckpoint",
    "StreamInputInfo",
]
