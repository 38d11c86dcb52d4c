"""Frozen records of a batch's life: what was planned, submitted, run, and told to listeners.

One idea: these are values. Nothing here acts; every room above passes them on. Names are Spark's (`BatchInfo`, `StreamInputInfo`,
`JobSet`), accessor methods have pyspark's shape (`info.batchTime().milliseconds()` is a method call there as here).
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
