"""Facts of batches as listeners get them."""

from __future__ import annotations

from typing import Any

from kstream.batch import BatchInfo, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.direct.direct_input_dstream import metadata_of
from kstream.listener import (
    StreamingListener,
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
)
from kstream.offsets.offset_range import OffsetRange


def source_of(partitions: int, begin: int = 0, records: int = 10, behind: int = 0, reason: str | None = None) -> StreamInputInfo:
    """An input of Kafka that reads so many records of each partition, and leaves `behind` in each."""
    ranges = [OffsetRange("orders", n, begin, begin + records) for n in range(partitions)]
    latest = {("orders", n): begin + records + behind for n in range(partitions)}
    limits: dict[str, Any] = {} if reason is None else {"readLimit": {"reason": reason, "records": records * partitions}}
    return StreamInputInfo(0, records * partitions, metadata_of(ranges, latest, {}, "Kafka[Subscribe[orders]]", limits))


def info_of(time_ms: int, source: StreamInputInfo | None = None, error: str | None = None, took_ms: int = 400, tries: int = 1) -> BatchInfo:
    """A batch that has ended, with one output."""
    time, begin = Time(time_ms), time_ms + 5
    output = OutputOperationInfo(
        time, 0, "foreachRDD at job.py:7", "job.py:7", begin, begin + took_ms, None if error is None else f"Traceback …\n{error}", error
    )
    inputs = {} if source is None else {0: source}
    return BatchInfo(time, inputs, time_ms, begin, begin + took_ms, {0: output}, tries)


def submitted_of(info: BatchInfo) -> BatchInfo:
    """The same batch when it was submitted."""
    outputs = {n: OutputOperationInfo(info.batch_time, n, o.op_name, o.op_description, None, None, None) for n, o in info.outputs.items()}
    return BatchInfo(info.batch_time, info.inputs, info.submission_ms, None, None, outputs)


def run_through(listener: StreamingListener, info: BatchInfo) -> None:
    """Tell a listener the whole life of a batch."""
    output = info.outputs[0]
    started = OutputOperationInfo(info.batch_time, 0, output.op_name, output.op_description, output.start_ms, None, None)
    listener.onBatchSubmitted(StreamingListenerBatchSubmitted(submitted_of(info)))
    listener.onBatchStarted(StreamingListenerBatchStarted(submitted_of(info)))
    listener.onOutputOperationStarted(StreamingListenerOutputOperationStarted(started))
    listener.onOutputOperationCompleted(StreamingListenerOutputOperationCompleted(output))
    listener.onBatchCompleted(StreamingListenerBatchCompleted(info))
