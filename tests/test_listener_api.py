"""The events, one by one, as pyspark hands them: every figure is a method, −1 or None where it is not known."""

from __future__ import annotations

from typing import Any

import pytest

from kstream import StreamingListener
from kstream.batch import BatchInfo, OutputOperationInfo, ReceiverInfo, StreamInputInfo
from kstream.batch_time import Time
from kstream.listener import (
    StreamingListenerBatchCompleted,
    StreamingListenerBatchStarted,
    StreamingListenerBatchSubmitted,
    StreamingListenerOutputOperationCompleted,
    StreamingListenerOutputOperationStarted,
    StreamingListenerReceiverError,
    StreamingListenerReceiverStarted,
    StreamingListenerReceiverStopped,
    StreamingListenerStreamingStarted,
)

FAILED = OutputOperationInfo(Time(1000), 1, "foreachRDD at job.py:3", "job.py:3", 1010, 1030, "ValueError: boom")
PLANNED = OutputOperationInfo(Time(1000), 0, "pprint at job.py:2", "job.py:2", None, None, None)
INPUT = StreamInputInfo(0, 7, {"Description": "topic: orders", "offsets": [1]})
DONE = BatchInfo(Time(1000), {0: INPUT, 2: StreamInputInfo(2, 5)}, 1001, 1010, 1030, {0: PLANNED, 1: FAILED})
SUBMITTED = BatchInfo(Time(1000), {}, 1001, None, None, {0: PLANNED})
STARTED = BatchInfo(Time(1000), {}, 1001, 1010, None, {0: PLANNED})
BROKEN = ReceiverInfo(3, "SocketReceiver-3", False, "host", "1", "lost it", "OSError: lost it", 1005)
WELL = ReceiverInfo(3, "SocketReceiver-3", True, "host", "1")


def figures(of: Any, *names: str) -> list[Any]:
    return [getattr(of, name)() for name in names]


def test_the_start_of_the_stream_has_its_time() -> None:
    """SL2: read as an attribute by pyspark's suite, called by jobs that ran on it."""
    started = StreamingListenerStreamingStarted(5000)
    assert started.time == 5000 and started.time() == 5000 and started == StreamingListenerStreamingStarted(5000)  # type: ignore[operator]


DELAYS = ("submissionTime", "processingStartTime", "processingEndTime", "schedulingDelay", "processingDelay", "totalDelay")


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (StreamingListenerBatchSubmitted(SUBMITTED), [1001, -1, -1, -1, -1, -1]),
        (StreamingListenerBatchStarted(STARTED), [1001, 1010, -1, 9, -1, -1]),
        (StreamingListenerBatchCompleted(DONE), [1001, 1010, 1030, 9, 20, 29]),
    ],
    ids=["submitted", "started", "completed"],
)
def test_a_batch_tells_its_times_as_far_as_they_are_known(event: Any, expected: list[int]) -> None:
    """Spark behaviours SL1 and SL2."""
    info = event.batchInfo()
    assert figures(info, *DELAYS) == expected
    assert info.batchTime().milliseconds() == 1000 and str(info.batchTime()) == "1000 ms"


def test_a_batch_tells_what_its_inputs_gave() -> None:
    """Spark behaviour SL1."""
    assert DONE.numRecords() == 12 and SUBMITTED.numRecords() == 0
    inputs = DONE.streamIdToInputInfo()
    assert list(inputs) == [0, 2] and inputs[0].inputStreamId() == 0
    assert inputs[0].numRecords == 7 and inputs[0].numRecords() == 7
    assert inputs[0].metadata() == {"Description": "topic: orders", "offsets": [1]}
    assert [inputs[n].metadataDescription() for n in inputs] == ["topic: orders", None]


@pytest.mark.parametrize("kind", [StreamingListenerOutputOperationStarted, StreamingListenerOutputOperationCompleted])
def test_an_output_operation_tells_its_number_its_name_and_how_it_ended(kind: Any) -> None:
    """Spark behaviours SL4 and SL6."""
    info = kind(FAILED).outputOperationInfo()
    assert figures(info, "id", "name", "description") == [1, "foreachRDD at job.py:3", "job.py:3"]
    assert figures(info, "startTime", "endTime", "duration", "failureReason") == [1010, 1030, 20, "ValueError: boom"]
    planned = kind(PLANNED).outputOperationInfo()
    assert figures(planned, "startTime", "endTime", "duration", "failureReason") == [-1, -1, -1, None]
    assert info.batchTime().milliseconds() == 1000 and DONE.outputOperationInfos() == {0: PLANNED, 1: FAILED}


@pytest.mark.parametrize(
    "kind",
    [StreamingListenerReceiverStarted, StreamingListenerReceiverError, StreamingListenerReceiverStopped],
)
def test_a_receiver_tells_where_it_runs_and_its_last_error(kind: Any) -> None:
    """Spark behaviour SL3."""
    names = ("streamId", "name", "active", "location", "executorId", "lastErrorMessage", "lastError", "lastErrorTime")
    assert figures(kind(BROKEN).receiverInfo(), *names) == [
        3,
        "SocketReceiver-3",
        False,
        "host",
        "1",
        "lost it",
        "OSError: lost it",
        1005,
    ]
    assert figures(kind(WELL).receiverInfo(), *names)[5:] == ["", "", -1]


def test_a_listener_may_skip_the_constructor_of_its_base() -> None:
    """As pyspark's suite writes it: super(StreamingListener, self).__init__()."""

    class Collector(StreamingListener):
        def __init__(self) -> None:
            super(StreamingListener, self).__init__()
            self.seen: list[Any] = []

    assert Collector().seen == []
