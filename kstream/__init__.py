"""kstream: Spark Streaming in Python on PySpark's RDDs, centred on Kafka, without a single jar.

    from kstream import StreamingContext
    from kstream_kafka import KafkaUtils

This module only has the public names. ARCHITECTURE.md beside this file is the map of the rooms.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kstream.batch_time import BatchTime, Duration, Milliseconds, Minutes, Seconds, Time
from kstream.errors import ConfigurationError, DataLossError, KStreamError, TransientError
from kstream.lazy_names import lazy_names
from kstream.listener import StreamingListener

if TYPE_CHECKING:
    from kstream.batch import InputOutcome, JsonPlan, PlannedInput
    from kstream.console import log
    from kstream.context import StreamingContext, StreamingContextState
    from kstream.direct.log_input_dstream import LogInputDStream
    from kstream.dstream import DStream, InputDStream, Recipe, StateSpec
    from kstream.offsets.log import Log
    from kstream.offsets.offset_range import OffsetRange
    from kstream.rdd import State
    from kstream.receiver import Receiver
    from kstream.scheduler.rate_estimator import RateEstimator

__version__ = "0.1.0"

__all__ = [
    "BatchTime",
    "ConfigurationError",
    "DStream",
    "DataLossError",
    "Duration",
    "InputDStream",
    "InputOutcome",
    "JsonPlan",
    "KStreamError",
    "Log",
    "LogInputDStream",
    "Milliseconds",
    "Minutes",
    "OffsetRange",
    "PlannedInput",
    "RateEstimator",
    "Receiver",
    "Recipe",
    "Seconds",
    "State",
    "StateSpec",
    "StreamingContext",
    "StreamingContextState",
    "StreamingListener",
    "Time",
    "TransientError",
    "log",
]

# Imported on first use, because they need pyspark: a platform may bring its own pyspark, and a task that reads Kafka does not need it.
_LAZY = {
    "StreamingContext": "kstream.context",
    "StreamingContextState": "kstream.context",
    "DStream": "kstream.dstream",
    "State": "kstream.rdd",
    "StateSpec": "kstream.dstream",
    "InputDStream": "kstream.dstream",
    "InputOutcome": "kstream.batch",
    "JsonPlan": "kstream.batch",
    "PlannedInput": "kstream.batch",
    "Recipe": "kstream.dstream",
    "Log": "kstream.offsets.log",
    "LogInputDStream": "kstream.direct.log_input_dstream",
    "OffsetRange": "kstream.offsets.offset_range",
    "RateEstimator": "kstream.scheduler.rate_estimator",
    "Receiver": "kstream.receiver",
    "log": "kstream.console",
}
if not TYPE_CHECKING:
    __getattr__ = lazy_names(__name__, _LAZY)


def __dir__() -> list[str]:
    """Return the public names, those that are not imported yet included."""
    return list(__all__)
