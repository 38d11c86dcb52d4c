"""Progress per batch: names, figures, JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from kstream.batch import BatchInfo, InputFigures, OutputOperationInfo, StreamInputInfo
from kstream.batch_time import Seconds, Time
from kstream.context.progress import progress_of
from kstream.monitoring.job_history import JobHistory
from tests.harness import World, started

KAFKA = {"description": "Kafka[t]", "startOffset": {"t": {"0": 5}}, "endOffset": {"t": {"0": 15}}}


def batch(ms: int = 1_763_719_200_000, processing: int | None = 500) -> BatchInfo:
    time, start = Time(ms), ms + 20
    end = None if processing is None else start + processing
    inputs = {1: StreamInputInfo(1, 0), 0: StreamInputInfo(0, 10, {"Description": "x", "progress": KAFKA})}
    outputs = {0: OutputOperationInfo(time, 0, "foreachRDD at job.py:3", "", start, end, "ValueError: no")}
    return BatchInfo(time, inputs, ms + 5, start, end, outputs)


def test_a_batch_is_told_in_the_names_of_structured_streaming() -> None:
    assert progress_of(batch(), Seconds(2), "orders") == {
        "name": "orders",
        "timestamp": "2025-11-21T10:00:00.000Z",
        "batchId": 1_763_719_200_000,
        "numInputRows": 10,
        "inputRowsPerSecond": 5.0,
        "processedRowsPerSecond": 20.0,
        "durationMs": {"schedulingDelay": 15, "processingDelay": 500, "totalDelay": 515},
        "sources": [{"id": 0, "numInputRows": 10, **KAFKA}, {"id": 1, "numInputRows": 0}],
        "outputs": [{"id": 0, "name": "foreachRDD at job.py:3", "durationMs": 500, "failureReason": "ValueError: no"}],
    }


def test_a_batch_that_took_no_time_has_no_rate_instead_of_a_division_error() -> None:
    assert progress_of(batch(processing=0), Seconds(1), "n")["processedRowsPerSecond"] is None


def test_progress_is_json_on_one_line_and_for_people() -> None:
    progress = progress_of(batch(), Seconds(1), "n")
    assert json.loads(progress.json) == json.loads(progress.prettyJson) == progress
    assert "\n" not in progress.json


def test_an_engine_tells_the_progress_of_each_batch_with_its_records() -> None:
    world = World()
    driver = started(world)
    history = JobHistory(driver.clock)
    driver.bus.add(history)
    times = [driver.tick(3), driver.tick(2)]
    driver.stop()
    told = [progress_of(info, Seconds(1), "n") for info in history.snapshot().recent]
    assert [(p["batchId"], p["numInputRows"]) for p in told] == [(times[0], 3), (times[1], 2)]


def test_records_that_the_errors_policy_has_left_out_are_counted_by_input() -> None:
    info = batch()
    info = replace(
        info, inputs={number: replace(source, figures=InputFigures(record_errors=2 - 2 * number)) for number, source in info.inputs.items()}
    )
    assert [source.get("numRecordErrors") for source in progress_of(info, Seconds(1), "n")["sources"]] == [2, None]
    assert info.numRecordErrors() == 2
