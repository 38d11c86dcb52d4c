"""The records of a batch's life: its plan, its jobs, and the facts that listeners get.

One idea: these are values. Nothing here acts on a stream; the rooms above pass the values on. Names are Spark's (`BatchInfo`,
`StreamInputInfo`, `JobSet`). Accessor methods are pyspark's: `info.batchTime().milliseconds()` is a method call there and here. The files:

    plan         BatchPlan and PlannedInput (RangePlan: ranges of offsets); BatchOutcome and its parts, which a completion stores
    batch_info   BatchInfo and its parts, for listeners
    input_progress   InputProgress: what an input reports of its share in a batch
    figures      Figures: what was measured of a batch, declared once for all forms of monitoring
    slowest_output   SlowestOutput: the output operation of a batch that took the longest
    log_lag      LogLag: how far an input is behind the ends of its logs, in records and in seconds
    batch        Batch, Job, JobSet: a batch in the driver that runs it; PendingBatches
    retention    RequiredBatches: the batches whose plans must be kept
"""

from kstream.batch.batch import Batch, Job, JobSet, PendingBatches, RDDScope, SucceededOutput
from kstream.batch.batch_info import BatchInfo, OutputOperationInfo, ReceiverInfo, StreamInputInfo
from kstream.batch.figures import FigureField, Figures, InputFigures, KnownFigure, OutputFigures, StateFigures
from kstream.batch.input_progress import InputProgress, Offsets, lag_between
from kstream.batch.log_lag import LogLag, completed_offsets, lag_after
from kstream.batch.plan import (
    BatchDelays,
    BatchOutcome,
    BatchPlan,
    InputOutcome,
    Json,
    JsonPlan,
    KeyHash,
    OutcomeFigures,
    PlannedInput,
    StateCheckpoint,
)
from kstream.batch.slowest_output import SlowestOutput, slowest_output
from kstream.offsets.offset_range import SkippedRecord

__all__ = [
    "Batch",
    "BatchDelays",
    "BatchInfo",
    "BatchOutcome",
    "BatchPlan",
    "FigureField",
    "Figures",
    "InputFigures",
    "InputOutcome",
    "InputProgress",
    "Job",
    "JobSet",
    "Json",
    "JsonPlan",
    "KeyHash",
    "KnownFigure",
    "LogLag",
    "Offsets",
    "OutcomeFigures",
    "OutputFigures",
    "OutputOperationInfo",
    "PendingBatches",
    "PlannedInput",
    "RDDScope",
    "ReceiverInfo",
    "SkippedRecord",
    "SlowestOutput",
    "StateCheckpoint",
    "StateFigures",
    "StreamInputInfo",
    "SucceededOutput",
    "completed_offsets",
    "lag_after",
    "lag_between",
    "slowest_output",
]
